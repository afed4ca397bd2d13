// Physical partitions: how many a container has, and what a split changes.
import { assert, all, check, filled, ids, made, merge, partitionsOf, range, sorted, split } from "./harness.mjs";

check("the physical partitions cover all keys without overlap", async () => {
  const found = await partitionsOf(await made());
  assert.equal(found[0].minInclusive, "");
  assert.equal(found.at(-1).maxExclusive, "FF");
  found.slice(1).forEach(({ minInclusive }, n) => assert.equal(minInclusive, found[n].maxExclusive));
});

check("a new container has a physical partition for each 6 000 request units, with autoscale for each 10 000", async () => {
  const small = await made({}, { offerThroughput: 400 });
  const large = await made({ throughput: 60_000 });
  const autoscale = await made({ maxThroughput: 50_000 });
  assert.equal((await partitionsOf(small)).length, 4);
  assert.equal((await partitionsOf(large)).length, 10);
  assert.equal((await partitionsOf(autoscale)).length, 5);
});

check("more throughput splits the physical partitions", async () => {
  const container = await made({ throughput: 400 });
  await container.items.create({ id: "a", pk: "k" });
  const offer = await container.readOffer();
  offer.resource.content.offerThroughput = 60_000;
  assert.equal((await offer.offer.replace(offer.resource)).resource.content.offerThroughput, 60_000);
  const found = await partitionsOf(container);
  assert.equal(found.length, 6);
  assert.equal(found.filter(({ parents }) => parents.length === 1).length, 4);
  assert.equal((await container.item("a", "k").read()).resource.id, "a");
});

check("a split partition is named as the parent of its children", async () => {
  const container = await made();
  const [first] = await partitionsOf(container);
  const children = await split(container, first.id);
  const found = (await partitionsOf(container)).slice(0, 2);
  assert.deepEqual(ids(found), children);
  assert.deepEqual(found.map(({ parents }) => parents), [[first.id], [first.id]]);
});

check("a merged partition names both of its parents", async () => {
  const container = await filled(range(30).map((n) => ({ id: `i${n}`, pk: `k${n}` })));
  const [first, second] = await partitionsOf(container);
  const id = await merge(container, first.id, second.id);
  const found = await partitionsOf(container);
  assert.equal(found.length, 3);
  assert.deepEqual([found[0].id, found[0].parents], [id, [first.id, second.id]]);
  for (const n of range(30)) assert.equal((await container.item(`i${n}`, `k${n}`).read()).statusCode, 200);
  assert.deepEqual(await all(container, "SELECT VALUE COUNT(1) FROM c"), [30]);
});

check("items are read and written as before after a split", async () => {
  const container = await filled(range(30).map((n) => ({ id: `i${n}`, pk: `k${n}` })));
  for (const { id } of await partitionsOf(container)) await split(container, id);
  for (const n of range(30)) assert.equal((await container.item(`i${n}`, `k${n}`).read()).statusCode, 200);
  assert.equal((await container.items.create({ id: "new", pk: "k3" })).statusCode, 201);
  assert.deepEqual(sorted(ids(await all(container, "SELECT * FROM c"))).length, 31);
});
