package main

import (
	"encoding/base64"
	"os"
	"regexp"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"outbox.emulators/checks"
)

// addFailures adds checks of what is refused, and of what the client repeats.
func addFailures() {
	check("throttled requests are repeated until they pass", func(own *store) {
		applied := own.throttle("create", 2)
		own.create("a", "k", 1)
		checks.Equal(2, applied())
	})
	check("a request that is throttled for good is 429 with 3200", func(own *store) {
		once := &azcosmos.ClientOptions{ClientOptions: azcore.ClientOptions{Retry: policy.RetryOptions{MaxRetries: -1}}}
		impatient := own.of(connect(os.Getenv("COSMOS"), once), own.container.ID())
		own.throttle("create", 1)
		_, err := impatient.container.CreateItem(own.ctx, key("k"), encoded(item{ID: "a", Key: "k"}), nil)
		header := fails(429, err).RawResponse.Header
		checks.Equal([]string{"3200", "5"}, []string{header.Get("x-ms-substatus"), header.Get("x-ms-retry-after-ms")})
	})
	check("a container that does not exist is 404", func(own *store) {
		_, err := own.of(client, "none").container.CreateItem(own.ctx, key("k"), encoded(item{ID: "a", Key: "k"}), nil)
		fails(404, err)
	})
	check("a wrong key is 401", func(own *store) {
		wrong := base64.StdEncoding.EncodeToString([]byte("another key"))
		text := regexp.MustCompile(`AccountKey=[^;]+`).ReplaceAllString(os.Getenv("COSMOS"), "AccountKey="+wrong)
		_, err := own.of(connect(text, nil), own.container.ID()).read("a", "k")
		// The client reads the account first, and makes text of that error.
		checks.That(err != nil && strings.Contains(err.Error(), "RESPONSE 401"), err)
	})
	check("an item of more than two megabytes is 413", func(own *store) {
		large := map[string]any{"id": "a", "pk": "k", "text": strings.Repeat("x", 2_100_000)}
		_, err := own.container.CreateItem(own.ctx, key("k"), encoded(large), nil)
		fails(413, err)
	})
}
