package cosmos;

import static checks.Checks.ask;
import static checks.Checks.equal;
import static checks.Checks.unique;

import checks.Checks;
import com.azure.cosmos.ConsistencyLevel;
import com.azure.cosmos.CosmosAsyncClient;
import com.azure.cosmos.CosmosAsyncContainer;
import com.azure.cosmos.CosmosClient;
import com.azure.cosmos.CosmosClientBuilder;
import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.CosmosDatabase;
import com.azure.cosmos.CosmosException;
import com.azure.cosmos.models.CosmosChangeFeedRequestOptions;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.azure.cosmos.models.CosmosItemRequestOptions;
import com.azure.cosmos.models.CosmosQueryRequestOptions;
import com.azure.cosmos.models.FeedResponse;
import com.azure.cosmos.models.PartitionKey;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** What a check uses: a client, containers of its own, and the emulator's splits, merges and faults. */
final class Store {
    static final String ENDPOINT = setting("AccountEndpoint");
    static final CosmosClient CLIENT = builder().buildClient();
    static final CosmosAsyncClient ASYNC = builder().buildAsyncClient();
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final CosmosDatabase DATABASE = made();

    private Store() {}

    /** The body of a check that uses a container. */
    interface Body {
        void run(CosmosContainer container) throws Exception;
    }

    static void check(String name, Body body) {
        Checks.add(name, () -> body.run(container()));
    }

    private static String setting(String name) {
        String text = System.getenv("COSMOS");
        int start = text.indexOf(name + "=") + name.length() + 1;
        return text.substring(start, text.indexOf(';', start));
    }

    static CosmosClientBuilder builder() {
        return new CosmosClientBuilder()
            .endpoint(ENDPOINT)
            .key(setting("AccountKey"))
            .gatewayMode()
            .endpointDiscoveryEnabled(false)
            .consistencyLevel(ConsistencyLevel.SESSION)
            .contentResponseOnWriteEnabled(true);
    }

    private static CosmosDatabase made() {
        CLIENT.createDatabaseIfNotExists("java");
        return CLIENT.getDatabase("java");
    }

    static CosmosContainer container() {
        CosmosContainerProperties properties = new CosmosContainerProperties(unique("container"), "/pk");
        DATABASE.createContainer(properties);
        return DATABASE.getContainer(properties.getId());
    }

    static CosmosAsyncContainer async(CosmosContainer container) {
        return ASYNC.getDatabase("java").getContainer(container.getId());
    }

    static CosmosContainer of(CosmosClient client, CosmosContainer container) {
        return client.getDatabase("java").getContainer(container.getId());
    }

    static ObjectNode item(String id, String key, int number) {
        return JSON.createObjectNode().put("id", id).put("pk", key).put("n", number);
    }

    static PartitionKey key(String key) {
        return new PartitionKey(key);
    }

    static CosmosItemRequestOptions ifMatch(String etag) {
        return new CosmosItemRequestOptions().setIfMatchETag(etag);
    }

    /** Create the items i0, i1, … with as many partition keys as items. */
    static void fill(CosmosContainer container, int count) {
        fill(container, "i", count);
    }

    /** Create items with a prefix and a number as their ids, with as many partition keys as items. */
    static void fill(CosmosContainer container, String prefix, int count) {
        for (int n = 0; n < count; n++) {
            container.createItem(item(prefix + n, "k" + n, n));
        }
    }

    static List<String> ids(String prefix, int count) {
        List<String> found = new ArrayList<>();
        for (int n = 0; n < count; n++) {
            found.add(prefix + n);
        }
        return found.stream().sorted().toList();
    }

    static List<String> ids(List<JsonNode> items) {
        return items.stream().map(item -> item.get("id").asText()).toList();
    }

    static List<String> sorted(List<String> values) {
        return values.stream().sorted().toList();
    }

    static <T> List<T> query(CosmosContainer container, String query, Class<T> kind) {
        return container.queryItems(query, new CosmosQueryRequestOptions(), kind).stream().toList();
    }

    /** The changes up to the end of a feed, and the continuation there. */
    record Drained(List<JsonNode> changes, String continuation) {}

    static Drained drained(CosmosContainer container, CosmosChangeFeedRequestOptions options) {
        List<JsonNode> changes = new ArrayList<>();
        String continuation = null;
        for (FeedResponse<JsonNode> page : container.queryChangeFeed(options, JsonNode.class).iterableByPage()) {
            changes.addAll(page.getResults());
            continuation = page.getContinuationToken();
        }
        return new Drained(changes, continuation);
    }

    static CosmosException fails(int status, Checks.Body action) {
        CosmosException error = Checks.fails(CosmosException.class, action);
        if (error.getStatusCode() != status) {
            throw new AssertionError("expected " + status + ", but was " + error.getStatusCode(), error);
        }
        return error;
    }

    /** Split a physical partition. */
    static void split(CosmosContainer container, String range) throws Exception {
        ask("POST", ENDPOINT + "admin/split", Map.of("database", "java", "container", container.getId(), "range", range));
    }

    /** Split each physical partition of a new container. */
    static void splitAll(CosmosContainer container) throws Exception {
        for (int range = 0; range < 4; range++) {
            split(container, String.valueOf(range));
        }
    }

    /** Merge two physical partitions that are next to each other. */
    static void merge(CosmosContainer container, String first, String second) throws Exception {
        ask("POST", ENDPOINT + "admin/merge",
            Map.of("database", "java", "container", container.getId(), "ranges", List.of(first, second)));
    }

    /** Have the emulator fail as `kind` says, and return the path of the fault. */
    static String inject(String kind, String operation, CosmosContainer container, Map<String, ?> more) throws Exception {
        Map<String, Object> fault = new HashMap<>(more);
        fault.put("kind", kind);
        fault.put("match", Map.of("operation", operation, "container", container.getId()));
        return ENDPOINT + "admin/faults/" + ask("POST", ENDPOINT + "admin/faults", fault).get("id");
    }

    static void applied(int times, String fault) throws Exception {
        equal(times, ask("GET", fault, null).get("applied"));
    }
}
