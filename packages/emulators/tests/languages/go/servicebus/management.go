package main

import (
	"sort"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"outbox.emulators/checks"
)

func numbered(body string, number int64) *azservicebus.Message {
	return &azservicebus.Message{
		Body:                  []byte(body),
		Subject:               to.Ptr(body),
		ApplicationProperties: map[string]any{"sequence": number},
	}
}

func (own *bus) rule(topic string, options admin.CreateRuleOptions) {
	_, err := administration.CreateRule(own.ctx, topic, "all", &options)
	checks.Must(err)
}

func (own *bus) topicWithoutRules() string {
	topic := own.topic(admin.SubscriptionProperties{})
	_, err := administration.DeleteRule(own.ctx, topic, "all", "$Default", nil)
	checks.Must(err)
	return topic
}

// addManagement adds checks of topics with their rules, and of the administration of entities.
func addManagement() {
	check("a subscription gets what is sent to its topic", func(own *bus) {
		topic := own.topic(admin.SubscriptionProperties{})
		own.send(topic, message("x"))
		receiver := own.subscription(topic)
		checks.Must(receiver.CompleteMessage(own.ctx, own.receiveOne(receiver), nil))
	})
	check("an SQL filter compares a long", func(own *bus) {
		topic := own.topicWithoutRules()
		filter := &admin.SQLFilter{Expression: "sequence > @least", Parameters: map[string]any{"@least": int64(5)}}
		own.rule(topic, admin.CreateRuleOptions{Name: to.Ptr("large"), Filter: filter})
		own.send(topic, numbered("a", 5), numbered("b", 6))
		checks.Equal([]string{"b"}, bodies(own.receive(own.subscription(topic), 1)))
	})
	check("a correlation filter matches a long, and an action changes properties", func(own *bus) {
		topic := own.topicWithoutRules()
		own.rule(topic, admin.CreateRuleOptions{
			Name: to.Ptr("two"),
			Filter: &admin.CorrelationFilter{
				Subject: to.Ptr("b"), ApplicationProperties: map[string]any{"sequence": int64(2)},
			},
			Action: &admin.SQLAction{Expression: "SET added = sequence + 1"},
		})
		own.send(topic, numbered("a", 1), numbered("b", 2))
		found := own.receiveOne(own.subscription(topic))
		checks.Equal([]any{"b", int64(3)}, []any{string(found.Body), found.ApplicationProperties["added"]})
	})
	check("rules are read as they were made, changed and deleted", func(own *bus) {
		topic := own.topic(admin.SubscriptionProperties{})
		sql := &admin.SQLFilter{Expression: "sequence > @least", Parameters: map[string]any{"@least": int64(5)}}
		own.rule(topic, admin.CreateRuleOptions{Name: to.Ptr("sql"), Filter: sql})
		correlation := &admin.CorrelationFilter{
			CorrelationID: to.Ptr("c"), SessionID: to.Ptr("s"), ApplicationProperties: map[string]any{"kind": "two"},
		}
		own.rule(topic, admin.CreateRuleOptions{Name: to.Ptr("correlation"), Filter: correlation})
		found, err := administration.GetRule(own.ctx, topic, "all", "sql", nil)
		checks.Must(err)
		checks.Equal(sql, found.Filter)
		found, err = administration.GetRule(own.ctx, topic, "all", "correlation", nil)
		checks.Must(err)
		checks.Equal(correlation, found.Filter)
		_, err = administration.UpdateRule(own.ctx, topic, "all", admin.RuleProperties{
			Name: "sql", Filter: &admin.SQLFilter{Expression: "1 = 1"},
		})
		checks.Must(err)
		_, err = administration.DeleteRule(own.ctx, topic, "all", "$Default", nil)
		checks.Must(err)
		var names []string
		for pager := administration.NewListRulesPager(topic, "all", nil); pager.More(); {
			page, err := pager.NextPage(own.ctx)
			checks.Must(err)
			for _, rule := range page.Rules {
				names = append(names, rule.Name)
			}
		}
		sort.Strings(names)
		checks.Equal([]string{"correlation", "sql"}, names)
	})
	check("a rule with a wrong SQL expression is not made", func(own *bus) {
		topic := own.topic(admin.SubscriptionProperties{})
		_, err := administration.CreateRule(own.ctx, topic, "all",
			&admin.CreateRuleOptions{Name: to.Ptr("wrong"), Filter: &admin.SQLFilter{Expression: "a = = b"}})
		refused(400, err)
	})
	check("a queue is read as it was made, and changed", func(own *bus) {
		name := checks.Unique("queue")
		wanted := admin.QueueProperties{
			LockDuration:                        to.Ptr("PT45S"),
			MaxDeliveryCount:                    to.Ptr(int32(3)),
			DefaultMessageTimeToLive:            to.Ptr("PT2H"),
			RequiresDuplicateDetection:          to.Ptr(true),
			DuplicateDetectionHistoryTimeWindow: to.Ptr("PT5M"),
			DeadLetteringOnMessageExpiration:    to.Ptr(true),
			UserMetadata:                        to.Ptr("notes <&>"),
		}
		_, err := administration.CreateQueue(own.ctx, name, &admin.CreateQueueOptions{Properties: &wanted})
		checks.Must(err)
		found, err := administration.GetQueue(own.ctx, name, nil)
		checks.Must(err)
		checks.Equal(
			[]any{name, "PT45S", int32(3), "PT2H", true, "PT5M", true, "notes <&>"},
			[]any{found.QueueName, *found.LockDuration, *found.MaxDeliveryCount, *found.DefaultMessageTimeToLive,
				*found.RequiresDuplicateDetection, *found.DuplicateDetectionHistoryTimeWindow,
				*found.DeadLetteringOnMessageExpiration, *found.UserMetadata})
		properties := found.QueueProperties
		properties.MaxDeliveryCount = to.Ptr(int32(7))
		changed, err := administration.UpdateQueue(own.ctx, name, properties, nil)
		checks.Must(err)
		checks.Equal(int32(7), *changed.MaxDeliveryCount)
	})
	check("entities exist until they are deleted, and are made once only", func(own *bus) {
		queue := own.plainQueue()
		topic := own.topic(admin.SubscriptionProperties{})
		_, err := administration.CreateQueue(own.ctx, queue, nil)
		refused(409, err)
		_, err = administration.DeleteQueue(own.ctx, queue, nil)
		checks.Must(err)
		found, err := administration.GetQueue(own.ctx, queue, nil)
		checks.Must(err)
		checks.That(found == nil, "still there")
		_, err = administration.DeleteSubscription(own.ctx, topic, "all", nil)
		checks.Must(err)
		_, err = administration.DeleteTopic(own.ctx, topic, nil)
		checks.Must(err)
		_, err = administration.DeleteTopic(own.ctx, topic, nil)
		refused(404, err)
	})
	check("entities are listed", func(own *bus) {
		queue := own.plainQueue()
		topic := own.topic(admin.SubscriptionProperties{})
		listed := map[string]bool{}
		for pager := administration.NewListQueuesPager(nil); pager.More(); {
			page, err := pager.NextPage(own.ctx)
			checks.Must(err)
			for _, each := range page.Queues {
				listed[each.QueueName] = true
			}
		}
		for pager := administration.NewListTopicsPager(nil); pager.More(); {
			page, err := pager.NextPage(own.ctx)
			checks.Must(err)
			for _, each := range page.Topics {
				listed[each.TopicName] = true
			}
		}
		checks.That(listed[queue] && listed[topic], listed)
	})
	check("counts are shown", func(own *bus) {
		queue := own.plainQueue()
		own.send(queue, message("1"), message("2"))
		receiver := own.receiver(queue)
		checks.Must(receiver.DeadLetterMessage(own.ctx, own.receiveOne(receiver), nil))
		found, err := administration.GetQueueRuntimeProperties(own.ctx, queue, nil)
		checks.Must(err)
		checks.Equal([]any{int32(1), int32(1), int64(2)},
			[]any{found.ActiveMessageCount, found.DeadLetterMessageCount, found.TotalMessageCount})
		topic := own.topic(admin.SubscriptionProperties{})
		own.send(topic, message("x"))
		ofTopic, err := administration.GetTopicRuntimeProperties(own.ctx, topic, nil)
		checks.Must(err)
		checks.Equal(int32(1), ofTopic.SubscriptionCount)
		ofSubscription, err := administration.GetSubscriptionRuntimeProperties(own.ctx, topic, "all", nil)
		checks.Must(err)
		checks.Equal(int32(1), ofSubscription.ActiveMessageCount)
	})
	check("the namespace is described", func(own *bus) {
		found, err := administration.GetNamespaceProperties(own.ctx, nil)
		checks.Must(err)
		checks.That(found.Name != "", found)
	})
}
