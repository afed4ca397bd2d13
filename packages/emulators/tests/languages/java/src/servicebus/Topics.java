package servicebus;

import static checks.Checks.equal;
import static checks.Checks.fails;
import static checks.Checks.that;
import static checks.Checks.unique;
import static servicebus.Bus.ADMINISTRATION;
import static servicebus.Bus.bodies;
import static servicebus.Bus.check;
import static servicebus.Bus.receive;
import static servicebus.Bus.remaining;

import com.azure.core.exception.ResourceExistsException;
import com.azure.core.exception.ResourceNotFoundException;
import com.azure.core.exception.HttpResponseException;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusRuleManagerClient;
import com.azure.messaging.servicebus.administration.models.CorrelationRuleFilter;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import com.azure.messaging.servicebus.administration.models.CreateRuleOptions;
import com.azure.messaging.servicebus.administration.models.QueueProperties;
import com.azure.messaging.servicebus.administration.models.QueueRuntimeProperties;
import com.azure.messaging.servicebus.administration.models.RuleProperties;
import com.azure.messaging.servicebus.administration.models.SqlRuleAction;
import com.azure.messaging.servicebus.administration.models.SqlRuleFilter;
import com.azure.messaging.servicebus.administration.models.SubscriptionRuntimeProperties;
import com.azure.messaging.servicebus.administration.models.TopicRuntimeProperties;
import com.azure.messaging.servicebus.administration.models.TrueRuleFilter;
import java.time.Duration;
import java.util.List;
import java.util.Map;

/** Topics, their rules over AMQP and HTTPS, and the administration of entities. */
final class Topics {
    private Topics() {}

    private static ServiceBusMessage numbered(String body, long number) {
        ServiceBusMessage message = new ServiceBusMessage(body).setSubject("subject-" + number);
        message.getApplicationProperties().put("kind", number == 2 ? "two" : "other");
        message.getApplicationProperties().put("sequence", number);
        return message;
    }

    private static ServiceBusRuleManagerClient manager(Bus bus, String topic) {
        return bus.clients().ruleManager().topicName(topic).subscriptionName("all").buildClient();
    }

