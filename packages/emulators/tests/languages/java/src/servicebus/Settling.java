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

import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusProcessorClient;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.models.AbandonOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.DeferOptions;
import com.azure.messaging.servicebus.models.ServiceBusMessageState;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.Collections;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** Complete, abandon, defer, dead-letter, and what delivery counts show of it. */
final class Settling {
    private Settling() {}

    static void add() {
        check("a completed message is gone", bus -> {
            String name = bus.queue();
            bus.send(name, "x");
            ServiceBusReceiverClient receiver = bus.receiver(name);
            receiver.complete(receive(receiver));
            equal(List.of(0, 0, 1), List.of(count(name, "active"), count(name, "locked"), count(name, "completed")));
        });
        check("an abandoned message comes again, with one more delivery", bus -> {
            String name = bus.queue();
            bus.send(name, "x");
            ServiceBusReceiverClient receiver = bus.receiver(name);
            for (long count = 0; count < 3; count++) {
                ServiceBusReceivedMessage message = receive(receiver);
                equal(count, message.getDeliveryCount());
                receiver.abandon(message);
            }
        });
        check("abandoning changes application properties", bus -> {
            String name = bus.queue();
            ServiceBusMessage sent = new ServiceBusMessage("x");
            sent.getApplicationProperties().putAll(Map.of("kept", 1L, "changed", "old"));
            bus.send(name, sent);
            ServiceBusReceiverClient receiver = bus.receiver(name);
            receiver.abandon(receive(receiver),
                new AbandonOptions().setPropertiesToModify(Map.of("changed", "new", "added", 7L, "whole", 8, "yes", true)));
            equal(Map.of("kept", 1L, "changed", "new", "added", 7L, "whole", 8, "yes", true),
                receive(receiver).getApplicationProperties());
        });
        check("a deferred message is received by its number only", bus -> {
            String name = bus.queue();
            bus.send(name, "x");
            ServiceBusReceiverClient receiver = bus.receiver(name);
            ServiceBusReceivedMessage message = receive(receiver);
            receiver.defer(message, new DeferOptions().setPropertiesToModify(Map.of("why", "later")));
            equal(List.of(), remaining(receiver));
            ServiceBusReceivedMessage again = receiver.receiveDeferredMessage(message.getSequenceNumber());
            equal(ServiceBusMessageState.DEFERRED, again.getState());
            equal(Map.of("why", "later"), again.getApplicationProperties());
            equal(1L, again.getDeliveryCount());
            receiver.complete(again);
            equal(0, count(name, "deferred"));
        });
        check("several deferred messages are received together", bus -> {
            String name = bus.queue();
            bus.send(name, "1", "2", "3");
            ServiceBusReceiverClient receiver = bus.receiver(name);
            List<ServiceBusReceivedMessage> messages = receive(receiver, 3);
            messages.forEach(receiver::defer);
            List<Long> numbers = messages.stream().map(ServiceBusReceivedMessage::getSequenceNumber).toList();
            equal(List.of("1", "2", "3"), bodies(receiver.receiveDeferredMessageBatch(numbers).stream().toList()));
        });
        check("a deferred message that is not there is not received", bus -> {
            ServiceBusReceiverClient receiver = bus.receiver(bus.queue());
            // The client takes the error 404 message-not-found for an empty answer.
            equal(0L, receiver.receiveDeferredMessageBatch(List.of(99L)).stream().count());
        });
        check("a message is dead-lettered with reason, description and properties", bus -> {
            String name = bus.queue();
            bus.send(name, "x");
            ServiceBusReceiverClient receiver = bus.receiver(name);
            receiver.deadLetter(receive(receiver), new DeadLetterOptions()
                .setDeadLetterReason("why")
                .setDeadLetterErrorDescription("how")
                .setPropertiesToModify(Map.of("added", 7L)));
            ServiceBusReceiverClient dead = bus.deadLetters(name);
            ServiceBusReceivedMessage found = receive(dead);
            equal(List.of("x", "why", "how", 7L), List.of(found.getBody().toString(), found.getDeadLetterReason(),
                found.getDeadLetterErrorDescription(), found.getApplicationProperties().get("added")));
            dead.complete(found);
            equal(0, count(name, "dead_letter"));
        });
        check("too many deliveries dead-letter a message", bus -> {
            String name = bus.queue(options -> options.setMaxDeliveryCount(2));
            bus.send(name, "x");
            ServiceBusReceiverClient receiver = bus.receiver(name);
            receiver.abandon(receive(receiver));
            receiver.abandon(receive(receiver));
            equal("MaxDeliveryCountExceeded", receive(bus.deadLetters(name)).getDeadLetterReason());
        });
        check("an expired message is dead-lettered where the queue asks for it", bus -> {
            String name = bus.queue(options -> options.setDeadLetteringOnMessageExpiration(true));
            bus.send(name, new ServiceBusMessage("x").setTimeToLive(Duration.ofMillis(50)));
            equal("TTLExpiredException", receive(bus.deadLetters(name)).getDeadLetterReason());
        });
        check("what is done with an expired lock fails", bus -> {
            String name = bus.queue();
            bus.send(name, "x");
            ServiceBusReceiverClient receiver = bus.receiver(name);
            ServiceBusReceivedMessage message = receive(receiver);
            inject("expire-locks", name, 1);
            fails(ServiceBusFailureReason.MESSAGE_LOCK_LOST, () -> receiver.complete(message));
            fails(ServiceBusFailureReason.MESSAGE_LOCK_LOST, () -> receiver.renewMessageLock(message));
        });
        check("renewing a lock moves its end", bus -> {
            String name = bus.queue();
            bus.send(name, "x");
            ServiceBusReceiverClient receiver = bus.receiver(name);
            OffsetDateTime until = receiver.renewMessageLock(receive(receiver));
            that(until.isAfter(OffsetDateTime.now().plusSeconds(20)), until);
        });
        check("a message is completed after its receiver was closed", bus -> {
            String name = bus.queue();
            bus.send(name, "x");
            ServiceBusReceiverClient receiver = bus.receiver(name);
            ServiceBusReceivedMessage message = receive(receiver);
            receiver.close();
            bus.receiver(name).complete(message);
            equal(1, count(name, "completed"));
        });
        check("the processor completes what its handler returns from, and abandons what it throws at", bus -> {
            String name = bus.queue();
            bus.send(name, "1", "2", "3");
            List<String> found = Collections.synchronizedList(new ArrayList<>());
            ServiceBusProcessorClient processor = bus.clients().processor()
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
            eventually(() -> count(name, "completed") == 3);
            processor.close();
            equal("1/0", found.get(0));
            that(found.contains("1/1"), found);
        });
    }
}
