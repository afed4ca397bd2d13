package cosmos;

import checks.Checks;

/** Checks of Cosmos DB with Microsoft's client for Java: each expects what the service does. */
final class Main {
    private Main() {}

    public static void main(String[] arguments) throws Exception {
        Processors.add();
        Feeds.add();
        Items.add();
        Batches.add();
        Queries.add();
        Failing.add();
        Checks.main(arguments);
    }
}
