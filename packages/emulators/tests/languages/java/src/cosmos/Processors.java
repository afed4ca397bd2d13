package cosmos;

import static checks.Checks.equal;
import static checks.Checks.eventually;
import static checks.Checks.fails;
import static checks.Checks.that;
import static cosmos.Store.check;
import static cosmos.Store.drained;
import static cosmos.Store.item;
import static cosmos.Store.query;

import checks.Checks;
import com.azure.cosmos.ChangeFeedProcessor;
import com.azure.cosmos.ChangeFeedProcessorBuilder;
import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.models.ChangeFeedProcessorOptions;
import com.azure.cosmos.models.CosmosChangeFeedRequestOptions;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.azure.cosmos.models.FeedRange;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;

/** The change feed processor, over splits and merges, and with leases next to those of a Functions host. */
final class Processors {
    private Processors() {}

    private static CosmosContainer leases() {
        String id = Checks.unique("leases");
        Store.CLIENT.getDatabase("java").createContainer(new CosmosContainerProperties(id, "/id"));
        return Store.CLIENT.getDatabase("java").getContainer(id);
    }

    private static ChangeFeedProcessorBuilder builder(CosmosContainer container, CosmosContainer leases, String host) {
        return new ChangeFeedProcessorBuilder()
            .hostName(host)
            .feedContainer(Store.async(container))
            .leaseContainer(Store.async(leases))
            .options(options());
    }

    private static ChangeFeedProcessorOptions options() {
        return new ChangeFeedProcessorOptions()
            .setStartFromBeginning(true)
            .setFeedPollDelay(Duration.ofMillis(100))
            .setLeaseAcquireInterval(Duration.ofMillis(500))
            .setLeaseRenewInterval(Duration.ofSeconds(5))
            .setLeaseExpirationInterval(Duration.ofSeconds(20));
    }

    private static ChangeFeedProcessor latest(ChangeFeedProcessorBuilder builder, List<String> found) {
        return builder
            .handleLatestVersionChanges(changes ->
                changes.forEach(change -> found.add(change.getCurrent().get("id").asText())))
            .buildChangeFeedProcessor();
    }

    private static ChangeFeedProcessor processor(ChangeFeedProcessorBuilder builder, List<String> found) {
        return builder.handleChanges(changes -> add(found, changes)).buildChangeFeedProcessor();
    }

    private static List<String> list() {
        return Collections.synchronizedList(new ArrayList<>());
    }

    private static Set<String> ids(int count, String... prefixes) {
        Set<String> found = new TreeSet<>();
        for (String prefix : prefixes) {
            found.addAll(Store.ids(prefix, count));
        }
        return found;
    }

    private static Set<String> tokens(CosmosContainer leases) {
        return new TreeSet<>(query(leases, "SELECT VALUE c.LeaseToken FROM c WHERE IS_DEFINED(c.LeaseToken)", String.class));
    }

    private static void add(List<String> found, List<JsonNode> changes) {
        changes.forEach(change -> found.add(change.get("id").asText()));
    }

    private static void receiveOverSplit(CosmosContainer container, ChangeFeedProcessor processor, List<String> found)
        throws Exception {
        Store.fill(container, 20);
        processor.start().block();
        eventually(() -> found.size() >= 20);
        Store.splitAll(container);
        Store.fill(container, "late", 20);
        eventually(() -> Set.copyOf(found).size() >= 40);
        processor.stop().block();
        equal(ids(20, "i", "late"), new TreeSet<>(found));
    }

    private static int lag(ChangeFeedProcessor processor) {
        return processor.getCurrentState().block().stream().mapToInt(state -> state.getEstimatedLag()).sum();
    }

    /** Return the partition key of an item in a physical partition. */
    private static String keyIn(CosmosContainer container, int partition) {
        FeedRange range = container.getFeedRanges().get(partition);
        return drained(container, CosmosChangeFeedRequestOptions.createForProcessingFromBeginning(range))
            .changes().get(0).get("pk").asText();
    }

