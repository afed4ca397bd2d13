// Checks of Cosmos DB with Microsoft's client for Go: each expects what the service does.
//
// COSMOS is a connection string. An argument limits the checks to those with these words in their names.
package main

import (
	"context"

	"outbox.emulators/checks"
)

func check(name string, body func(*store)) {
	checks.Add(name, func(ctx context.Context) { body(newStore(ctx)) })
}

func main() {
	addItems()
	addBatches()
	addQueries()
	addFailures()
	checks.Main()
}
