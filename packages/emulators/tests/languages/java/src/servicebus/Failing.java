package servicebus;

import static checks.Checks.equal;
import static checks.Checks.eventually;
import static checks.Checks.that;
import static servicebus.Bus.ADMINISTRATION;
import static servicebus.Bus.applied;
import static servicebus.Bus.bodies;
import static servicebus.Bus.check;
import static servicebus.Bus.clients;
import static servicebus.Bus.count;
import static servicebus.Bus.fails;
import static servicebus.Bus.inject;
import static servicebus.Bus.receive;
import static servicebus.Bus.retries;

import com.azure.core.amqp.AmqpTransportType;
import com.azure.core.amqp.exception.AmqpException;
import com.azure.core.exception.HttpResponseException;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusProcessorClient;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.administration.models.EntityStatus;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;

/** What an application sees when the network or the service fails, and how it connects. */
final class Failing {
    private static final Duration SHORT = Duration.ofSeconds(3);

    private Failing() {}

    private static void exchange(String connectionString, AmqpTransportType transport) throws Exception {
        try (Bus bus = new Bus(clients(connectionString, transport))) {
            String name = bus.queueWithSessions();
            byte[] large = new byte[200_000];
            Arrays.fill(large, (byte) 7);
            bus.send(name, new ServiceBusMessage("small").setSessionId("s"), new ServiceBusMessage(large).setSessionId("s"));
            ServiceBusReceiverClient session = bus.nextSession(name);
            session.setSessionState(new byte[] {1});
            List<ServiceBusReceivedMessage> found = receive(session, 2);
            found.forEach(session::complete);
            that(Arrays.equals(large, found.get(1).getBody().toBytes()), "other bytes");
            equal(1, session.getSessionState().length);
            equal(2, count(name, "completed"));
        }
    }

    static void add() {
        check("messages pass with TLS", bus -> exchange(Bus.SECURE, AmqpTransportType.AMQP));
        check("messages pass over WebSockets", bus -> exchange(Bus.HTTPS, AmqpTransportType.AMQP_WEB_SOCKETS));
        check("a send is repeated when its acknowledgement is lost, and a duplicate dropped", retries(4, SHORT), bus -> {
            String name = bus.queue(options -> options.setDuplicateDetectionRequired(true));
            String fault = inject("cut-after-transfer", name, 1);
            bus.send(name, new ServiceBusMessage("x").setMessageId("m"));
            applied(1, fault);
            equal(1, count(name, "active"));
            that(count(name, "duplicates_dropped") >= 1, "none was dropped");
        });
        check("a throttled send is repeated", retries(4, SHORT), bus -> {
            String name = bus.queue(options -> options.setDuplicateDetectionRequired(true));
            String fault = inject("server-busy", name, 2);
            bus.send(name, new ServiceBusMessage("x").setMessageId("m"));
            applied(2, fault);
            equal(1, count(name, "active"));
        });
        check("a send that is throttled for good says that the service is busy", retries(1, SHORT), bus -> {
            String name = bus.queue();
            inject("server-busy", name, 2);
            ServiceBusException error = checks.Checks.fails(ServiceBusException.class, () -> bus.send(name, "x"));
            // The client's reason is that its retries are exhausted.
            Throwable cause = error;
            while (!(cause instanceof AmqpException)) {
                cause = cause.getCause();
            }
            equal("com.microsoft:server-busy", ((AmqpException) cause).getErrorCondition().getErrorCondition());
        });
        check("a detached link is opened again", retries(4, SHORT), bus -> {
            String name = bus.queue(options -> options.setDuplicateDetectionRequired(true));
            String fault = inject("detach-link", name, 1);
            bus.send(name, new ServiceBusMessage("x").setMessageId("m"));
            applied(1, fault);
            equal(1, count(name, "active"));
        });
        check("a processor goes on after its connection was cut", retries(4, SHORT), bus -> {
            String name = bus.queue();
            List<String> found = Collections.synchronizedList(new ArrayList<>());
            ServiceBusProcessorClient processor = bus.clients().processor()
                .queueName(name)
                .processMessage(context -> found.add(context.getMessage().getBody().toString()))
                .processError(context -> {})
                .buildProcessorClient();
            processor.start();
            try (Bus other = bus.apart()) {
                other.send(name, "before");
                eventually(() -> count(name, "completed") == 1);
                inject("cut-receiver", name, 1);
                other.send(name, "after");
            }
            eventually(() -> found.contains("after"));
            processor.close();
        });
        check("a session processor goes on after its connection was cut", retries(4, SHORT), bus -> {
            String name = bus.queueWithSessions();
            List<String> found = Collections.synchronizedList(new ArrayList<>());
            ServiceBusProcessorClient processor = bus.clients().sessionProcessor()
                .queueName(name)
                .processMessage(context -> found.add(context.getMessage().getBody().toString()))
                .processError(context -> {})
                .buildProcessorClient();
            processor.start();
            try (Bus other = bus.apart()) {
                other.sendInSession(name, "a", "before");
                eventually(() -> count(name, "completed") == 1);
                inject("cut-receiver", name, 1);
                other.sendInSession(name, "a", "after");
            }
            eventually(() -> found.contains("after"));
            processor.close();
        });
        check("a queue that is not there is named", bus ->
            fails(ServiceBusFailureReason.MESSAGING_ENTITY_NOT_FOUND, () -> bus.send("no-such", "x")));
        check("peeking in a queue that is not there", bus ->
            fails(ServiceBusFailureReason.MESSAGING_ENTITY_NOT_FOUND, () -> bus.receiver("no-such").peekMessage()));
        check("a wrong key is refused", bus -> {
            String name = bus.queue();
            String wrong = Bus.PLAIN.replace("SharedAccessKey=", "SharedAccessKey=no");
            try (Bus stranger = new Bus(clients(wrong, AmqpTransportType.AMQP))) {
                fails(ServiceBusFailureReason.UNAUTHORIZED, () -> stranger.send(name, "x"));
            }
        });
        check("a wrong key is refused with 401 by the administration", bus -> {
            String wrong = Bus.HTTPS.replace("SharedAccessKey=", "SharedAccessKey=no");
            HttpResponseException error = checks.Checks.fails(HttpResponseException.class,
                () -> Bus.administration(wrong).createQueue("stranger"));
            equal(401, error.getResponse().getStatusCode());
        });
        check("a disabled queue takes nothing", bus -> {
            String name = bus.queue(options -> options.setStatus(EntityStatus.SEND_DISABLED));
            fails(ServiceBusFailureReason.MESSAGING_ENTITY_DISABLED, () -> bus.send(name, "x"));
            ADMINISTRATION.updateQueue(ADMINISTRATION.getQueue(name).setStatus(EntityStatus.ACTIVE));
            bus.send(name, "y");
            equal(List.of("y"), bodies(receive(bus.receiver(name), 1)));
        });
        check("transactions are refused by name", bus -> {
            String name = bus.queue();
            RuntimeException error = checks.Checks.fails(RuntimeException.class, () -> bus.sender(name).createTransaction());
            that(error.getMessage().contains("ransaction"), error.getMessage());
        });
    }
}
