package cosmos;

import static checks.Checks.equal;
import static checks.Checks.that;
import static cosmos.Store.check;
import static cosmos.Store.fails;
import static cosmos.Store.item;
import static cosmos.Store.key;

import com.azure.cosmos.models.CosmosBatch;
import com.azure.cosmos.models.CosmosBatchItemRequestOptions;
import com.azure.cosmos.models.CosmosBatchOperationResult;
import com.azure.cosmos.models.CosmosBatchResponse;
import com.azure.cosmos.models.CosmosPatchOperations;
import com.fasterxml.jackson.databind.JsonNode;
import java.util.List;

/** Transactional batches. */
final class Batches {
    private Batches() {}

    private static List<Integer> statuses(CosmosBatchResponse response) {
        return response.getResults().stream().map(CosmosBatchOperationResult::getStatusCode).toList();
    }

    static void add() {
        check("a batch runs every kind of operation", container -> {
            container.createItem(item("old", "k", 1));
            container.createItem(item("gone", "k", 1));
            CosmosBatch batch = CosmosBatch.createCosmosBatch(key("k"));
            batch.createItemOperation(item("new", "k", 2));
            batch.upsertItemOperation(item("upserted", "k", 3));
            batch.replaceItemOperation("old", item("old", "k", 4));
            batch.readItemOperation("old");
            batch.patchItemOperation("new", CosmosPatchOperations.create().increment("/n", 5));
            batch.deleteItemOperation("gone");
            CosmosBatchResponse response = container.executeCosmosBatch(batch);
            that(response.isSuccessStatusCode(), response.getErrorMessage());
            equal(List.of(201, 201, 200, 200, 200, 204), statuses(response));
            JsonNode read = response.getResults().get(3).getItem(JsonNode.class);
            equal(4, read.get("n").asInt());
            equal(read.get("_etag").asText(), response.getResults().get(3).getETag());
            equal(7, container.readItem("new", key("k"), JsonNode.class).getItem().get("n").asInt());
        });
        check("a batch with a failure does nothing", container -> {
            container.createItem(item("there", "k", 1));
            CosmosBatch batch = CosmosBatch.createCosmosBatch(key("k"));
            batch.createItemOperation(item("new", "k", 2));
            batch.createItemOperation(item("there", "k", 2));
            CosmosBatchResponse response = container.executeCosmosBatch(batch);
            that(!response.isSuccessStatusCode(), response.getStatusCode());
            equal(List.of(424, 409), statuses(response));
            fails(404, () -> container.readItem("new", key("k"), JsonNode.class));
        });
        check("a batch with a stale ETag does nothing", container -> {
            String etag = container.createItem(item("a", "k", 1)).getETag();
            container.upsertItem(item("a", "k", 2));
            CosmosBatch batch = CosmosBatch.createCosmosBatch(key("k"));
            batch.createItemOperation(item("new", "k", 2));
            batch.replaceItemOperation("a", item("a", "k", 3), new CosmosBatchItemRequestOptions().setIfMatchETag(etag));
            equal(List.of(424, 412), statuses(container.executeCosmosBatch(batch)));
        });
        check("a batch of more than a hundred operations is refused", container -> {
            CosmosBatch batch = CosmosBatch.createCosmosBatch(key("k"));
            for (int n = 0; n < 101; n++) {
                batch.createItemOperation(item("i" + n, "k", n));
            }
            try {
                CosmosBatchResponse response = container.executeCosmosBatch(batch);
                equal(400, response.getStatusCode());
            } catch (com.azure.cosmos.CosmosException error) {
                equal(400, error.getStatusCode());
            }
        });
    }
}
