package main

import (
	"fmt"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"outbox.emulators/checks"
)

// addQueries adds checks of queries. This client asks the gateway alone for queries across partitions.
func addQueries() {
	check("a query within a partition key finds its items alone", func(own *store) {
		for n := range 5 {
			own.create(fmt.Sprintf("i%d", n), "k", n)
		}
		own.create("x", "other", 9)
		options := &azcosmos.QueryOptions{QueryParameters: []azcosmos.QueryParameter{{Name: "@least", Value: 2}}}
		found, err := own.query("SELECT * FROM c WHERE c.n >= @least ORDER BY c.n DESC", key("k"), options)
		checks.Must(err)
		checks.Equal([]string{"i4", "i3", "i2"}, named(found))
	})
	check("a query within a partition key comes in pages", func(own *store) {
		for n := range 7 {
			own.create(fmt.Sprintf("i%02d", n), "k", n)
		}
		found, err := own.query("SELECT * FROM c ORDER BY c.n", key("k"), &azcosmos.QueryOptions{PageSizeHint: 3})
		checks.Must(err)
		checks.Equal(ids("i", 7), named(found))
	})
	check("an aggregate within a partition key is computed", func(own *store) {
		own.create("a", "k", 2)
		own.create("b", "k", 3)
		found, err := own.query("SELECT VALUE SUM(c.n) FROM c", key("k"), nil)
		checks.Must(err)
		checks.Equal(5.0, decoded[float64](found[0]))
	})
	check("a query finds every item of all partitions once", func(own *store) {
		own.fill(30)
		found, err := own.query("SELECT * FROM c WHERE c.n >= 0", azcosmos.NewPartitionKey(), nil)
		checks.Must(err)
		checks.Equal(ids("i", 30), sorted(named(found)))
	})
	check("a query of all partitions comes in pages, each item once", func(own *store) {
		own.fill(30)
		options := &azcosmos.QueryOptions{PageSizeHint: 4}
		found, err := own.query("SELECT * FROM c", azcosmos.NewPartitionKey(), options)
		checks.Must(err)
		checks.Equal(ids("i", 30), sorted(named(found)))
	})
	check("a query that the gateway cannot serve across partitions is 400", func(own *store) {
		own.fill(4)
		_, err := own.query("SELECT * FROM c ORDER BY c.n", azcosmos.NewPartitionKey(), nil)
		fails(400, err)
	})
	check("a query with a wrong expression is 400", func(own *store) {
		_, err := own.query("SELECT * FROM c WHERE", key("k"), nil)
		fails(400, err)
	})
}
