package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"outbox.emulators/checks"
)

func (own *bus) roundTrip(sent *azservicebus.Message) *azservicebus.ReceivedMessage {
	name := own.plainQueue()
	own.send(name, sent)
	return own.receiveOne(own.receiver(name))
}

// addSending adds checks that what is sent arrives as it was sent.
func addSending() {
	check("bytes are received as sent", func(own *bus) {
		checks.Equal([]byte{0, 255, 1, 254}, own.roundTrip(&azservicebus.Message{Body: []byte{0, 255, 1, 254}}).Body)
	})
	check("a value body keeps its type", func(own *bus) {
		name := own.plainQueue()
		body := azservicebus.AMQPAnnotatedMessageBody{Value: int64(42)}
		checks.Must(own.sender(name).SendAMQPAnnotatedMessage(own.ctx, &azservicebus.AMQPAnnotatedMessage{Body: body}, nil))
		checks.Equal(int64(42), own.receiveOne(own.receiver(name)).RawAMQPMessage.Body.Value)
	})
	check("a sequence body keeps its elements", func(own *bus) {
		name := own.plainQueue()
		body := azservicebus.AMQPAnnotatedMessageBody{Sequence: [][]any{{int64(1), "two", true}}}
		checks.Must(own.sender(name).SendAMQPAnnotatedMessage(own.ctx, &azservicebus.AMQPAnnotatedMessage{Body: body}, nil))
		checks.Equal(body.Sequence, own.receiveOne(own.receiver(name)).RawAMQPMessage.Body.Sequence)
	})
	check("every broker property is received as sent", func(own *bus) {
		found := own.roundTrip(&azservicebus.Message{
			Body:             []byte("x"),
			MessageID:        to.Ptr("id-1"),
			CorrelationID:    to.Ptr("correlation-1"),
			Subject:          to.Ptr("OrderPlaced"),
			ContentType:      to.Ptr("application/json"),
			To:               to.Ptr("somewhere"),
			ReplyTo:          to.Ptr("answers"),
			ReplyToSessionID: to.Ptr("session-2"),
			SessionID:        to.Ptr("session-1"),
			PartitionKey:     to.Ptr("session-1"),
			TimeToLive:       to.Ptr(time.Minute),
		})
		checks.Equal(
			[]any{"id-1", "correlation-1", "OrderPlaced", "application/json", "somewhere", "answers", "session-2",
				"session-1", "session-1", time.Minute},
			[]any{found.MessageID, *found.CorrelationID, *found.Subject, *found.ContentType, *found.To, *found.ReplyTo,
				*found.ReplyToSessionID, *found.SessionID, *found.PartitionKey, *found.TimeToLive})
	})
	check("application properties keep their AMQP types", func(own *bus) {
		sent := map[string]any{
			"bool": true, "int8": int8(-7), "uint8": uint8(7), "int16": int16(-8), "uint16": uint16(8), "int32": int32(-9),
			"uint32": uint32(9), "int64": int64(10), "uint64": uint64(11), "float32": float32(1.5), "float64": 2.5,
			"string": "Zoë", "large": int64(1) << 40, "bytes": []byte{1, 255},
			"time": time.UnixMilli(1_580_702_706_789).UTC(), "nothing": nil,
		}
		found := own.roundTrip(&azservicebus.Message{ApplicationProperties: sent}).ApplicationProperties
		found["time"] = found["time"].(time.Time).UTC()
		checks.Equal(sent, found)
	})
	check("a message has what the service adds", func(own *bus) {
		found := own.roundTrip(&azservicebus.Message{Body: []byte("x"), TimeToLive: to.Ptr(30 * time.Second)})
		checks.That(time.Since(*found.EnqueuedTime).Abs() < 20*time.Second, found.EnqueuedTime)
		checks.Equal(found.EnqueuedTime.Add(30*time.Second), *found.ExpiresAt)
		checks.Equal(int64(1), *found.SequenceNumber)
		checks.Equal(uint32(1), found.DeliveryCount)
		checks.Equal(azservicebus.MessageStateActive, found.State)
		checks.That(found.LockToken != [16]byte{}, found.LockToken)
		checks.That(found.LockedUntil.After(time.Now().Add(20*time.Second)), found.LockedUntil)
	})
	check("a batch is sent with what was added to it, in order", func(own *bus) {
		name := own.plainQueue()
		sender := own.sender(name)
		batch, err := sender.NewMessageBatch(own.ctx, nil)
		checks.Must(err)
		var numbers []string
		for number := range 20 {
			numbers = append(numbers, fmt.Sprint(number))
			checks.Must(batch.AddMessage(&azservicebus.Message{
				Body:                  []byte(fmt.Sprint(number)),
				ApplicationProperties: map[string]any{"sequence": int64(number)},
			}, nil))
		}
		checks.That(errors.Is(batch.AddMessage(&azservicebus.Message{Body: make([]byte, 300_000)}, nil), azservicebus.ErrMessageTooLarge), "added")
		checks.Equal(int32(20), batch.NumMessages())
		checks.Must(sender.SendMessageBatch(own.ctx, batch, nil))
		found := own.receive(own.receiver(name), 20)
		checks.Equal(numbers, bodies(found))
		checks.Equal(int64(19), found[19].ApplicationProperties["sequence"])
	})
	check("a message that is too large is refused", func(own *bus) {
		err := own.sender(own.plainQueue()).SendMessage(own.ctx, &azservicebus.Message{Body: make([]byte, 300_000)}, nil)
		checks.That(errors.Is(err, azservicebus.ErrMessageTooLarge), err)
	})
	check("a duplicate is dropped where duplicates are detected", func(own *bus) {
		name := own.queue(admin.QueueProperties{RequiresDuplicateDetection: to.Ptr(true)})
		for _, id := range []string{"a", "a", "b"} {
			own.send(name, &azservicebus.Message{Body: []byte(id), MessageID: to.Ptr(id)})
		}
		checks.Equal([]string{"a", "b"}, bodies(own.receive(own.receiver(name), 2)))
		checks.Equal(1, count(name, "duplicates_dropped"))
	})
	check("a queue with sessions refuses a message without a session", func(own *bus) {
		checks.That(own.sender(own.queueWithSessions()).SendMessage(own.ctx, message("x"), nil) != nil, "it was taken")
	})
	check("what is received and deleted is gone", func(own *bus) {
		name := own.plainQueue()
		own.send(name, message("x"))
		receiver := own.receiverWith(name, &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete})
		checks.Equal([]string{"x"}, bodies(own.receive(receiver, 1)))
		checks.Equal(0, count(name, "active"))
	})
	check("a scheduled message arrives at its time, in its session and with its properties", func(own *bus) {
		name := own.queueWithSessions()
		sent := inSession("s", "x")
		sent[0].ApplicationProperties = map[string]any{"sequence": int64(5)}
		_, err := own.sender(name).ScheduleMessages(own.ctx, sent, time.Now().Add(300*time.Millisecond), nil)
		checks.Must(err)
		session := own.nextSession(name)
		checks.Equal("s", session.SessionID())
		checks.Equal(int64(5), own.receiveOne(session).ApplicationProperties["sequence"])
	})
	check("scheduled messages are peeked with their state and time, and cancelled", func(own *bus) {
		name := own.plainQueue()
		sender := own.sender(name)
		at := time.Now().Add(time.Hour).Truncate(time.Second).UTC()
		numbers, err := sender.ScheduleMessages(own.ctx, []*azservicebus.Message{message("1"), message("2")}, at, nil)
		checks.Must(err)
		found, err := own.receiver(name).PeekMessages(own.ctx, 10, nil)
		checks.Must(err)
		checks.Equal(2, len(found))
		checks.Equal([]any{numbers[0], azservicebus.MessageStateScheduled, at},
			[]any{*found[0].SequenceNumber, found[0].State, found[0].ScheduledEnqueueTime.UTC()})
		checks.Must(sender.CancelScheduledMessages(own.ctx, numbers, nil))
		checks.Equal(0, count(name, "scheduled"))
	})
}
