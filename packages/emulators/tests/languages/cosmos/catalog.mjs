// Databases, containers and their throughput.
import { assert, check, client, database, fails, ids, made, sorted, unique } from "./harness.mjs";

async function listed(iterator) {
  const found = [];
  while (iterator.hasMoreResults()) {
    const { resources } = await iterator.fetchNext();
    assert.ok(resources.length <= 2);
    found.push(...resources);
  }
  return found;
}

check("a database is created once, read and deleted", async () => {
  const id = unique("database");
  assert.equal((await client.databases.createIfNotExists({ id })).statusCode, 201);
  assert.equal((await client.databases.createIfNotExists({ id })).statusCode, 200);
  await fails(client.databases.create({ id }), 409);
  assert.equal((await client.database(id).delete()).statusCode, 204);
  await fails(client.database(id).read(), 404);
});

check("a container is created once, read and deleted", async () => {
  const id = unique("once");
  assert.equal((await database.containers.createIfNotExists({ id, partitionKey: "/pk" })).statusCode, 201);
  assert.equal((await database.containers.createIfNotExists({ id, partitionKey: "/pk" })).statusCode, 200);
  await fails(database.containers.create({ id, partitionKey: "/pk" }), 409);
  assert.equal((await database.container(id).delete()).statusCode, 204);
  await fails(database.container(id).read(), 404);
});

check("databases are listed page by page", async () => {
  const names = [1, 2, 3].map(() => unique("listed"));
  for (const id of names) await client.databases.create({ id });
  const found = ids(await listed(client.databases.readAll({ maxItemCount: 2 })));
  assert.deepEqual(names.filter((name) => found.includes(name)), names);
  assert.equal(new Set(found).size, found.length);
  for (const id of names) await client.database(id).delete();
});

check("containers are listed and queried page by page", async () => {
  const { database: own } = await client.databases.create({ id: unique("database") });
  const names = ["a", "b", "c", "d", "e"];
  for (const id of names) await own.containers.create({ id, partitionKey: "/pk" });
  assert.deepEqual(sorted(ids(await listed(own.containers.readAll({ maxItemCount: 2 })))), names);
  const query = own.containers.query("SELECT * FROM c WHERE c.id > 'b'", { maxItemCount: 2 });
  assert.deepEqual(sorted(ids(await listed(query))), ["c", "d", "e"]);
});

check("a container keeps its definition", async () => {
  const uniqueKeyPolicy = { uniqueKeys: [{ paths: ["/email"] }] };
  const container = await made({ defaultTtl: 100, uniqueKeyPolicy });
  const { resource } = await container.read();
  assert.deepEqual(resource.partitionKey.paths, ["/pk"]);
  assert.equal(resource.defaultTtl, 100);
  assert.deepEqual(resource.uniqueKeyPolicy.uniqueKeys[0].paths, ["/email"]);
  assert.equal(resource.indexingPolicy.indexingMode, "consistent");
});

check("a container's time to live can be changed, its partition key not", async () => {
  const container = await made();
  const { resource } = await container.read();
  assert.equal((await container.replace({ ...resource, defaultTtl: 60 })).resource.defaultTtl, 60);
  await fails(container.replace({ ...resource, partitionKey: { paths: ["/other"] } }), 400, /partition key cannot be changed/);
});

check("throughput is kept, read and changed", async () => {
  const container = await made({ throughput: 500 });
  const { resource, offer } = await container.readOffer();
  assert.equal(resource.content.offerThroughput, 500);
  const changed = await offer.replace({ ...resource, content: { ...resource.content, offerThroughput: 700 } });
  assert.equal(changed.resource.content.offerThroughput, 700);
  assert.equal((await container.readOffer()).resource.content.offerThroughput, 700);
});

check("throughput can be scaled automatically", async () => {
  const container = await made({ maxThroughput: 4000 });
  const { resource } = await container.readOffer();
  assert.equal(resource.content.offerAutopilotSettings.maxThroughput, 4000);
});

check("throughput below the least is refused", async () => {
  await fails(made({ throughput: 100 }), 400, /minimum throughput 400/);
  const container = await made({ throughput: 400 });
  const { resource, offer } = await container.readOffer();
  await fails(offer.replace({ ...resource, content: { ...resource.content, offerThroughput: 450 } }), 400);
});

check("a name with a slash is refused", async () => {
  await assert.rejects(database.containers.create({ id: "a/b", partitionKey: "/pk" }));
});

check("a partition key that no path can be is refused", async () => {
  await fails(made({ partitionKey: { paths: ["/a", "/b"], kind: "Hash" } }), 400, /partition key/i);
});
