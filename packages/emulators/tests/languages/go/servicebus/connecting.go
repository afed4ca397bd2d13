package main

import (
	"bytes"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"outbox.emulators/checks"
)

func (own *bus) exchange(client *azservicebus.Client) {
	own.client = client
	name := own.queueWithSessions()
	large := bytes.Repeat([]byte{7}, 200_000)
	own.send(name, append(inSession("s", "small"), &azservicebus.Message{Body: large, SessionID: to.Ptr("s")})...)
	session := own.nextSession(name)
	checks.Must(session.SetSessionState(own.ctx, []byte{1}, nil))
	found := own.receive(session, 2)
	for _, each := range found {
		checks.Must(session.CompleteMessage(own.ctx, each, nil))
	}
	checks.That(bytes.Equal(large, found[1].Body), "other bytes")
	checks.Equal(2, count(name, "completed"))
}

func (own *bus) detecting() string {
	return own.queue(admin.QueueProperties{RequiresDuplicateDetection: to.Ptr(true)})
}

func (own *bus) sendOnce(name string) {
	own.client = own.patient()
	own.send(name, &azservicebus.Message{Body: []byte("x"), MessageID: to.Ptr("m")})
}

// addConnecting adds checks of how the client connects, and of what it does when the network or the service fails.
func addConnecting() {
	check("messages pass with TLS", func(own *bus) { own.exchange(own.secured()) })
	check("messages pass over WebSockets", func(own *bus) { own.exchange(own.webSockets()) })
	check("a send is repeated when its acknowledgement is lost, and a duplicate dropped", func(own *bus) {
		name := own.detecting()
		applied := inject("cut-after-transfer", name, 1)
		own.sendOnce(name)
		checks.Equal(1, applied())
		checks.Equal(1, count(name, "active"))
		checks.That(count(name, "duplicates_dropped") >= 1, "none was dropped")
	})
	check("a throttled send is repeated", func(own *bus) {
		name := own.detecting()
		applied := inject("server-busy", name, 2)
		own.sendOnce(name)
		checks.Equal(2, applied())
		checks.Equal(1, count(name, "active"))
	})
	check("a detached link is opened again", func(own *bus) {
		name := own.detecting()
		applied := inject("detach-link", name, 1)
		own.sendOnce(name)
		checks.Equal(1, applied())
		checks.Equal(1, count(name, "active"))
	})
	check("a receiver goes on after its connection was cut", func(own *bus) {
		name := own.plainQueue()
		own.send(name, message("before"))
		own.client = own.patient()
		receiver := own.receiver(name)
		checks.Must(receiver.CompleteMessage(own.ctx, own.receiveOne(receiver), nil))
		inject("cut-receiver", name, 1)
		other := newBus(own.ctx)
		defer other.close()
		other.send(name, message("after"))
		checks.Equal([]string{"after"}, bodies(own.receive(receiver, 1)))
	})
	check("a queue that is not there is named", func(own *bus) {
		err := own.sender("no-such").SendMessage(own.ctx, message("x"), nil)
		fails(azservicebus.CodeNotFound, err)
		checks.That(strings.Contains(err.Error(), "no-such"), err)
		_, err = own.receiver("no-such").PeekMessages(own.ctx, 1, nil)
		fails(azservicebus.CodeNotFound, err)
	})
	check("a wrong key is refused", func(own *bus) {
		wrong := strings.Replace(plain, "SharedAccessKey=", "SharedAccessKey=no", 1)
		name := own.plainQueue()
		own.client = own.connect(wrong, nil)
		fails(azservicebus.CodeUnauthorizedAccess, own.sender(name).SendMessage(own.ctx, message("x"), nil))
		_, err := newAdministration(strings.Replace(https, "SharedAccessKey=", "SharedAccessKey=no", 1)).
			CreateQueue(own.ctx, "stranger", nil)
		refused(401, err)
	})
	check("a disabled queue takes nothing", func(own *bus) {
		name := own.queue(admin.QueueProperties{Status: to.Ptr(admin.EntityStatusSendDisabled)})
		checks.That(own.sender(name).SendMessage(own.ctx, message("x"), nil) != nil, "it was taken")
	})
}
