package cosmos;

import static checks.Checks.equal;
import static checks.Checks.eventually;
import static checks.Checks.that;
import static cosmos.Store.check;
import static cosmos.Store.fails;
import static cosmos.Store.ifMatch;
import static cosmos.Store.item;
import static cosmos.Store.key;

import com.azure.cosmos.CosmosClient;
import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.CosmosException;
import com.azure.cosmos.models.CosmosBulkOperations;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.azure.cosmos.models.CosmosItemIdentity;
import com.azure.cosmos.models.CosmosItemRequestOptions;
import com.azure.cosmos.models.CosmosItemResponse;
import com.azure.cosmos.models.CosmosPatchOperations;
import com.azure.cosmos.models.PartitionKey;
import com.azure.cosmos.models.ThroughputProperties;
import com.fasterxml.jackson.databind.JsonNode;
import java.util.List;
import java.util.stream.IntStream;

/** Point operations, and what an item has. */
final class Items {
    private Items() {}

    static void add() {
        check("an item is created and read as it was written", container -> {
            CosmosItemResponse<JsonNode> created = container.createItem(
                (JsonNode) item("a", "k", 1).put("text", "Zoë ✓").put("large", 1L << 40).put("part", 1.5), key("k"), null);
            equal(201, created.getStatusCode());
            that(created.getRequestCharge() > 0, created.getRequestCharge());
            JsonNode read = container.readItem("a", key("k"), JsonNode.class).getItem();
            equal(created.getItem(), read);
            equal(List.of("Zoë ✓", 1L << 40, 1.5),
                List.of(read.get("text").asText(), read.get("large").asLong(), read.get("part").asDouble()));
            equal(created.getETag(), read.get("_etag").asText());
        });
        check("the partition key is taken from the item", container -> {
            container.createItem(item("a", "k", 1));
            equal(200, container.readItem("a", key("k"), JsonNode.class).getStatusCode());
            fails(404, () -> container.readItem("a", key("other"), JsonNode.class));
        });
        check("a second item of the same id is a conflict", container -> {
            container.createItem(item("a", "k", 1));
            fails(409, () -> container.createItem(item("a", "k", 2)));
            equal(201, container.createItem(item("a", "other", 2)).getStatusCode());
        });
        check("an item is replaced with its ETag, and not with an older one", container -> {
            String etag = container.createItem(item("a", "k", 1)).getETag();
            CosmosItemResponse<?> replaced = container.replaceItem(item("a", "k", 2), "a", key("k"), ifMatch(etag));
            equal(200, replaced.getStatusCode());
            that(!etag.equals(replaced.getETag()), etag);
            fails(412, () -> container.replaceItem(item("a", "k", 3), "a", key("k"), ifMatch(etag)));
            fails(412, () -> container.deleteItem("a", key("k"), ifMatch(etag)));
            equal(2, container.readItem("a", key("k"), JsonNode.class).getItem().get("n").asInt());
        });
        check("an item that the client has is not read again", container -> {
            String etag = container.createItem(item("a", "k", 1)).getETag();
            CosmosItemRequestOptions options = new CosmosItemRequestOptions().setIfNoneMatchETag(etag);
            equal(304, container.readItem("a", key("k"), options, JsonNode.class).getStatusCode());
        });
        check("an upsert creates and replaces", container -> {
            equal(201, container.upsertItem(item("a", "k", 1)).getStatusCode());
            equal(200, container.upsertItem(item("a", "k", 2)).getStatusCode());
        });
        check("a deleted item is gone", container -> {
            container.createItem(item("a", "k", 1));
            equal(204, container.deleteItem("a", key("k"), new CosmosItemRequestOptions()).getStatusCode());
            fails(404, () -> container.readItem("a", key("k"), JsonNode.class));
            fails(404, () -> container.deleteItem("a", key("k"), new CosmosItemRequestOptions()));
        });
        check("an item is patched", container -> {
            container.createItem(item("a", "k", 1));
            CosmosPatchOperations operations = CosmosPatchOperations.create()
                .increment("/n", 4).set("/text", "x").add("/list", List.of(1, 2)).remove("/text");
            JsonNode patched = container.patchItem("a", key("k"), operations, JsonNode.class).getItem();
            equal(5, patched.get("n").asInt());
            equal("[1,2]", patched.get("list").toString());
            that(!patched.has("text"), patched);
        });
        check("a write without content answers no item", container -> {
            CosmosItemRequestOptions options = new CosmosItemRequestOptions().setContentResponseOnWriteEnabled(false);
            CosmosItemResponse<JsonNode> created = container.createItem((JsonNode) item("a", "k", 1), key("k"), options);
            equal(201, created.getStatusCode());
            equal(null, created.getItem());
        });
        check("many items are read at once", container -> {
            Store.fill(container, 20);
            List<CosmosItemIdentity> wanted = IntStream.range(0, 20)
                .mapToObj(n -> new CosmosItemIdentity(key("k" + n), "i" + n)).toList();
            List<JsonNode> found = container.readMany(wanted, JsonNode.class).getResults();
            equal(Store.ids("i", 20), Store.sorted(Store.ids(found)));
        });
        check("bulk writes every item, also after a split", container -> {
            Store.fill(container, 2);
            Store.splitAll(container);
            container.executeBulkOperations(IntStream.range(0, 40)
                .mapToObj(n -> CosmosBulkOperations.getUpsertItemOperation(item("i" + n, "k" + n, n), key("k" + n)))
                .toList())
                .forEach(done -> that(done.getResponse() != null && done.getResponse().isSuccessStatusCode(), done.getException()));
            equal(List.of(40), Store.query(container, "SELECT VALUE COUNT(1) FROM c", Integer.class));
        });
        check("items are read and written as before after a split", container -> {
            Store.fill(container, 20);
            Store.splitAll(container);
            for (int n = 0; n < 20; n++) {
                equal(200, container.readItem("i" + n, key("k" + n), JsonNode.class).getStatusCode());
            }
            equal(201, container.createItem(item("new", "k3", 0)).getStatusCode());
            equal(21, Store.query(container, "SELECT * FROM c", JsonNode.class).size());
            equal(8, container.getFeedRanges().size());
        });
        check("a container is read as it was made", container -> {
            CosmosContainerProperties found = container.read().getProperties();
            equal(List.of("/pk"), found.getPartitionKeyDefinition().getPaths());
            found.setDefaultTimeToLiveInSeconds(60);
            equal(60, container.replace(found).getProperties().getDefaultTimeToLiveInSeconds());
            ThroughputProperties throughput = container.readThroughput().getProperties();
            that(throughput.getManualThroughput() >= 400, throughput.getManualThroughput());
        });
        check("an item without the partition key is found with none", container -> {
            container.createItem(item("a", "k", 1).without(List.of("pk")), PartitionKey.NONE, null);
            equal(200, container.readItem("a", PartitionKey.NONE, JsonNode.class).getStatusCode());
        });
        check("another client finds what was written", container -> {
            container.createItem(item("a", "k", 1));
            try (CosmosClient other = Store.builder().buildClient()) {
                CosmosContainer read = Store.of(other, container);
                // It reads without the session token of the write, so a replica that lags behind may answer.
                eventually(() -> {
                    try {
                        return read.readItem("a", key("k"), JsonNode.class).getStatusCode() == 200;
                    } catch (CosmosException error) {
                        equal(404, error.getStatusCode());
                        return false;
                    }
                });
            }
        });
    }
}
