package main

import (
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"outbox.emulators/checks"
)

func (own *store) execute(batch azcosmos.TransactionalBatch) (bool, []int32) {
	response, err := own.container.ExecuteTransactionalBatch(own.ctx, batch, nil)
	checks.Must(err)
	var statuses []int32
	for _, result := range response.OperationResults {
		statuses = append(statuses, result.StatusCode)
	}
	return response.Success, statuses
}

// addBatches adds checks of transactional batches.
func addBatches() {
	check("a batch runs every kind of operation", func(own *store) {
		own.create("old", "k", 1)
		own.create("gone", "k", 1)
		batch := own.container.NewTransactionalBatch(key("k"))
		batch.CreateItem(encoded(item{ID: "new", Key: "k", N: 2}), nil)
		batch.UpsertItem(encoded(item{ID: "upserted", Key: "k", N: 3}), nil)
		batch.ReplaceItem("old", encoded(item{ID: "old", Key: "k", N: 4}), nil)
		batch.ReadItem("old", nil)
		var patch azcosmos.PatchOperations
		patch.AppendIncrement("/n", 5)
		batch.PatchItem("new", patch, nil)
		batch.DeleteItem("gone", nil)
		response, err := own.container.ExecuteTransactionalBatch(own.ctx, batch, nil)
		checks.Must(err)
		var statuses []int32
		for _, result := range response.OperationResults {
			statuses = append(statuses, result.StatusCode)
		}
		checks.That(response.Success, statuses)
		checks.Equal([]int32{201, 201, 200, 200, 200, 204}, statuses)
		read := decoded[item](response.OperationResults[3].ResourceBody)
		checks.Equal([]any{4, string(response.OperationResults[3].ETag)}, []any{read.N, read.ETag})
		own.tokens["k"] = &response.SessionToken
		found, err := own.read("new", "k")
		checks.Must(err)
		checks.Equal(7, found.N)
	})
	check("a batch with a failure does nothing", func(own *store) {
		own.create("there", "k", 1)
		batch := own.container.NewTransactionalBatch(key("k"))
		batch.CreateItem(encoded(item{ID: "new", Key: "k"}), nil)
		batch.CreateItem(encoded(item{ID: "there", Key: "k"}), nil)
		done, statuses := own.execute(batch)
		checks.That(!done, statuses)
		checks.Equal([]int32{424, 409}, statuses)
		_, err := own.read("new", "k")
		fails(404, err)
	})
	check("a batch with a stale ETag does nothing", func(own *store) {
		etag := own.create("a", "k", 1).ETag
		_, err := own.container.UpsertItem(own.ctx, key("k"), encoded(item{ID: "a", Key: "k", N: 2}), nil)
		checks.Must(err)
		batch := own.container.NewTransactionalBatch(key("k"))
		batch.CreateItem(encoded(item{ID: "new", Key: "k"}), nil)
		batch.ReplaceItem("a", encoded(item{ID: "a", Key: "k", N: 3}), &azcosmos.TransactionalBatchItemOptions{IfMatchETag: &etag})
		_, statuses := own.execute(batch)
		checks.Equal([]int32{424, 412}, statuses)
	})
}
