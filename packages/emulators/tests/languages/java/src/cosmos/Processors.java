package cosmos;

import static checks.Checks.equal;
import static checks.Checks.eventually;
import static checks.Checks.that;
import static cosmos.Store.check;
import static cosmos.Store.item;
import static cosmos.Store.query;

import com.azure.cosmos.ChangeFeedProcessor;
import com.azure.cosmos.ChangeFeedProcessorBuilder;
import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.models.ChangeFeedProcessorOptions;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;

/** The change feed processor, over splits. */
final class Processors {
    private Processors() {}

    private static CosmosContainer leases() {
        String id = checks.Checks.unique("leases");
        Store.CLIENT.getDatabase("java").createContainer(new CosmosContainerProperties(id, "/id"));
        return Store.CLIENT.getDatabase("java").getContainer(id);
    }

    private static ChangeFeedProcessorBuilder builder(CosmosContainer container, CosmosContainer leases, String host) {
        return new ChangeFeedProcessorBuilder()
            .hostName(host)
            .feedContainer(Store.async(container))
            .leaseContainer(Store.async(leases))
            .options(new ChangeFeedProcessorOptions()
                .setStartFromBeginning(true)
                .setFeedPollDelay(Duration.ofMillis(100))
                .setLeaseAcquireInterval(Duration.ofMillis(500))
                .setLeaseRenewInterval(Duration.ofSeconds(5))
                .setLeaseExpirationInterval(Duration.ofSeconds(20)));
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
        for (int n = 0; n < 20; n++) {
            container.createItem(item("late" + n, "k" + n, n));
        }
        Set<String> wanted = new TreeSet<>(Store.ids("i", 20));
        wanted.addAll(Store.ids("late", 20));
        eventually(() -> Set.copyOf(found).size() >= 40);
        processor.stop().block();
        equal(wanted, new TreeSet<>(found));
    }

    private static int lag(ChangeFeedProcessor processor) {
        return processor.getCurrentState().block().stream().mapToInt(state -> state.getEstimatedLag()).sum();
    }

    static void add() {
        check("the processor gets every change, over a split of all partitions", container -> {
            List<String> found = Collections.synchronizedList(new ArrayList<>());
            CosmosContainer leases = leases();
            receiveOverSplit(container,
                builder(container, leases, "host").handleChanges(changes -> add(found, changes)).buildChangeFeedProcessor(),
                found);
            long owned = query(leases, "SELECT * FROM c WHERE c.Owner = 'host' OR c.Owner = null", JsonNode.class).size();
            that(owned >= 8, owned);
        });
        check("the processor of latest versions gets every change, over a split of all partitions", container -> {
            List<String> found = Collections.synchronizedList(new ArrayList<>());
            receiveOverSplit(container,
                builder(container, leases(), "host")
                    .handleLatestVersionChanges(changes ->
                        changes.forEach(change -> found.add(change.getCurrent().get("id").asText())))
                    .buildChangeFeedProcessor(),
                found);
        });
        check("a processor goes on where another stopped", container -> {
            List<String> first = Collections.synchronizedList(new ArrayList<>());
            List<String> second = Collections.synchronizedList(new ArrayList<>());
            CosmosContainer leases = leases();
            Store.fill(container, 10);
            ChangeFeedProcessor one = builder(container, leases, "one").handleChanges(changes -> add(first, changes)).buildChangeFeedProcessor();
            one.start().block();
            eventually(() -> first.size() == 10 && lag(one) == 0);
            one.stop().block();
            eventually(() -> query(leases, "SELECT * FROM c WHERE c.Owner = 'one'", JsonNode.class).isEmpty());
            container.createItem(item("late", "k", 1));
            ChangeFeedProcessor two = builder(container, leases, "two").handleChanges(changes -> add(second, changes)).buildChangeFeedProcessor();
            two.start().block();
            eventually(() -> second.contains("late"));
            two.stop().block();
            equal(Store.ids("i", 10), Store.sorted(first));
            equal(List.of("late"), second);
        });
        check("the lag of a processor is estimated", container -> {
            CosmosContainer leases = leases();
            List<String> found = Collections.synchronizedList(new ArrayList<>());
            Store.fill(container, 3);
            ChangeFeedProcessor processor =
                builder(container, leases, "host").handleChanges(changes -> add(found, changes)).buildChangeFeedProcessor();
            processor.start().block();
            eventually(() -> found.size() == 3 && lag(processor) == 0);
            equal(4, processor.getCurrentState().block().size());
            processor.stop().block();
        });
    }
}
