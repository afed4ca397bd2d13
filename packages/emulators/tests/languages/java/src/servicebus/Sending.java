package servicebus;

import static checks.Checks.equal;
import static checks.Checks.that;
import static servicebus.Bus.bodies;
import static servicebus.Bus.check;
import static servicebus.Bus.count;
import static servicebus.Bus.fails;
import static servicebus.Bus.receive;
import static servicebus.Bus.remaining;

import com.azure.core.amqp.models.AmqpMessageBody;
import com.azure.core.amqp.models.AmqpMessageBodyType;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusMessageBatch;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.models.ServiceBusMessageState;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.Arrays;
import java.util.Date;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.UUID;
import java.util.stream.IntStream;

/** What is sent arrives as it was sent. */
final class Sending {
    private Sending() {}

    private static ServiceBusReceivedMessage roundTrip(Bus bus, ServiceBusMessage message) {
        String name = bus.queue();
        bus.send(name, message);
        return receive(bus.receiver(name));
    }

    static void add() {
        check("a string is received as sent", bus ->
            equal("Zoë ✓", roundTrip(bus, new ServiceBusMessage("Zoë ✓")).getBody().toString()));
        check("bytes are received as sent", bus -> {
            byte[] body = {0, -1, 1, -2};
            that(Arrays.equals(body, roundTrip(bus, new ServiceBusMessage(body)).getBody().toBytes()), "other bytes");
        });
        check("a value body keeps its type", bus -> {
            AmqpMessageBody body = AmqpMessageBody.fromValue(42L);
            AmqpMessageBody found = roundTrip(bus, new ServiceBusMessage(body)).getRawAmqpMessage().getBody();
            equal(AmqpMessageBodyType.VALUE, found.getBodyType());
            equal(42L, found.getValue());
        });
        check("a sequence body keeps its elements", bus -> {
            AmqpMessageBody body = AmqpMessageBody.fromSequence(List.of(1, "two", true));
            AmqpMessageBody found = roundTrip(bus, new ServiceBusMessage(body)).getRawAmqpMessage().getBody();
            equal(AmqpMessageBodyType.SEQUENCE, found.getBodyType());
            equal(List.of(1, "two", true), found.getSequence());
        });
        check("every broker property is received as sent", bus -> {
            ServiceBusReceivedMessage found = roundTrip(bus, new ServiceBusMessage("x")
                .setMessageId("id-1")
                .setCorrelationId("correlation-1")
                .setSubject("OrderPlaced")
                .setContentType("application/json")
                .setTo("somewhere")
                .setReplyTo("answers")
                .setReplyToSessionId("session-2")
                .setSessionId("session-1")
                .setPartitionKey("session-1")
                .setTimeToLive(Duration.ofMinutes(1)));
            equal(
                List.of("id-1", "correlation-1", "OrderPlaced", "application/json", "somewhere", "answers", "session-2",
                    "session-1", "session-1", Duration.ofMinutes(1)),
                List.of(found.getMessageId(), found.getCorrelationId(), found.getSubject(), found.getContentType(),
                    found.getTo(), found.getReplyTo(), found.getReplyToSessionId(), found.getSessionId(),
                    found.getPartitionKey(), found.getTimeToLive()));
        });
        check("application properties keep their AMQP types", bus -> {
            Map<String, Object> sent = new TreeMap<>(Map.of(
                "boolean", true, "byte", (byte) 7, "short", (short) 8, "int", 9, "long", 10L,
                "float", 1.5f, "double", 2.5, "char", 'ë', "uuid", UUID.fromString("01020304-0506-0708-090a-0b0c0d0e0f10"),
                "string", "Zoë"));
            sent.put("large", 1L << 40);
            sent.put("date", new Date(1_580_702_706_789L));
            ServiceBusMessage message = new ServiceBusMessage("x");
            message.getApplicationProperties().putAll(sent);
            equal(sent, new TreeMap<>(roundTrip(bus, message).getApplicationProperties()));
        });
        check("a message has what the service adds", bus -> {
            OffsetDateTime before = OffsetDateTime.now();
            ServiceBusReceivedMessage found = roundTrip(bus, new ServiceBusMessage("x").setTimeToLive(Duration.ofSeconds(30)));
            OffsetDateTime enqueued = found.getEnqueuedTime();
            that(Duration.between(before, enqueued).abs().compareTo(Duration.ofSeconds(20)) < 0, enqueued);
            equal(enqueued.plusSeconds(30), found.getExpiresAt());
            equal(1L, found.getSequenceNumber());
            equal(0L, found.getDeliveryCount());
            equal(ServiceBusMessageState.ACTIVE, found.getState());
            UUID.fromString(found.getLockToken());
            that(found.getLockedUntil().isAfter(before.plusSeconds(20)), found.getLockedUntil());
        });
        check("messages are sent as one batch, in order", bus -> {
            String name = bus.queue();
            List<String> numbers = IntStream.range(0, 20).mapToObj(String::valueOf).toList();
            bus.sender(name).sendMessages(numbers.stream()
                .map(body -> new ServiceBusMessage(body).setMessageId("m-" + body))
                .toList());
            List<ServiceBusReceivedMessage> found = receive(bus.receiver(name), 20);
            equal(numbers, bodies(found));
            equal("m-19", found.get(19).getMessageId());
        });
        check("a batch is sent with what was added to it", bus -> {
            String name = bus.queue();
            ServiceBusSenderClient sender = bus.sender(name);
            ServiceBusMessageBatch batch = sender.createMessageBatch();
            equal(256 * 1024, batch.getMaxSizeInBytes());
            for (String body : List.of("a", "b", "c")) {
                ServiceBusMessage message = new ServiceBusMessage(body);
                message.getApplicationProperties().put("sequence", (long) body.charAt(0));
                that(batch.tryAddMessage(message), body);
            }
            while (batch.tryAddMessage(new ServiceBusMessage(new byte[60_000]))) {
                that(batch.getSizeInBytes() <= batch.getMaxSizeInBytes(), batch.getSizeInBytes());
            }
            equal(7, batch.getCount());
            sender.sendMessages(batch);
            equal(
                List.of(97L, 98L, 99L),
                receive(bus.receiver(name), 7).stream()
                    .limit(3).map(message -> message.getApplicationProperties().get("sequence")).toList());
        });
        check("a message that is too large is refused", bus -> {
            String name = bus.queue();
            fails(ServiceBusFailureReason.MESSAGE_SIZE_EXCEEDED,
                () -> bus.send(name, new ServiceBusMessage(new byte[300_000])));
        });
        check("a duplicate is dropped where duplicates are detected", bus -> {
            String name = bus.queue(options -> options.setDuplicateDetectionRequired(true));
            bus.send(name, new ServiceBusMessage("first").setMessageId("a"), new ServiceBusMessage("second").setMessageId("a"),
                new ServiceBusMessage("b").setMessageId("b"));
            equal(List.of("first", "b"), bodies(receive(bus.receiver(name), 2)));
            equal(1, count(name, "duplicates_dropped"));
        });
        check("a queue with sessions refuses a message without a session", bus -> {
            String name = bus.queueWithSessions();
            RuntimeException error = checks.Checks.fails(RuntimeException.class, () -> bus.send(name, "x"));
            that(error.getMessage().contains("ession"), error);
        });
        check("a received message is sent again", bus -> {
            String name = bus.queue();
            ServiceBusMessage first = new ServiceBusMessage("x").setSubject("again");
            first.getApplicationProperties().put("sequence", 5L);
            bus.send(name, new ServiceBusMessage(roundTrip(bus, first)));
            ServiceBusReceivedMessage found = receive(bus.receiver(name));
            equal(List.of("x", "again", 5L), List.of(found.getBody().toString(), found.getSubject(),
                found.getApplicationProperties().get("sequence")));
        });
        check("what is received and deleted is gone", bus -> {
            String name = bus.queue();
            bus.send(name, "x");
            equal(List.of("x"), bodies(receive(bus.receiver(name,
                com.azure.messaging.servicebus.models.ServiceBusReceiveMode.RECEIVE_AND_DELETE,
                com.azure.messaging.servicebus.models.SubQueue.NONE), 1)));
            equal(0, count(name, "active"));
            equal(List.of(), remaining(bus.receiver(name)));
        });
    }
}
