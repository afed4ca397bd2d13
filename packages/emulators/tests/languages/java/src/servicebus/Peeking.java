package servicebus;

import static checks.Checks.equal;
import static checks.Checks.that;
import static servicebus.Bus.bodies;
import static servicebus.Bus.check;
import static servicebus.Bus.count;
import static servicebus.Bus.receive;
import static servicebus.Bus.remaining;

import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.models.ServiceBusMessageState;
import java.time.OffsetDateTime;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.List;

/** Peeking and scheduling, which are requests to the entity's management node. */
final class Peeking {
    private Peeking() {}

    static void add() {
        check("peeking neither locks nor counts a delivery", bus -> {
            String name = bus.queue();
            bus.send(name, "x");
            ServiceBusReceiverClient receiver = bus.receiver(name);
            equal("x", receiver.peekMessage(1).getBody().toString());
            equal(0L, receive(receiver).getDeliveryCount());
        });
        check("peeking goes on where it stopped", bus -> {
            String name = bus.queue();
            bus.send(name, "1", "2", "3");
            ServiceBusReceiverClient receiver = bus.receiver(name);
            equal(List.of("1", "2"), bodies(receiver.peekMessages(2).stream().toList()));
            equal(List.of("3"), bodies(receiver.peekMessages(2).stream().toList()));
            equal(List.of(), bodies(receiver.peekMessages(2).stream().toList()));
            equal(List.of("2", "3"), bodies(receiver.peekMessages(2, 2).stream().toList()));
        });
        check("an empty queue has nothing to peek", bus -> equal(null, bus.receiver(bus.queue()).peekMessage()));
        check("a scheduled message arrives at its time, in its session and with its properties", bus -> {
            String name = bus.queueWithSessions();
            ServiceBusMessage sent = new ServiceBusMessage("x").setSessionId("s");
            sent.getApplicationProperties().put("sequence", 5L);
            bus.sender(name).scheduleMessage(sent, OffsetDateTime.now().plusNanos(300_000_000));
            ServiceBusReceiverClient session = bus.nextSession(name);
            equal("s", session.getSessionId());
            equal(5L, receive(session).getApplicationProperties().get("sequence"));
        });
        check("scheduled messages are peeked with their state and time", bus -> {
            String name = bus.queue();
            OffsetDateTime time = OffsetDateTime.now().plusHours(1).truncatedTo(ChronoUnit.SECONDS);
            Long number = bus.sender(name).scheduleMessage(new ServiceBusMessage("x"), time);
            ServiceBusReceivedMessage found = bus.receiver(name).peekMessage();
            equal(number, found.getSequenceNumber());
            equal(ServiceBusMessageState.SCHEDULED, found.getState());
            equal(time.toInstant(), found.getScheduledEnqueueTime().toInstant());
            equal(List.of(), remaining(bus.receiver(name)));
        });
        check("scheduled messages are cancelled", bus -> {
            String name = bus.queue();
            ServiceBusSenderClient sender = bus.sender(name);
            OffsetDateTime time = OffsetDateTime.now().plusHours(1);
            Long one = sender.scheduleMessage(new ServiceBusMessage("1"), time);
            List<Long> others = new ArrayList<>();
            // It schedules when its numbers are read.
            sender.scheduleMessages(List.of(new ServiceBusMessage("2"), new ServiceBusMessage("3")), time).forEach(others::add);
            equal(3, count(name, "scheduled"));
            sender.cancelScheduledMessage(one);
            sender.cancelScheduledMessages(others);
            equal(0, count(name, "scheduled"));
        });
        check("a message is scheduled by its property too", bus -> {
            String name = bus.queue();
            bus.send(name, new ServiceBusMessage("x").setScheduledEnqueueTime(OffsetDateTime.now().plusHours(1)));
            equal(1, count(name, "scheduled"));
            that(bus.receiver(name).peekMessage().getScheduledEnqueueTime() != null, "no time");
        });
    }
}
