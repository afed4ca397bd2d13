// Checks of a Cosmos DB account with Microsoft's client for JavaScript. What each expects is what the service does.
//
// COSMOS is the connection string; the emulator's own HTTP endpoint is below its address.
// `node main.mjs WORDS` runs the checks with these words in their names.
// First those that wait, as others run meanwhile.
import "./expiry.mjs";
import "./items.mjs";
import "./patches.mjs";
import "./batches.mjs";
import "./bulk.mjs";
import "./queries.mjs";
import "./sorting.mjs";
import "./grouping.mjs";
import "./joining.mjs";
import "./changefeed.mjs";
import "./partitions.mjs";
import "./catalog.mjs";
import "./errors.mjs";
import { main } from "./harness.mjs";

await main(process.argv[2]);
