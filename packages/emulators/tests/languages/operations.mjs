// What a service does with @azure/cosmos, in a container of its own; prints what it got as one JSON object.
import { ChangeFeedStartFrom, CosmosClient } from "@azure/cosmos";

const client = new CosmosClient({
  connectionString: process.env.COSMOS,
  consistencyLevel: "Session",
  connectionPolicy: { enableEndpointDiscovery: false },
});
const { database } = await client.databases.createIfNotExists({ id: "javascript" });
const { container } = await database.containers.createIfNotExists({
  id: "data",
  partitionKey: "/partitionKey",
  defaultTtl: -1,
});
const made = (id, n, partitionKey = "k") => ({ id, partitionKey, n });
const ids = (items) => items.map((item) => item.id);
const statuses = (results) => results.map((result) => result.statusCode);
const failing = async (promise) => promise.then(() => "no error", (error) => error.code);

const got = {};
got.created = (await container.items.create(made("a", 1))).statusCode;
got.createdAgain = await failing(container.items.create(made("a", 1)));
const stored = (await container.item("a", "k").read()).resource;
got.read = stored.n;
got.missing = (await container.item("none", "k").read()).statusCode;

const change = { operationType: "Replace", id: "a", ifMatch: stored._etag, resourceBody: made("a", 2) };
got.batch = statuses((await container.items.batch([change, { operationType: "Read", id: "a" }], "k")).result);
const stale = await container.items.batch([{ operationType: "Create", resourceBody: made("b", 1) }, change], "k");
got.staleBatch = [stale.code, ...statuses(stale.result)];
got.staleReplace = await failing(
  container.item("a", "k").replace(made("a", 3), { accessCondition: { type: "IfMatch", condition: stored._etag } }),
);
got.upserted = (await container.items.upsert(made("c", 1))).statusCode;
got.patched = (await container.item("c", "k").patch([{ op: "incr", path: "/n", value: 1 }])).resource.n;
const bulk = await container.items.executeBulkOperations(
  ["x", "y", "z"].map((key) => ({ operationType: "Create", partitionKey: key, resourceBody: made(key, 9, key) })),
);
got.bulk = bulk.map((result) => result.response?.statusCode ?? result.error?.message);

const query = async (text, options) => (await container.items.query(text, options).fetchAll()).resources;
got.inPartition = ids(await query("SELECT * FROM c ORDER BY c.n DESC", { partitionKey: "k" }));
got.parameters = ids(
  await query({ query: "SELECT * FROM c WHERE c.n = @n", parameters: [{ name: "@n", value: 9 }] }),
).sort();
got.sorted = ids(await query("SELECT * FROM c ORDER BY c.id"));
got.sortedWithPlan = ids(await query("SELECT * FROM c ORDER BY c.id DESC", { forceQueryPlan: true }));
got.counted = await query("SELECT VALUE COUNT(1) FROM c");
got.changes = [];
const feed = container.items.getChangeFeedIterator({ changeFeedStartFrom: ChangeFeedStartFrom.Beginning("k") });
for (let page = await feed.readNext(); page.statusCode !== 304; page = await feed.readNext()) {
  got.changes.push(...ids(page.result));
}
got.deleted = (await container.item("c", "k").delete()).statusCode;
console.log(JSON.stringify(got));
