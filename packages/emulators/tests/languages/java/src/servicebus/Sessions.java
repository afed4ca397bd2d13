package servicebus;

import static checks.Checks.equal;
import static checks.Checks.eventually;
import static checks.Checks.that;
import static servicebus.Bus.bodies;
import static servicebus.Bus.check;
import static servicebus.Bus.count;
import static servicebus.Bus.fails;
import static servicebus.Bus.inject;
import static servicebus.Bus.receive;
import static servicebus.Bus.remaining;
import static servicebus.Bus.retries;

import checks.Checks;
import com.azure.core.amqp.exception.AmqpException;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusProcessorClient;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.models.ServiceBusReceiveMode;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.IntStream;

/** Sessions: who has them, and in which order their messages come. */
final class Sessions {
    private Sessions() {}

    static void add() {
        check("a session is accepted by its id", bus -> {
            String name = bus.queueWithSessions();
            bus.sendInSession(name, "a", "1");
            bus.sendInSession(name, "b", "2");
            ServiceBusReceiverClient session = bus.session(name, "b");
            equal("b", session.getSessionId());
            ServiceBusReceivedMessage message = receive(session);
            equal(List.of("2", "b"), List.of(message.getBody().toString(), message.getSessionId()));
            session.complete(message);
            equal(1, count(name, "completed"));
            equal(List.of(), remaining(session));
        });
        check("the next session is one that has messages", bus -> {
            String name = bus.queueWithSessions();
            bus.sendInSession(name, "only", "1");
            ServiceBusReceiverClient session = bus.nextSession(name);
            equal("only", session.getSessionId());
            equal(List.of("1"), bodies(receive(session, 1)));
        });
        check("the next session is never one that is locked", bus -> {
            String name = bus.queueWithSessions();
            bus.sendInSession(name, "a", "1");
            bus.sendInSession(name, "b", "2");
            Set<String> found = new TreeSet<>(Set.of(bus.nextSession(name).getSessionId()));
            found.add(bus.nextSession(name).getSessionId());
            equal(Set.of("a", "b"), found);
        });
        check("waiting for a next session ends with a timeout", retries(0, Duration.ofSeconds(1)), bus -> {
            String name = bus.queueWithSessions();
            RuntimeException error = checks.Checks.fails(RuntimeException.class, () -> bus.nextSession(name));
            that(String.valueOf(error).contains("imeout"), error);
        });
        check("a locked session cannot be accepted", bus -> {
            String name = bus.queueWithSessions();
            bus.sendInSession(name, "a", "1");
            bus.session(name, "a");
            // Two links to one session within one connection are one link to this client.
            try (Bus other = bus.apart()) {
                AmqpException error = checks.Checks.fails(AmqpException.class, () -> other.session(name, "a"));
                equal("com.microsoft:session-cannot-be-locked", error.getErrorCondition().getErrorCondition());
            }
        });
        check("a closed session can be accepted again, with what was not completed", bus -> {
            String name = bus.queueWithSessions();
            bus.sendInSession(name, "a", "1", "2");
            ServiceBusReceiverClient first = bus.session(name, "a");
            first.complete(receive(first));
            first.close();
            try (Bus other = bus.apart()) {
                equal(List.of("2"), bodies(receive(other.session(name, "a"), 1)));
            }
        });
        check("a session's messages come in order", bus -> {
            String name = bus.queueWithSessions();
            List<String> numbers = IntStream.range(0, 30).mapToObj(String::valueOf).toList();
            bus.sender(name).sendMessages(numbers.stream()
                .map(body -> new ServiceBusMessage(body).setSessionId("a"))
                .toList());
            equal(numbers, bodies(receive(bus.session(name, "a"), 30)));
        });
        check("an abandoned message is the next of its session", bus -> {
            String name = bus.queueWithSessions();
            bus.sendInSession(name, "a", "1", "2");
            ServiceBusReceiverClient session = bus.session(name, "a");
            session.abandon(receive(session));
            List<ServiceBusReceivedMessage> found = receive(session, 2);
            equal(List.of("1", "2"), bodies(found));
            equal(List.of(1L, 0L), found.stream().map(ServiceBusReceivedMessage::getDeliveryCount).toList());
        });
        check("a session is received and deleted", bus -> {
            String name = bus.queueWithSessions();
            bus.sendInSession(name, "a", "1", "2");
            try (ServiceBusReceiverClient session = bus.clients().sessionReceiver()
                    .queueName(name).receiveMode(ServiceBusReceiveMode.RECEIVE_AND_DELETE).buildClient()
                    .acceptSession("a")) {
                equal(List.of("1", "2"), bodies(receive(session, 2)));
            }
            equal(0, count(name, "active"));
        });
        check("a message of a session is deferred, and received by its number", bus -> {
            String name = bus.queueWithSessions();
            bus.sendInSession(name, "a", "1", "2");
            ServiceBusReceiverClient session = bus.session(name, "a");
            ServiceBusReceivedMessage message = receive(session);
            session.defer(message);
            equal(List.of("2"), bodies(receive(session, 1)));
            session.complete(session.receiveDeferredMessage(message.getSequenceNumber()));
            equal(0, count(name, "deferred"));
        });
        check("a message of a session is dead-lettered", bus -> {
            String name = bus.queueWithSessions();
            bus.sendInSession(name, "a", "1");
            ServiceBusReceiverClient session = bus.session(name, "a");
            session.deadLetter(receive(session));
            ServiceBusReceivedMessage dead = receive(bus.deadLetters(name));
            equal("a", dead.getSessionId());
        });
        check("a session's state is read as it was set, and cleared", bus -> {
            String name = bus.queueWithSessions();
            ServiceBusReceiverClient session = bus.session(name, "a");
            equal(null, session.getSessionState());
            session.setSessionState(new byte[] {1, 2, (byte) 255});
            equal(List.of((byte) 1, (byte) 2, (byte) 255), boxed(session.getSessionState()));
            session.close();
            try (Bus other = bus.apart()) {
                ServiceBusReceiverClient next = other.session(name, "a");
                equal(3, next.getSessionState().length);
                next.setSessionState(null);
                equal(null, next.getSessionState());
            }
        });
        check("renewing a session's lock moves its end", bus -> {
            String name = bus.queueWithSessions();
            ServiceBusReceiverClient session = bus.session(name, "a");
            OffsetDateTime until = session.renewSessionLock();
            that(until.isAfter(OffsetDateTime.now().plusSeconds(20)), until);
        });
        check("a lost session lock fails what is done with it", bus -> {
            String name = bus.queueWithSessions();
            bus.sendInSession(name, "a", "1");
            ServiceBusReceiverClient session = bus.session(name, "a");
            ServiceBusReceivedMessage message = receive(session);
            inject("expire-locks", name, 1);
            // If the link's end arrives while the client waits for the answer, it has no reason for its error.
            ServiceBusException error = Checks.fails(ServiceBusException.class, () -> session.complete(message));
            ServiceBusFailureReason reason = error.getReason();
            that(
                reason == ServiceBusFailureReason.SESSION_LOCK_LOST
                    || (reason == ServiceBusFailureReason.GENERAL_ERROR && error.getMessage().contains("link closure")),
                error
            );
            try (Bus other = bus.apart()) {
                equal("1", receive(other.session(name, "a")).getBody().toString());
            }
        });
        check("a session's receiver peeks its session only", bus -> {
            String name = bus.queueWithSessions();
            bus.sendInSession(name, "a", "1");
            bus.sendInSession(name, "b", "2");
            equal(List.of("2"), bodies(bus.session(name, "b").peekMessages(10).stream().toList()));
        });
        check("the session processor receives every session in order, one message at a time", bus -> {
            String name = bus.queueWithSessions();
            for (String session : List.of("a", "b", "c", "d", "e")) {
                bus.sendInSession(name, session, "1", "2", "3");
            }
            Map<String, List<String>> found = new ConcurrentHashMap<>();
            List<Throwable> errors = Collections.synchronizedList(new ArrayList<>());
            ServiceBusProcessorClient processor = bus.clients().sessionProcessor()
                .queueName(name)
                .maxConcurrentSessions(2)
                .sessionIdleTimeout(Duration.ofMillis(300))
                .processMessage(context -> found
                    .computeIfAbsent(context.getMessage().getSessionId(), id -> Collections.synchronizedList(new ArrayList<>()))
                    .add(context.getMessage().getBody().toString()))
                .processError(context -> errors.add(context.getException()))
                .buildProcessorClient();
            processor.start();
            eventually(() -> count(name, "completed") == 15);
            processor.close();
            equal(Set.of("a", "b", "c", "d", "e"), found.keySet());
            found.values().forEach(bodies -> equal(List.of("1", "2", "3"), bodies));
            equal(List.of(), errors);
        });
        check("the session processor abandons a message whose handler throws, and gets it again", bus -> {
            String name = bus.queueWithSessions();
            bus.sendInSession(name, "a", "1", "2");
            List<String> found = Collections.synchronizedList(new ArrayList<>());
            ServiceBusProcessorClient processor = bus.clients().sessionProcessor()
                .queueName(name)
                .processMessage(context -> {
                    found.add(context.getMessage().getBody() + "/" + context.getMessage().getDeliveryCount());
                    if (found.size() == 1) {
                        throw new IllegalStateException("once");
                    }
                })
                .processError(context -> {})
                .buildProcessorClient();
            processor.start();
            eventually(() -> count(name, "completed") == 2);
            processor.close();
            equal("1/0", found.get(0));
            that(found.contains("1/1") && found.contains("2/0"), found);
        });
    }

    private static List<Byte> boxed(byte[] bytes) {
        List<Byte> found = new ArrayList<>();
        for (byte value : bytes) {
            found.add(value);
        }
        return found;
    }
}
