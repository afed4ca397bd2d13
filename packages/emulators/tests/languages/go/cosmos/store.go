package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"outbox.emulators/checks"
)

const database = "go"

var (
	endpoint = regexp.MustCompile(`AccountEndpoint=([^;]+)`).FindStringSubmatch(os.Getenv("COSMOS"))[1]
	client   = connect(os.Getenv("COSMOS"), nil)
	created  sync.Once
)

// store is a container of a check's own, partitioned by /pk.
//
// The client keeps no session tokens: a read that must see a write names the token of that.
type store struct {
	ctx       context.Context
	container *azcosmos.ContainerClient
	tokens    map[string]*string
}

type item struct {
	ID   string `json:"id"`
	Key  string `json:"pk"`
	N    int    `json:"n"`
	ETag string `json:"_etag,omitempty"`
}

func connect(connectionString string, options *azcosmos.ClientOptions) *azcosmos.Client {
	client, err := azcosmos.NewClientFromConnectionString(connectionString, options)
	checks.Must(err)
	return client
}

func newStore(ctx context.Context) *store {
	created.Do(func() {
		_, err := client.CreateDatabase(ctx, azcosmos.DatabaseProperties{ID: database}, nil)
		checks.Must(err)
	})
	parent, err := client.NewDatabase(database)
	checks.Must(err)
	name := checks.Unique("container")
	_, err = parent.CreateContainer(ctx, azcosmos.ContainerProperties{
		ID:                     name,
		PartitionKeyDefinition: azcosmos.PartitionKeyDefinition{Paths: []string{"/pk"}},
	}, nil)
	checks.Must(err)
	return (&store{ctx: ctx}).of(client, name)
}

// of returns the same container, or another, of a client.
func (own *store) of(client *azcosmos.Client, name string) *store {
	container, err := client.NewContainer(database, name)
	checks.Must(err)
	return &store{own.ctx, container, map[string]*string{}}
}

func key(name string) azcosmos.PartitionKey { return azcosmos.NewPartitionKeyString(name) }

func encoded(value any) []byte {
	text, err := json.Marshal(value)
	checks.Must(err)
	return text
}

func decoded[T any](text []byte) T {
	var value T
	checks.Must(json.Unmarshal(text, &value))
	return value
}

func (own *store) create(id, pk string, n int) azcosmos.ItemResponse {
	response, err := own.container.CreateItem(own.ctx, key(pk), encoded(item{ID: id, Key: pk, N: n}), nil)
	checks.Must(err)
	own.tokens[pk] = response.SessionToken
	return response
}

// fill creates the items i00, i01, … with as many partition keys as items.
func (own *store) fill(count int) {
	for n := range count {
		own.create(fmt.Sprintf("i%02d", n), fmt.Sprintf("k%02d", n), n)
	}
}

func ids(prefix string, count int) []string {
	var found []string
	for n := range count {
		found = append(found, fmt.Sprintf("%s%02d", prefix, n))
	}
	return found
}

func (own *store) read(id, pk string) (item, error) {
	response, err := own.container.ReadItem(own.ctx, key(pk), id, &azcosmos.ItemOptions{SessionToken: own.tokens[pk]})
	if err != nil {
		return item{}, err
	}
	return decoded[item](response.Value), nil
}

func (own *store) query(query string, pk azcosmos.PartitionKey, options *azcosmos.QueryOptions) ([][]byte, error) {
	var found [][]byte
	for pager := own.container.NewQueryItemsPager(query, pk, options); pager.More(); {
		page, err := pager.NextPage(own.ctx)
		if err != nil {
			return nil, err
		}
		found = append(found, page.Items...)
	}
	return found, nil
}

func named(items [][]byte) []string {
	found := []string{}
	for _, each := range items {
		found = append(found, decoded[item](each).ID)
	}
	return found
}

func sorted(values []string) []string {
	slices.Sort(values)
	return values
}

// fails expects an error with this status.
func fails(status int, err error) *azcore.ResponseError {
	var response *azcore.ResponseError
	if !errors.As(err, &response) || response.StatusCode != status {
		panic(fmt.Sprintf("expected %d, but was %T %v", status, err, err))
	}
	return response
}

// splitAll splits each physical partition of a new container.
func (own *store) splitAll() {
	for part := range 4 {
		checks.Ask("POST", endpoint+"admin/split", map[string]any{
			"database": database, "container": own.container.ID(), "range": fmt.Sprint(part),
		})
	}
}

// throttle answers this many requests of an operation with 429, and returns how many it has answered.
func (own *store) throttle(operation string, count int) func() int {
	return checks.Inject(endpoint+"admin/faults", map[string]any{
		"kind": "throttle", "count": count, "retry_after_ms": 5,
		"match": map[string]any{"operation": operation, "container": own.container.ID()},
	})
}
