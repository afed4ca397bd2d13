package cosmos;

import static checks.Checks.equal;
import static checks.Checks.that;
import static cosmos.Store.check;
import static cosmos.Store.drained;
import static cosmos.Store.ids;
import static cosmos.Store.item;
import static cosmos.Store.key;
import static cosmos.Store.sorted;

import com.azure.cosmos.models.CosmosChangeFeedRequestOptions;
import com.azure.cosmos.models.FeedRange;
import com.azure.cosmos.models.FeedResponse;
import com.fasterxml.jackson.databind.JsonNode;
import cosmos.Store.Drained;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;

/** The change feed by the pull model. */
final class Feeds {
    private Feeds() {}

    private static CosmosChangeFeedRequestOptions beginning(FeedRange range) {
        return CosmosChangeFeedRequestOptions.createForProcessingFromBeginning(range);
    }

    private static CosmosChangeFeedRequestOptions from(String continuation) {
        return CosmosChangeFeedRequestOptions.createForProcessingFromContinuation(continuation);
    }

    static void add() {
        check("the feed of a container has every item once", container -> {
            Store.fill(container, 30);
            Drained found = drained(container, beginning(FeedRange.forFullRange()));
            equal(Store.ids("i", 30), sorted(ids(found.changes())));
        });
        check("the feed of a partition key is in the order of the changes", container -> {
            for (int n = 0; n < 8; n++) {
                container.createItem(item("i" + n, "k", n));
            }
            container.createItem(item("x", "other", 0));
            CosmosChangeFeedRequestOptions options = beginning(FeedRange.forLogicalPartition(key("k"))).setMaxItemCount(3);
            List<JsonNode> found = drained(container, options).changes();
            equal(Store.ids("i", 8), ids(found));
            for (int n = 1; n < 8; n++) {
                that(found.get(n).get("_lsn").asLong() > found.get(n - 1).get("_lsn").asLong(), found);
            }
        });
        check("a feed from now has only what comes later", container -> {
            Store.fill(container, 5);
            Drained first = drained(container, CosmosChangeFeedRequestOptions.createForProcessingFromNow(FeedRange.forFullRange()));
            equal(List.of(), first.changes());
            container.createItem(item("later", "k1", 1));
            equal(List.of("later"), ids(drained(container, from(first.continuation())).changes()));
        });
        check("a feed goes on from its continuation", container -> {
            Store.fill(container, 20);
            Drained first = drained(container, beginning(FeedRange.forFullRange()));
            container.upsertItem(item("i3", "k3", 300));
            container.createItem(item("new", "k", 1));
            equal(List.of("i3", "new"), sorted(ids(drained(container, from(first.continuation())).changes())));
        });
        check("the feed ranges are the physical partitions and share no item", container -> {
            Store.fill(container, 40);
            List<String> found = new ArrayList<>();
            for (FeedRange range : container.getFeedRanges()) {
                found.addAll(ids(drained(container, beginning(range)).changes()));
            }
            equal(4, container.getFeedRanges().size());
            equal(Store.ids("i", 40), sorted(found));
        });
        check("a feed goes on in the children of a partition that was split", container -> {
            Store.fill(container, 40);
            Drained first = drained(container, beginning(FeedRange.forFullRange()));
            Store.splitAll(container);
            for (int n = 0; n < 20; n++) {
                container.createItem(item("late" + n, "k" + n, n));
            }
            equal(Store.ids("late", 20), sorted(ids(drained(container, from(first.continuation())).changes())));
        });
        check("a feed read half goes on after a split without loss", container -> {
            Store.fill(container, 40);
            FeedRange range = container.getFeedRanges().get(0);
            List<String> whole = sorted(ids(drained(container, beginning(range)).changes()));
            Iterator<FeedResponse<JsonNode>> pages = container
                .queryChangeFeed(beginning(range).setMaxItemCount(2), JsonNode.class).iterableByPage().iterator();
            FeedResponse<JsonNode> first = pages.next();
            Store.splitAll(container);
            List<String> found = new ArrayList<>(ids(first.getResults()));
            found.addAll(ids(drained(container, from(first.getContinuationToken())).changes()));
            equal(whole, sorted(found));
        });
    }
}