    static void add() {
        check("the processor gets every change, over a split of all partitions", container -> {
            List<String> found = list();
            CosmosContainer leases = leases();
            receiveOverSplit(container, processor(builder(container, leases, "host"), found), found);
            long owned = query(leases, "SELECT * FROM c WHERE c.Owner = 'host' OR c.Owner = null", JsonNode.class).size();
            that(owned >= 8, owned);
        });
        check("the processor of latest versions gets every change, over a split of all partitions", container -> {
            List<String> found = list();
            receiveOverSplit(container, latest(builder(container, leases(), "host"), found), found);
        });
        check("the processor of latest versions gets every change, over merges", container -> {
            List<String> found = list();
            CosmosContainer leases = leases();
            Store.fill(container, 20);
            ChangeFeedProcessor first = latest(builder(container, leases, "host"), found);
            first.start().block();
            eventually(() -> found.size() >= 20);
            Store.merge(container, "0", "1"); // while it reads
            Store.fill(container, "late", 20);
            eventually(() -> Set.copyOf(found).size() >= 40);
            first.stop().block();
            Store.fill(container, "unread", 20);
            Store.merge(container, "2", "3"); // before anything reads
            ChangeFeedProcessor second = latest(builder(container, leases, "host"), found);
            second.start().block();
            eventually(() -> Set.copyOf(found).size() >= 60);
            second.stop().block();
            equal(ids(20, "i", "late", "unread"), new TreeSet<>(found));
        });
        check("the processor gets every change that is written after a merge, if it had read the others", container -> {
            List<String> found = list();
            CosmosContainer leases = leases();
            Store.fill(container, 20);
            ChangeFeedProcessor processor = processor(builder(container, leases, "host"), found);
            processor.start().block();
            eventually(() -> found.size() >= 20 && lag(processor) == 0);
            Store.merge(container, "0", "1");
            Store.fill(container, "late", 20);
            eventually(() -> Set.copyOf(found).size() >= 40);
            processor.stop().block();
            equal(ids(20, "i", "late"), new TreeSet<>(found));
            equal(Set.of("2", "3", "4"), tokens(leases));
        });
        check("the processor loses what it had not read of a partition that is merged with one that is ahead", container -> {
            List<String> found = list();
            CosmosContainer leases = leases();
            Store.fill(container, 40);
            String ahead = keyIn(container, 0);
            String behind = keyIn(container, 1);
            for (int n = 0; n < 20; n++) {
                container.createItem(item("ahead" + n, ahead, n));
            }
            ChangeFeedProcessor one = processor(builder(container, leases, "one"), found);
            one.start().block();
            eventually(() -> found.size() >= 60 && lag(one) == 0);
            one.stop().block();
            eventually(() -> query(leases, "SELECT * FROM c WHERE c.Owner = 'one'", JsonNode.class).isEmpty());
            container.createItem(item("unread", behind, 1));
            Store.merge(container, "0", "1");
            // Another host has the lease of the one behind, until the other lease is divided.
            ObjectNode lease = query(leases, "SELECT * FROM c WHERE c.LeaseToken = '1'", ObjectNode.class).get(0);
            leases.upsertItem(lease.put("Owner", "another").put("timestamp", Instant.now().plusSeconds(3600).toString()));
            ChangeFeedProcessor two =
                processor(builder(container, leases, "two").options(options().setMinScaleCount(4)), found);
            two.start().block();
            eventually(() -> tokens(leases).contains("4"));
            leases.upsertItem(lease.putNull("Owner"));
            eventually(() -> tokens(leases).equals(Set.of("2", "3", "4")));
            container.createItem(item("late", behind, 1));
            eventually(() -> found.contains("late"));
            two.stop().block();
            that(!found.contains("unread"), found);
        });
        check("a processor goes on where another stopped", container -> {
            List<String> first = list();
            List<String> second = list();
            CosmosContainer leases = leases();
            Store.fill(container, 10);
            ChangeFeedProcessor one = processor(builder(container, leases, "one"), first);
            one.start().block();
            eventually(() -> first.size() == 10 && lag(one) == 0);
            one.stop().block();
            eventually(() -> query(leases, "SELECT * FROM c WHERE c.Owner = 'one'", JsonNode.class).isEmpty());
            container.createItem(item("late", "k", 1));
            ChangeFeedProcessor two = processor(builder(container, leases, "two"), second);
            two.start().block();
            eventually(() -> second.contains("late"));
            two.stop().block();
            equal(Store.ids("i", 10), Store.sorted(first));
            equal(List.of("late"), second);
        });
        check("processors with leases next to those of a Functions host get every change, over a split", own -> {
            CosmosContainer container = Store.CLIENT.getDatabase("java").getContainer("shared");
            CosmosContainer leases = Store.CLIENT.getDatabase("java").getContainer("shared-leases");
            List<String> byPartition = list();
            List<String> byRange = list();
            ChangeFeedProcessor partitions = processor(builder(container, leases, "host"), byPartition);
            ChangeFeedProcessor ranges = latest(
                builder(container, leases, "host").options(options().setLeasePrefix("java-")), byRange);
            Store.fill(container, 20);
            partitions.start().block();
            ranges.start().block();
            eventually(() -> byPartition.size() >= 20 && byRange.size() >= 20);
            Store.splitAll(container);
            Store.fill(container, "late", 20);
            eventually(() -> Set.copyOf(byPartition).size() >= 40 && Set.copyOf(byRange).size() >= 40);
            partitions.stop().block();
            ranges.stop().block();
            equal(ids(20, "i", "late"), new TreeSet<>(byPartition));
            equal(ids(20, "i", "late"), new TreeSet<>(byRange));
            // Without a prefix it would have the ids of the host's leases, whose continuations it cannot read.
            String without = "SELECT * FROM c WHERE IS_DEFINED(c.FeedRange) AND IS_NULL(c.ContinuationToken)";
            eventually(() -> query(leases, without, JsonNode.class).isEmpty());
            fails(IllegalArgumentException.class,
                () -> latest(builder(container, leases, "host"), list()).start().block());
            container.createItem(item("last", "k", 1));
        });
        check("the lag of a processor is estimated", container -> {
            CosmosContainer leases = leases();
            List<String> found = list();
            Store.fill(container, 3);
            ChangeFeedProcessor processor = processor(builder(container, leases, "host"), found);
            processor.start().block();
            eventually(() -> found.size() == 3 && lag(processor) == 0);
            equal(4, processor.getCurrentState().block().size());
            processor.stop().block();
        });
    }
}
