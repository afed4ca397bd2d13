package main

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"outbox.emulators/checks"
)

// addSessions adds checks of who has a session, and in which order its messages come.
func addSessions() {
	check("a session is accepted by its id", func(own *bus) {
		name := own.queueWithSessions()
		own.send(name, append(inSession("a", "1"), inSession("b", "2")...)...)
		session := own.session(name, "b")
		checks.Equal("b", session.SessionID())
		found := own.receiveOne(session)
		checks.Equal([]string{"2", "b"}, []string{string(found.Body), *found.SessionID})
		checks.Must(session.CompleteMessage(own.ctx, found, nil))
		checks.Equal(1, count(name, "completed"))
		checks.Equal([]string{}, own.remaining(session))
	})
	check("the next session is one that has messages", func(own *bus) {
		name := own.queueWithSessions()
		own.send(name, inSession("only", "1")...)
		session := own.nextSession(name)
		checks.Equal("only", session.SessionID())
		checks.Equal([]string{"1"}, bodies(own.receive(session, 1)))
	})
	check("the next session is never one that is locked", func(own *bus) {
		name := own.queueWithSessions()
		own.send(name, append(inSession("a", "1"), inSession("b", "2")...)...)
		found := []string{own.nextSession(name).SessionID(), own.nextSession(name).SessionID()}
		sort.Strings(found)
		checks.Equal([]string{"a", "b"}, found)
	})
	check("waiting for a next session ends with a timeout", func(own *bus) {
		name := own.queueWithSessions()
		ctx, cancel := context.WithTimeout(own.ctx, 3*time.Second)
		defer cancel()
		_, err := own.client.AcceptNextSessionForQueue(ctx, name, nil)
		// Whichever is first: the answer of the emulator, or the end of the context.
		if !errors.Is(err, context.DeadlineExceeded) {
			fails(azservicebus.CodeTimeout, err)
		}
	})
	check("a locked session cannot be accepted", func(own *bus) {
		name := own.queueWithSessions()
		own.session(name, "a")
		_, err := own.client.AcceptSessionForQueue(own.ctx, name, "a", nil)
		checks.That(err != nil, "a second receiver of the session")
	})
	check("a closed session can be accepted again, with what was not completed", func(own *bus) {
		name := own.queueWithSessions()
		own.send(name, inSession("a", "1", "2")...)
		first := own.session(name, "a")
		checks.Must(first.CompleteMessage(own.ctx, own.receiveOne(first), nil))
		checks.Must(first.Close(own.ctx))
		checks.Equal([]string{"2"}, bodies(own.receive(own.session(name, "a"), 1)))
	})
	check("a session's messages come in order", func(own *bus) {
		name := own.queueWithSessions()
		var numbers []string
		for number := range 30 {
			numbers = append(numbers, fmt.Sprint(number))
		}
		own.send(name, inSession("a", numbers...)...)
		checks.Equal(numbers, bodies(own.receive(own.session(name, "a"), 30)))
	})
	check("an abandoned message is the next of its session", func(own *bus) {
		name := own.queueWithSessions()
		own.send(name, inSession("a", "1", "2")...)
		session := own.session(name, "a")
		checks.Must(session.AbandonMessage(own.ctx, own.receiveOne(session), nil))
		found := own.receive(session, 2)
		checks.Equal([]string{"1", "2"}, bodies(found))
		checks.Equal([]uint32{2, 1}, []uint32{found[0].DeliveryCount, found[1].DeliveryCount})
	})
	check("a deferred message of a session is not received, as the client names no session", func(own *bus) {
		name := own.queueWithSessions()
		own.send(name, inSession("a", "1")...)
		session := own.session(name, "a")
		found := own.receiveOne(session)
		checks.Must(session.DeferMessage(own.ctx, found, nil))
		checks.Equal(1, count(name, "deferred"))
		_, err := session.ReceiveDeferredMessages(own.ctx, []int64{*found.SequenceNumber}, nil)
		checks.That(err != nil && strings.Contains(err.Error(), "session-id"), err)
	})
	check("a message of a session is dead-lettered", func(own *bus) {
		name := own.queueWithSessions()
		own.send(name, inSession("a", "1")...)
		session := own.session(name, "a")
		checks.Must(session.DeadLetterMessage(own.ctx, own.receiveOne(session), nil))
		checks.Equal("a", *own.receiveOne(own.deadLetters(name)).SessionID)
	})
	check("a session's state is read as it was set, and cleared", func(own *bus) {
		name := own.queueWithSessions()
		session := own.session(name, "a")
		state, err := session.GetSessionState(own.ctx, nil)
		checks.Must(err)
		checks.Equal(0, len(state))
		checks.Must(session.SetSessionState(own.ctx, []byte{1, 2, 255}, nil))
		checks.Must(session.Close(own.ctx))
		next := own.session(name, "a")
		state, err = next.GetSessionState(own.ctx, nil)
		checks.Must(err)
		checks.Equal([]byte{1, 2, 255}, state)
		checks.Must(next.SetSessionState(own.ctx, nil, nil))
		state, err = next.GetSessionState(own.ctx, nil)
		checks.Must(err)
		checks.Equal(0, len(state))
	})
	check("renewing a session's lock moves its end", func(own *bus) {
		session := own.session(own.queueWithSessions(), "a")
		checks.Must(session.RenewSessionLock(own.ctx, nil))
		checks.That(session.LockedUntil().After(time.Now().Add(20*time.Second)), session.LockedUntil())
	})
	check("a lost session lock fails what is done with it", func(own *bus) {
		name := own.queueWithSessions()
		own.send(name, inSession("a", "1")...)
		session := own.session(name, "a")
		found := own.receiveOne(session)
		inject("expire-locks", name, 1)
		// The client accepts the session again and repeats this, with delays that no option changes.
		ctx, cancel := context.WithTimeout(own.ctx, time.Second)
		defer cancel()
		checks.That(session.CompleteMessage(ctx, found, nil) != nil, "it was completed")
		_ = session.Close(own.ctx)
		again := own.receiveOne(own.session(name, "a"))
		checks.Equal([]any{"1", uint32(2)}, []any{string(again.Body), again.DeliveryCount})
	})
	check("a session's receiver peeks every session, as the client names none", func(own *bus) {
		name := own.queueWithSessions()
		own.send(name, append(inSession("a", "1"), inSession("b", "2")...)...)
		found, err := own.session(name, "b").PeekMessages(own.ctx, 10, nil)
		checks.Must(err)
		checks.Equal([]string{"1", "2"}, bodies(found))
	})
	check("the sessions with messages are listed", func(own *bus) {
		name := own.queueWithSessions()
		own.send(name, append(inSession("a", "1"), inSession("b", "2")...)...)
		var found []string
		for pager := own.client.NewListSessionsForQueuePager(name, nil); pager.More(); {
			page, err := pager.NextPage(own.ctx)
			checks.Must(err)
			found = append(found, page.Sessions...)
		}
		sort.Strings(found)
		checks.Equal([]string{"a", "b"}, found)
	})
	check("a session of a subscription is accepted", func(own *bus) {
		topic := own.topic(admin.SubscriptionProperties{RequiresSession: to.Ptr(true)})
		own.send(topic, inSession("s", "x")...)
		session, err := own.client.AcceptNextSessionForSubscription(own.ctx, topic, "all", nil)
		checks.Must(err)
		checks.Equal("s", session.SessionID())
		checks.Must(session.CompleteMessage(own.ctx, own.receiveOne(session), nil))
	})
}
