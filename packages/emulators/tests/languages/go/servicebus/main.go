// Checks of Service Bus with Microsoft's client for Go: each expects what the service does.
//
// SERVICEBUS, SECURE and HTTPS are connection strings for AMQP, AMQP with TLS, and HTTPS; ADMIN is the address of the
// emulator's own HTTP endpoint. An argument limits the checks to those with these words in their names.
package main

import (
	"context"

	"outbox.emulators/checks"
)

func check(name string, body func(*bus)) {
	checks.Add(name, func(ctx context.Context) {
		own := newBus(ctx)
		defer own.close()
		body(own)
	})
}

func main() {
	addConnecting()
	addSessions()
	addSending()
	addSettling()
	addManagement()
	checks.Main()
}
