package servicebus;

import static checks.Checks.ask;
import static checks.Checks.equal;
import static checks.Checks.unique;

import checks.Checks;
import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.core.amqp.AmqpTransportType;
import com.azure.core.http.HttpPipelineCallContext;
import com.azure.core.util.UrlBuilder;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.ServiceBusSessionReceiverClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClientBuilder;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import com.azure.messaging.servicebus.administration.models.CreateSubscriptionOptions;
import com.azure.messaging.servicebus.models.ServiceBusReceiveMode;
import com.azure.messaging.servicebus.models.SubQueue;
import java.net.URI;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;

/** What a check uses: clients of one connection, which it closes, and entities of its own. */
final class Bus implements AutoCloseable {
    static final String PLAIN = System.getenv("SERVICEBUS");
    static final String SECURE = System.getenv("SECURE");
    static final String HTTPS = System.getenv("HTTPS");
    static final ServiceBusAdministrationClient ADMINISTRATION = administration(HTTPS);
    private static final Duration TRY = Duration.ofSeconds(30);

    private final ServiceBusClientBuilder clients;
    private final Deque<Runnable> opened = new ArrayDeque<>();

    Bus(ServiceBusClientBuilder clients) {
        this.clients = clients;
    }

    /** The body of a check that uses Service Bus. */
    interface Body {
        void run(Bus bus) throws Exception;
    }

    static void check(String name, Body body) {
        check(name, retries(0, TRY), body);
    }

    static void check(String name, AmqpRetryOptions retries, Body body) {
        Checks.add(name, () -> {
            try (Bus bus = new Bus(clients(PLAIN, AmqpTransportType.AMQP).retryOptions(retries))) {
                body.run(bus);
            }
        });
    }

    static AmqpRetryOptions retries(int count, Duration timeout) {
        // The client adds four seconds to the delay of a send, and fails where that is more than the maximum.
        return new AmqpRetryOptions()
            .setMaxRetries(count)
            .setTryTimeout(timeout)
            .setDelay(Duration.ofMillis(100))
            .setMaxDelay(Duration.ofSeconds(5));
    }

    static ServiceBusClientBuilder clients(String connectionString, AmqpTransportType transport) {
        return new ServiceBusClientBuilder()
            .connectionString(connectionString)
            .transportType(transport)
            .retryOptions(retries(0, TRY));
    }

    /** Return an administration client. It drops the port of the connection string: a policy puts it back. */
    static ServiceBusAdministrationClient administration(String connectionString) {
        int port = URI.create(connectionString.replaceAll("^Endpoint=([^;]+);.*$", "$1")).getPort();
        return new ServiceBusAdministrationClientBuilder()
            .connectionString(connectionString)
            .addPolicy((HttpPipelineCallContext context, com.azure.core.http.HttpPipelineNextPolicy next) -> {
                UrlBuilder url = UrlBuilder.parse(context.getHttpRequest().getUrl()).setPort(port);
                context.getHttpRequest().setUrl(url.toString());
                return next.process();
            })
            .buildClient();
    }

    /** Return clients of another connection. */
    Bus apart() {
        return new Bus(clients(PLAIN, AmqpTransportType.AMQP));
    }