    static void add() {
        check("a subscription gets what is sent to its topic", bus -> {
            String topic = bus.topic(options -> {});
            bus.topicSender(topic).sendMessage(new ServiceBusMessage("x"));
            ServiceBusReceiverClient receiver = bus.subscription(topic);
            ServiceBusReceivedMessage message = receive(receiver);
            equal("x", message.getBody().toString());
            receiver.complete(message);
        });
        check("a subscription's sessions are received", bus -> {
            String topic = bus.topic(options -> options.setSessionRequired(true));
            bus.topicSender(topic).sendMessage(new ServiceBusMessage("x").setSessionId("s"));
            try (ServiceBusReceiverClient session = bus.clients().sessionReceiver()
                    .topicName(topic).subscriptionName("all").buildClient().acceptNextSession()) {
                equal("s", session.getSessionId());
                session.complete(receive(session));
            }
        });
        check("an SQL filter compares a long", bus -> {
            String topic = bus.topic(options -> {});
            ADMINISTRATION.deleteRule(topic, "all", "$Default");
            ADMINISTRATION.createRule(topic, "large", "all", new CreateRuleOptions(new SqlRuleFilter("sequence > 5")));
            bus.topicSender(topic).sendMessages(List.of(numbered("a", 5), numbered("b", 6)));
            equal(List.of("b"), bodies(receive(bus.subscription(topic), 1)));
        });
        check("a correlation filter matches properties, and an action changes them", bus -> {
            String topic = bus.topic(options -> {});
            ADMINISTRATION.deleteRule(topic, "all", "$Default");
            CorrelationRuleFilter filter = new CorrelationRuleFilter().setLabel("subject-2");
            filter.getProperties().put("kind", "two");
            ADMINISTRATION.createRule(topic, "two", "all", new CreateRuleOptions(filter)
                .setAction(new SqlRuleAction("SET added = sequence + 1")));
            bus.topicSender(topic).sendMessages(List.of(numbered("a", 1), numbered("b", 2)));
            ServiceBusReceivedMessage found = receive(bus.subscription(topic));
            equal("b", found.getBody().toString());
            equal(3L, found.getApplicationProperties().get("added"));
        });
        check("the administration client makes a string of a number to correlate with, which matches no number", bus -> {
            String topic = bus.topic(options -> {});
            ADMINISTRATION.deleteRule(topic, "all", "$Default");
            CorrelationRuleFilter filter = new CorrelationRuleFilter();
            filter.getProperties().put("sequence", 2L);
            ADMINISTRATION.createRule(topic, "two", "all", new CreateRuleOptions(filter));
            ServiceBusMessage text = new ServiceBusMessage("text");
            text.getApplicationProperties().put("sequence", "2");
            bus.topicSender(topic).sendMessages(List.of(numbered("number", 2), text));
            equal(List.of("text"), bodies(receive(bus.subscription(topic), 1)));
        });
        check("rules are read as they were made", bus -> {
            String topic = bus.topic(options -> {});
            SqlRuleFilter sql = new SqlRuleFilter("sequence > @least AND sys.Label = @label");
            sql.getParameters().put("@least", "5");
            sql.getParameters().put("@label", "x");
            ADMINISTRATION.createRule(topic, "sql", "all", new CreateRuleOptions(sql)
                .setAction(new SqlRuleAction("SET added = 1")));
            CorrelationRuleFilter correlation = new CorrelationRuleFilter("c").setLabel("l").setSessionId("s");
            correlation.getProperties().put("kind", "two");
            ADMINISTRATION.createRule(topic, "correlation", "all", new CreateRuleOptions(correlation));
            RuleProperties found = ADMINISTRATION.getRule(topic, "all", "sql");
            SqlRuleFilter filter = (SqlRuleFilter) found.getFilter();
            equal(sql.getSqlExpression(), filter.getSqlExpression());
            equal(Map.of("@least", "5", "@label", "x"), filter.getParameters());
            equal("SET added = 1", ((SqlRuleAction) found.getAction()).getSqlExpression());
            CorrelationRuleFilter other = (CorrelationRuleFilter) ADMINISTRATION.getRule(topic, "all", "correlation").getFilter();
            equal(List.of("c", "l", "s", Map.of("kind", "two")),
                List.of(other.getCorrelationId(), other.getLabel(), other.getSessionId(), other.getProperties()));
            equal(List.of("$Default", "correlation", "sql"),
                ADMINISTRATION.listRules(topic, "all").stream().map(RuleProperties::getName).sorted().toList());
        });
        check("a rule is changed and deleted", bus -> {
            String topic = bus.topic(options -> {});
            RuleProperties rule = ADMINISTRATION.getRule(topic, "all", "$Default");
            that(rule.getFilter() instanceof TrueRuleFilter, rule.getFilter());
            ADMINISTRATION.updateRule(topic, "all", rule.setFilter(new SqlRuleFilter("1 = 0")));
            bus.topicSender(topic).sendMessage(new ServiceBusMessage("x"));
            equal(List.of(), remaining(bus.subscription(topic)));
            ADMINISTRATION.deleteRule(topic, "all", "$Default");
            equal(0L, ADMINISTRATION.listRules(topic, "all").stream().count());
        });
        check("a rule with a wrong SQL expression is not made", bus -> {
            String topic = bus.topic(options -> {});
            HttpResponseException error = fails(HttpResponseException.class, () ->
                ADMINISTRATION.createRule(topic, "wrong", "all", new CreateRuleOptions(new SqlRuleFilter("a = = b"))));
            equal(400, error.getResponse().getStatusCode());
        });
        check("the rule manager adds, lists and deletes rules", bus -> {
            String topic = bus.topic(options -> {});
            try (ServiceBusRuleManagerClient manager = manager(bus, topic)) {
                manager.deleteRule("$Default");
                CorrelationRuleFilter filter = new CorrelationRuleFilter();
                filter.getProperties().put("sequence", 2L);
                manager.createRule("two", new CreateRuleOptions(filter));
                manager.createRule("large", new CreateRuleOptions(new SqlRuleFilter("sequence > 5"))
                    .setAction(new SqlRuleAction("SET large = true")));
                List<RuleProperties> rules = manager.listRules().stream().toList();
                equal(List.of("large", "two"), rules.stream().map(RuleProperties::getName).sorted().toList());
                for (RuleProperties rule : rules) {
                    if (rule.getName().equals("two")) {
                        equal(Map.of("sequence", "2"), ((CorrelationRuleFilter) rule.getFilter()).getProperties());
                    } else {
                        equal("SET large = true", ((SqlRuleAction) rule.getAction()).getSqlExpression());
                    }
                }
                bus.topicSender(topic).sendMessages(List.of(numbered("a", 1), numbered("b", 2), numbered("c", 6)));
                equal(List.of("b", "c"), bodies(receive(bus.subscription(topic), 2)));
            }
        });
        check("the rule manager adds no rule twice", bus -> {
            String topic = bus.topic(options -> {});
            try (ServiceBusRuleManagerClient manager = manager(bus, topic)) {
                Bus.fails(com.azure.messaging.servicebus.ServiceBusFailureReason.MESSAGING_ENTITY_ALREADY_EXISTS,
                    () -> manager.createRule("$Default", new CreateRuleOptions(new TrueRuleFilter())));
            }
        });
        check("a queue is read as it was made, and changed", bus -> {
            String name = unique("queue");
            QueueProperties made = ADMINISTRATION.createQueue(name, new CreateQueueOptions()
                .setLockDuration(Duration.ofSeconds(45))
                .setMaxDeliveryCount(3)
                .setDefaultMessageTimeToLive(Duration.ofHours(2))
                .setDuplicateDetectionRequired(true)
                .setDuplicateDetectionHistoryTimeWindow(Duration.ofMinutes(5))
                .setDeadLetteringOnMessageExpiration(true)
                .setUserMetadata("notes <&>"));
            for (QueueProperties found : List.of(made, ADMINISTRATION.getQueue(name))) {
                equal(
                    List.of(name, Duration.ofSeconds(45), 3, Duration.ofHours(2), true, Duration.ofMinutes(5), true, "notes <&>"),
                    List.of(found.getName(), found.getLockDuration(), found.getMaxDeliveryCount(),
                        found.getDefaultMessageTimeToLive(), found.isDuplicateDetectionRequired(),
                        found.getDuplicateDetectionHistoryTimeWindow(), found.isDeadLetteringOnMessageExpiration(),
                        found.getUserMetadata()));
            }
            equal(7, ADMINISTRATION.updateQueue(made.setMaxDeliveryCount(7)).getMaxDeliveryCount());
        });
        check("entities exist until they are deleted, and are made once only", bus -> {
            String queue = bus.queue();
            String topic = bus.topic(options -> {});
            fails(ResourceExistsException.class, () -> ADMINISTRATION.createQueue(queue));
            fails(ResourceExistsException.class, () -> ADMINISTRATION.createSubscription(topic, "all"));
            that(ADMINISTRATION.getQueueExists(queue) && ADMINISTRATION.getSubscriptionExists(topic, "all"), "not there");
            ADMINISTRATION.deleteQueue(queue);
            ADMINISTRATION.deleteSubscription(topic, "all");
            ADMINISTRATION.deleteTopic(topic);
            that(!ADMINISTRATION.getQueueExists(queue) && !ADMINISTRATION.getTopicExists(topic), "still there");
            fails(ResourceNotFoundException.class, () -> ADMINISTRATION.getQueue(queue));
            fails(ResourceNotFoundException.class, () -> ADMINISTRATION.deleteTopic(topic));
        });
        check("entities are listed", bus -> {
            String queue = bus.queue();
            String topic = bus.topic(options -> {});
            that(ADMINISTRATION.listQueues().stream().anyMatch(found -> found.getName().equals(queue)), queue);
            that(ADMINISTRATION.listTopics().stream().anyMatch(found -> found.getName().equals(topic)), topic);
            equal(List.of("all"),
                ADMINISTRATION.listSubscriptions(topic).stream().map(found -> found.getSubscriptionName()).toList());
        });
        check("counts are shown", bus -> {
            String queue = bus.queue();
            bus.send(queue, "1", "2");
            ServiceBusReceiverClient receiver = bus.receiver(queue);
            receiver.deadLetter(receive(receiver));
            QueueRuntimeProperties found = ADMINISTRATION.getQueueRuntimeProperties(queue);
            equal(List.of(1, 1, 0, 2L), List.of(found.getActiveMessageCount(), found.getDeadLetterMessageCount(),
                found.getScheduledMessageCount(), found.getTotalMessageCount()));
            String topic = bus.topic(options -> {});
            bus.topicSender(topic).sendMessage(new ServiceBusMessage("x"));
            TopicRuntimeProperties ofTopic = ADMINISTRATION.getTopicRuntimeProperties(topic);
            equal(1, ofTopic.getSubscriptionCount());
            SubscriptionRuntimeProperties all = ADMINISTRATION.getSubscriptionRuntimeProperties(topic, "all");
            equal(1, all.getActiveMessageCount());
        });
        check("the namespace is described", bus ->
            that(ADMINISTRATION.getNamespaceProperties().getName() != null, "no name"));
    }
}
