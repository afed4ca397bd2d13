package main

import (
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"outbox.emulators/checks"
)

// addSettling adds checks of complete, abandon, defer and dead-letter, and of peeking.
func addSettling() {
	check("a completed message is gone", func(own *bus) {
		name := own.plainQueue()
		own.send(name, message("x"))
		receiver := own.receiver(name)
		checks.Must(receiver.CompleteMessage(own.ctx, own.receiveOne(receiver), nil))
		checks.Equal([]int{0, 0, 1}, []int{count(name, "active"), count(name, "locked"), count(name, "completed")})
	})
	check("an abandoned message comes again, with one more delivery", func(own *bus) {
		name := own.plainQueue()
		own.send(name, message("x"))
		receiver := own.receiver(name)
		for times := range 3 {
			found := own.receiveOne(receiver)
			checks.Equal(uint32(times+1), found.DeliveryCount)
			checks.Must(receiver.AbandonMessage(own.ctx, found, nil))
		}
	})
	check("abandoning changes application properties", func(own *bus) {
		name := own.plainQueue()
		own.send(name, &azservicebus.Message{ApplicationProperties: map[string]any{"kept": int64(1), "changed": "old"}})
		receiver := own.receiver(name)
		changes := map[string]any{"changed": "new", "added": int64(7), "whole": int32(8), "yes": true}
		checks.Must(receiver.AbandonMessage(own.ctx, own.receiveOne(receiver),
			&azservicebus.AbandonMessageOptions{PropertiesToModify: changes}))
		changes["kept"] = int64(1)
		checks.Equal(changes, own.receiveOne(receiver).ApplicationProperties)
	})
	check("a deferred message is received by its number only", func(own *bus) {
		name := own.plainQueue()
		own.send(name, message("x"))
		receiver := own.receiver(name)
		found := own.receiveOne(receiver)
		checks.Must(receiver.DeferMessage(own.ctx, found,
			&azservicebus.DeferMessageOptions{PropertiesToModify: map[string]any{"why": "later"}}))
		checks.Equal([]string{}, own.remaining(receiver))
		again, err := receiver.ReceiveDeferredMessages(own.ctx, []int64{*found.SequenceNumber}, nil)
		checks.Must(err)
		checks.Equal(azservicebus.MessageStateDeferred, again[0].State)
		checks.Equal(map[string]any{"why": "later"}, again[0].ApplicationProperties)
		checks.Must(receiver.CompleteMessage(own.ctx, again[0], nil))
		checks.Equal(0, count(name, "deferred"))
	})
	check("a deferred message that is not there is an error", func(own *bus) {
		_, err := own.receiver(own.plainQueue()).ReceiveDeferredMessages(own.ctx, []int64{99}, nil)
		checks.That(err != nil, "no error")
	})
	check("a message is dead-lettered with reason, description and properties", func(own *bus) {
		name := own.plainQueue()
		own.send(name, message("x"))
		receiver := own.receiver(name)
		checks.Must(receiver.DeadLetterMessage(own.ctx, own.receiveOne(receiver), &azservicebus.DeadLetterOptions{
			Reason:             to.Ptr("why"),
			ErrorDescription:   to.Ptr("how"),
			PropertiesToModify: map[string]any{"added": int64(7)},
		}))
		dead := own.deadLetters(name)
		found := own.receiveOne(dead)
		checks.Equal([]any{"x", "why", "how", int64(7)}, []any{string(found.Body), *found.DeadLetterReason,
			*found.DeadLetterErrorDescription, found.ApplicationProperties["added"]})
		checks.Must(dead.CompleteMessage(own.ctx, found, nil))
		checks.Equal(0, count(name, "dead_letter"))
	})
	check("too many deliveries dead-letter a message", func(own *bus) {
		name := own.queue(admin.QueueProperties{MaxDeliveryCount: to.Ptr(int32(2))})
		own.send(name, message("x"))
		receiver := own.receiver(name)
		for range 2 {
			checks.Must(receiver.AbandonMessage(own.ctx, own.receiveOne(receiver), nil))
		}
		checks.Equal("MaxDeliveryCountExceeded", *own.receiveOne(own.deadLetters(name)).DeadLetterReason)
	})
	check("an expired message is dead-lettered where the queue asks for it", func(own *bus) {
		name := own.queue(admin.QueueProperties{DeadLetteringOnMessageExpiration: to.Ptr(true)})
		own.send(name, &azservicebus.Message{Body: []byte("x"), TimeToLive: to.Ptr(50 * time.Millisecond)})
		checks.Equal("TTLExpiredException", *own.receiveOne(own.deadLetters(name)).DeadLetterReason)
	})
	check("what is done with an expired lock fails", func(own *bus) {
		name := own.plainQueue()
		own.send(name, message("x"))
		receiver := own.receiver(name)
		found := own.receiveOne(receiver)
		inject("expire-locks", name, 1)
		fails(azservicebus.CodeLockLost, receiver.CompleteMessage(own.ctx, found, nil))
		fails(azservicebus.CodeLockLost, receiver.RenewMessageLock(own.ctx, found, nil))
	})
	check("renewing a lock moves its end", func(own *bus) {
		name := own.plainQueue()
		own.send(name, message("x"))
		receiver := own.receiver(name)
		found := own.receiveOne(receiver)
		checks.Must(receiver.RenewMessageLock(own.ctx, found, nil))
		checks.That(found.LockedUntil.After(time.Now().Add(20*time.Second)), found.LockedUntil)
	})
	check("a message is completed after its receiver was closed", func(own *bus) {
		name := own.plainQueue()
		own.send(name, message("x"))
		receiver := own.receiver(name)
		found := own.receiveOne(receiver)
		checks.Must(receiver.Close(own.ctx))
		checks.Must(own.receiver(name).CompleteMessage(own.ctx, found, nil))
		checks.Equal(1, count(name, "completed"))
	})
	check("a message is completed by its lock token alone", func(own *bus) {
		name := own.plainQueue()
		own.send(name, message("x"))
		token := own.receiveOne(own.receiver(name)).LockToken
		checks.Must(own.receiver(name).CompleteMessage(own.ctx, &azservicebus.ReceivedMessage{LockToken: token}, nil))
		checks.Equal(1, count(name, "completed"))
	})
	check("peeking neither locks nor counts a delivery, and goes on where it stopped", func(own *bus) {
		name := own.plainQueue()
		own.send(name, message("1"), message("2"), message("3"))
		receiver := own.receiver(name)
		for _, wanted := range [][]string{{"1", "2"}, {"3"}, {}} {
			found, err := receiver.PeekMessages(own.ctx, 2, nil)
			checks.Must(err)
			checks.Equal(wanted, bodies(found))
		}
		found, err := receiver.PeekMessages(own.ctx, 2, &azservicebus.PeekMessagesOptions{FromSequenceNumber: to.Ptr(int64(2))})
		checks.Must(err)
		checks.Equal([]string{"2", "3"}, bodies(found))
		checks.Equal(uint32(1), own.receiveOne(receiver).DeliveryCount)
	})
}
