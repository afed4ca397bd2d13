package cosmos;

import static checks.Checks.equal;
import static checks.Checks.that;
import static cosmos.Store.applied;
import static cosmos.Store.builder;
import static cosmos.Store.check;
import static cosmos.Store.fails;
import static cosmos.Store.inject;
import static cosmos.Store.item;
import static cosmos.Store.key;

import com.azure.cosmos.CosmosClient;
import com.azure.cosmos.CosmosException;
import com.azure.cosmos.ThrottlingRetryOptions;
import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.Base64;
import java.util.Map;

/** What is refused, and what the client repeats. */
final class Failing {
    private Failing() {}

    static void add() {
        check("throttled requests are repeated until they pass", container -> {
            String fault = inject("throttle", "create", container, Map.of("count", 3, "retry_after_ms", 5));
            equal(201, container.createItem(item("a", "k", 1)).getStatusCode());
            applied(3, fault);
        });
        check("a request that is throttled for good is 429 with 3200", container -> {
            ThrottlingRetryOptions once = new ThrottlingRetryOptions().setMaxRetryAttemptsOnThrottledRequests(1);
            try (CosmosClient impatient = builder().throttlingRetryOptions(once).buildClient()) {
                inject("throttle", "create", container, Map.of("count", 2, "retry_after_ms", 5));
                CosmosException error = fails(429, () -> Store.of(impatient, container).createItem(item("a", "k", 1)));
                equal(3200, error.getSubStatusCode());
                equal(Duration.ofMillis(5), error.getRetryAfterDuration());
            }
        });
        check("a throttled query and feed are repeated", container -> {
            Store.fill(container, 3);
            inject("throttle", "query", container, Map.of("count", 2, "retry_after_ms", 5));
            equal(3, Store.query(container, "SELECT * FROM c", JsonNode.class).size());
        });
        check("a container that does not exist is 404", container ->
            fails(404, () -> Store.CLIENT.getDatabase("java").getContainer("none").createItem(item("a", "k", 1))));
        check("a wrong key is 401", container -> {
            String wrong = Base64.getEncoder().encodeToString("another key".getBytes());
            // The client reads the account first.
            RuntimeException error = checks.Checks.fails(RuntimeException.class, () -> builder().key(wrong).buildClient());
            equal(401, ((CosmosException) error.getCause()).getStatusCode());
        });
        check("direct mode is refused with what to set", container -> {
            try (CosmosClient direct = builder().directMode().buildClient()) {
                CosmosException error = checks.Checks.fails(CosmosException.class,
                    () -> Store.of(direct, container).readItem("a", key("k"), JsonNode.class));
                that(error.getMessage().contains("gateway mode"), error.getMessage());
            }
        });
        check("an item of more than two megabytes is 413", container ->
            fails(413, () -> container.createItem(item("a", "k", 1).put("text", "x".repeat(2_100_000)))));
    }
}