    private <T extends AutoCloseable> T closedLater(T client) {
        opened.push(() -> {
            try {
                client.close();
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
        });
        return client;
    }

    @Override
    public void close() {
        for (Runnable client : opened) {
            client.run();
        }
    }

    ServiceBusClientBuilder clients() {
        return clients;
    }

    String queue() {
        return queue(options -> {});
    }

    String queue(Consumer<CreateQueueOptions> setting) {
        CreateQueueOptions options = new CreateQueueOptions();
        setting.accept(options);
        String name = unique("queue");
        ADMINISTRATION.createQueue(name, options);
        return name;
    }

    String queueWithSessions() {
        return queue(options -> options.setSessionRequired(true));
    }

    /** Make a topic with the subscription `all`. */
    String topic(Consumer<CreateSubscriptionOptions> setting) {
        String name = unique("topic");
        ADMINISTRATION.createTopic(name);
        CreateSubscriptionOptions options = new CreateSubscriptionOptions();
        setting.accept(options);
        ADMINISTRATION.createSubscription(name, "all", options);
        return name;
    }

    ServiceBusSenderClient sender(String queue) {
        return closedLater(clients.sender().queueName(queue).buildClient());
    }

    ServiceBusSenderClient topicSender(String topic) {
        return closedLater(clients.sender().topicName(topic).buildClient());
    }

    ServiceBusReceiverClient receiver(String queue) {
        return receiver(queue, ServiceBusReceiveMode.PEEK_LOCK, SubQueue.NONE);
    }

    ServiceBusReceiverClient receiver(String queue, ServiceBusReceiveMode mode, SubQueue part) {
        return closedLater(clients.receiver()
            .queueName(queue)
            .receiveMode(mode)
            .subQueue(part)
            .maxAutoLockRenewDuration(Duration.ZERO)
            .buildClient());
    }

    ServiceBusReceiverClient deadLetters(String queue) {
        return receiver(queue, ServiceBusReceiveMode.PEEK_LOCK, SubQueue.DEAD_LETTER_QUEUE);
    }

    ServiceBusReceiverClient subscription(String topic) {
        return closedLater(clients.receiver().topicName(topic).subscriptionName("all").buildClient());
    }

    ServiceBusSessionReceiverClient sessions(String queue) {
        return closedLater(clients.sessionReceiver()
            .queueName(queue)
            .maxAutoLockRenewDuration(Duration.ZERO)
            .buildClient());
    }

    ServiceBusReceiverClient session(String queue, String id) {
        return closedLater(sessions(queue).acceptSession(id));
    }

    ServiceBusReceiverClient nextSession(String queue) {
        return closedLater(sessions(queue).acceptNextSession());
    }

    void send(String queue, ServiceBusMessage... messages) {
        for (ServiceBusMessage message : messages) {
            sender(queue).sendMessage(message);
        }
    }

    void send(String queue, String... bodies) {
        send(queue, Arrays.stream(bodies).map(ServiceBusMessage::new).toArray(ServiceBusMessage[]::new));
    }

    void sendInSession(String queue, String session, String... bodies) {
        send(queue, Arrays.stream(bodies)
            .map(body -> new ServiceBusMessage(body).setSessionId(session))
            .toArray(ServiceBusMessage[]::new));
    }

    /** Receive `count` messages, waiting until they are there. */
    static List<ServiceBusReceivedMessage> receive(ServiceBusReceiverClient receiver, int count) {
        List<ServiceBusReceivedMessage> found = new ArrayList<>();
        while (found.size() < count) {
            receiver.receiveMessages(count - found.size(), TRY).forEach(found::add);
        }
        return found;
    }

    static ServiceBusReceivedMessage receive(ServiceBusReceiverClient receiver) {
        return receive(receiver, 1).get(0);
    }

    /** Return what is left, after a short wait. */
    static List<String> remaining(ServiceBusReceiverClient receiver) {
        return bodies(receiver.receiveMessages(1, Duration.ofMillis(300)).stream().toList());
    }

    static List<String> bodies(List<ServiceBusReceivedMessage> messages) {
        return messages.stream().map(message -> message.getBody().toString()).toList();
    }

    static ServiceBusException fails(ServiceBusFailureReason reason, Checks.Body action) {
        ServiceBusException error = Checks.fails(ServiceBusException.class, action);
        if (error.getReason() != reason) {
            throw new AssertionError("expected " + reason + ", but was " + error.getReason(), error);
        }
        return error;
    }

    @SuppressWarnings("unchecked")
    static int count(String path, String kind) throws Exception {
        Map<String, Object> entity = (Map<String, Object>) ask("GET", System.getenv("ADMIN") + "/admin/entities", null).get(path);
        return (Integer) entity.get(kind);
    }

    /** Have the emulator fail as `kind` says, and return the path of the fault. */
    static String inject(String kind, String entity, int count) throws Exception {
        Map<String, Object> fault = new HashMap<>(Map.of("kind", kind, "entity", entity));
        if (count > 1) {
            fault.put("count", count);
        }
        String url = System.getenv("ADMIN") + "/admin/faults";
        return url + "/" + ask("POST", url, fault).get("id");
    }

    static void applied(int times, String fault) throws Exception {
        equal(times, ask("GET", fault, null).get("applied"));
    }
}
