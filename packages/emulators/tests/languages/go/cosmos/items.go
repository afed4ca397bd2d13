package main

import (
	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"outbox.emulators/checks"
)

// addItems adds checks of point operations.
func addItems() {
	check("an item is created and read as it was written", func(own *store) {
		options := &azcosmos.ItemOptions{EnableContentResponseOnWrite: true}
		sent := map[string]any{"id": "a", "pk": "k", "text": "Zoë ✓", "large": int64(1) << 40, "part": 1.5}
		response, err := own.container.CreateItem(own.ctx, key("k"), encoded(sent), options)
		checks.Must(err)
		checks.Equal(201, response.RawResponse.StatusCode)
		checks.That(response.RequestCharge > 0, response.RequestCharge)
		read, err := own.container.ReadItem(own.ctx, key("k"), "a", &azcosmos.ItemOptions{SessionToken: response.SessionToken})
		checks.Must(err)
		checks.Equal(string(response.Value), string(read.Value))
		found := decoded[map[string]any](read.Value)
		checks.Equal([]any{"Zoë ✓", float64(1 << 40), 1.5, string(response.ETag)},
			[]any{found["text"], found["large"], found["part"], found["_etag"]})
	})
	check("a write without content answers no item", func(own *store) {
		checks.Equal(0, len(own.create("a", "k", 1).Value))
	})
	check("an item is found with its partition key only", func(own *store) {
		own.create("a", "k", 1)
		_, err := own.read("a", "other")
		fails(404, err)
	})
	check("a second item of the same id is a conflict", func(own *store) {
		own.create("a", "k", 1)
		_, err := own.container.CreateItem(own.ctx, key("k"), encoded(item{ID: "a", Key: "k"}), nil)
		fails(409, err)
		own.create("a", "other", 2)
	})
	check("an item is replaced with its ETag, and not with an older one", func(own *store) {
		etag := own.create("a", "k", 1).ETag
		options := &azcosmos.ItemOptions{IfMatchEtag: &etag}
		response, err := own.container.ReplaceItem(own.ctx, key("k"), "a", encoded(item{ID: "a", Key: "k", N: 2}), options)
		checks.Must(err)
		own.tokens["k"] = response.SessionToken
		checks.That(response.ETag != etag, etag)
		_, err = own.container.ReplaceItem(own.ctx, key("k"), "a", encoded(item{ID: "a", Key: "k", N: 3}), options)
		fails(412, err)
		_, err = own.container.DeleteItem(own.ctx, key("k"), "a", options)
		fails(412, err)
		found, err := own.read("a", "k")
		checks.Must(err)
		checks.Equal(2, found.N)
		checks.Equal(response.ETag, azcore.ETag(found.ETag))
	})
	check("an upsert creates and replaces", func(own *store) {
		for _, status := range []int{201, 200} {
			response, err := own.container.UpsertItem(own.ctx, key("k"), encoded(item{ID: "a", Key: "k"}), nil)
			checks.Must(err)
			checks.Equal(status, response.RawResponse.StatusCode)
		}
	})
	check("a deleted item is gone", func(own *store) {
		own.create("a", "k", 1)
		response, err := own.container.DeleteItem(own.ctx, key("k"), "a", nil)
		checks.Must(err)
		checks.Equal(204, response.RawResponse.StatusCode)
		own.tokens["k"] = response.SessionToken
		_, err = own.read("a", "k")
		fails(404, err)
	})
	check("an item is patched", func(own *store) {
		own.create("a", "k", 1)
		var operations azcosmos.PatchOperations
		operations.AppendIncrement("/n", 4)
		operations.AppendSet("/text", "x")
		response, err := own.container.PatchItem(own.ctx, key("k"), "a", operations, nil)
		checks.Must(err)
		own.tokens["k"] = response.SessionToken
		operations = azcosmos.PatchOperations{}
		operations.SetCondition("from c where c.n = 1")
		operations.AppendSet("/n", 9)
		_, err = own.container.PatchItem(own.ctx, key("k"), "a", operations, nil)
		fails(412, err)
		found, err := own.read("a", "k")
		checks.Must(err)
		checks.Equal(5, found.N)
	})
	check("items are read and written as before after a split", func(own *store) {
		own.fill(10)
		own.splitAll()
		for n, id := range ids("i", 10) {
			found, err := own.read(id, ids("k", 10)[n])
			checks.Must(err)
			checks.Equal(n, found.N)
		}
		own.create("new", "k03", 0)
	})
	check("a container is read as it was made, and changed", func(own *store) {
		response, err := own.container.Read(own.ctx, nil)
		checks.Must(err)
		properties := *response.ContainerProperties
		checks.Equal([]string{"/pk"}, properties.PartitionKeyDefinition.Paths)
		seconds := int32(60)
		properties.DefaultTimeToLive = &seconds
		response, err = own.container.Replace(own.ctx, properties, nil)
		checks.Must(err)
		checks.Equal(seconds, *response.ContainerProperties.DefaultTimeToLive)
		throughput, err := own.container.ReadThroughput(own.ctx, nil)
		checks.Must(err)
		manual, _ := throughput.ThroughputProperties.ManualThroughput()
		checks.That(manual >= 400, manual)
	})
}
