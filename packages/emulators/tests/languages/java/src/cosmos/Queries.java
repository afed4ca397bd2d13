package cosmos;

import static checks.Checks.equal;
import static checks.Checks.that;
import static cosmos.Store.check;
import static cosmos.Store.fails;
import static cosmos.Store.ids;
import static cosmos.Store.item;
import static cosmos.Store.key;
import static cosmos.Store.query;
import static cosmos.Store.sorted;

import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.models.CosmosQueryRequestOptions;
import com.azure.cosmos.models.FeedResponse;
import com.azure.cosmos.models.SqlParameter;
import com.azure.cosmos.models.SqlQuerySpec;
import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.IntStream;

/** Queries within a partition key and across physical partitions. */
final class Queries {
    private Queries() {}

    /** Read a query page by page, each page by a query that begins with the continuation of the one before. */
    private static List<JsonNode> resumed(CosmosContainer container, String query, int size) {
        List<JsonNode> found = new ArrayList<>();
        String continuation = null;
        do {
            Iterator<FeedResponse<JsonNode>> pages = container
                .queryItems(query, new CosmosQueryRequestOptions(), JsonNode.class)
                .iterableByPage(continuation, size)
                .iterator();
            FeedResponse<JsonNode> page = pages.next();
            found.addAll(page.getResults());
            continuation = page.getContinuationToken();
        } while (continuation != null);
        return found;
    }

    static void add() {
        check("a query within a partition key finds its items alone", container -> {
            for (int n = 0; n < 5; n++) {
                container.createItem(item("i" + n, "k", n));
            }
            container.createItem(item("x", "other", 9));
            SqlQuerySpec query = new SqlQuerySpec("SELECT * FROM c WHERE c.n >= @least ORDER BY c.n DESC",
                List.of(new SqlParameter("@least", 2)));
            CosmosQueryRequestOptions options = new CosmosQueryRequestOptions().setPartitionKey(key("k"));
            equal(List.of("i4", "i3", "i2"), ids(container.queryItems(query, options, JsonNode.class).stream().toList()));
        });
        check("a query finds every item of all partitions once", container -> {
            Store.fill(container, 40);
            equal(Store.ids("i", 40), sorted(ids(query(container, "SELECT * FROM c", JsonNode.class))));
        });
        check("a query is resumed from its continuation without loss", container -> {
            Store.fill(container, 30);
            equal(Store.ids("i", 30), sorted(ids(resumed(container, "SELECT * FROM c", 7))));
        });
        check("a query sorted across partitions is in order, and resumed without loss", container -> {
            for (int n = 0; n < 30; n++) {
                container.createItem(item("i" + n, "k" + n, n / 3));
            }
            List<Integer> wanted = IntStream.range(0, 30).mapToObj(n -> 9 - n / 3).toList();
            String query = "SELECT * FROM c ORDER BY c.n DESC";
            equal(wanted, query(container, query, JsonNode.class).stream().map(found -> found.get("n").asInt()).toList());
            List<JsonNode> found = resumed(container, query, 4);
            equal(wanted, found.stream().map(row -> row.get("n").asInt()).toList());
            equal(Store.ids("i", 30), sorted(ids(found)));
        });
        check("aggregates are over all partitions", container -> {
            Store.fill(container, 20);
            equal(List.of(20), query(container, "SELECT VALUE COUNT(1) FROM c", Integer.class));
            equal(List.of(190.0), query(container, "SELECT VALUE SUM(c.n) FROM c", Double.class));
            equal(List.of(9.5), query(container, "SELECT VALUE AVG(c.n) FROM c", Double.class));
            equal(List.of(0), query(container, "SELECT VALUE MIN(c.n) FROM c", Integer.class));
            equal(List.of(19), query(container, "SELECT VALUE MAX(c.n) FROM c", Integer.class));
        });
        check("GROUP BY counts each group over all partitions", container -> {
            for (int n = 0; n < 20; n++) {
                container.createItem(item("i" + n, "k" + n, n % 3));
            }
            Map<Integer, Integer> found = new TreeMap<>();
            query(container, "SELECT c.n AS n, COUNT(1) AS counted FROM c GROUP BY c.n", JsonNode.class)
                .forEach(row -> found.put(row.get("n").asInt(), row.get("counted").asInt()));
            equal(Map.of(0, 7, 1, 7, 2, 6), found);
        });
        check("DISTINCT, TOP, OFFSET and LIMIT hold across partitions", container -> {
            for (int n = 0; n < 20; n++) {
                container.createItem(item("i" + n, "k" + n, n % 4));
            }
            equal(List.of(0, 1, 2, 3),
                query(container, "SELECT DISTINCT VALUE c.n FROM c", Integer.class).stream().sorted().toList());
            equal(5, query(container, "SELECT TOP 5 * FROM c", JsonNode.class).size());
            equal(List.of("i10", "i11", "i12"),
                query(container, "SELECT VALUE c.id FROM c ORDER BY c.id OFFSET 2 LIMIT 3", String.class));
        });
        check("a query goes on after a split", container -> {
            Store.fill(container, 30);
            String query = "SELECT * FROM c";
            FeedResponse<JsonNode> first = container.queryItems(query, new CosmosQueryRequestOptions(), JsonNode.class)
                .iterableByPage(5).iterator().next();
            Store.splitAll(container);
            List<String> found = new ArrayList<>(ids(first.getResults()));
            for (FeedResponse<JsonNode> page : container.queryItems(query, new CosmosQueryRequestOptions(), JsonNode.class)
                    .iterableByPage(first.getContinuationToken(), 5)) {
                found.addAll(ids(page.getResults()));
            }
            equal(Store.ids("i", 30), sorted(found));
        });
        check("a query with a wrong expression is 400", container ->
            fails(400, () -> query(container, "SELECT * FROM c WHERE", JsonNode.class)));
        check("every item of a partition key is read", container -> {
            container.createItem(item("a", "k", 1));
            container.createItem(item("b", "other", 1));
            equal(List.of("a"), ids(container.readAllItems(key("k"), JsonNode.class).stream().toList()));
        });
        check("queries of a range of the feed share no item", container -> {
            Store.fill(container, 30);
            List<String> found = new ArrayList<>();
            container.getFeedRanges().forEach(range -> found.addAll(ids(container
                .queryItems("SELECT * FROM c", new CosmosQueryRequestOptions().setFeedRange(range), JsonNode.class)
                .stream().toList())));
            equal(Store.ids("i", 30), sorted(found));
            that(container.getFeedRanges().size() == 4, container.getFeedRanges());
        });
    }
}
