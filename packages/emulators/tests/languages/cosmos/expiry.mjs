// Time to live.
import { assert, check, drained, fails, filled, made, sleep } from "./harness.mjs";
import { ChangeFeedStartFrom } from "@azure/cosmos";

check("an item expires after its own time to live", async () => {
  const container = await filled([{ id: "a", pk: "k", ttl: 1 }, { id: "b", pk: "k" }], { defaultTtl: -1 });
  while ((await container.item("a", "k").read()).statusCode !== 404) await sleep(100);
  assert.equal((await container.item("b", "k").read()).statusCode, 200);
  const { changes } = await drained(container, { changeFeedStartFrom: ChangeFeedStartFrom.Beginning() });
  assert.deepEqual(changes.map(({ id }) => id), ["b"]);
});

check("an item expires after the container's time to live", async () => {
  const container = await filled([{ id: "a", pk: "k" }, { id: "b", pk: "k", ttl: -1 }], { defaultTtl: 1 });
  while ((await container.item("a", "k").read()).statusCode !== 404) await sleep(100);
  assert.equal((await container.items.create({ id: "a", pk: "k" })).statusCode, 201);
  assert.equal((await container.item("b", "k").read()).statusCode, 200);
});

check("a time to live has no effect where the container has none", async () => {
  const container = await filled([{ id: "a", pk: "k", ttl: 1 }]);
  await sleep(2100);
  assert.equal((await container.item("a", "k").read()).statusCode, 200);
});

check("a time to live of zero is refused", async () => {
  const container = await made({ defaultTtl: -1 });
  await fails(container.items.create({ id: "a", pk: "k", ttl: 0 }), 400, /ttl/);
});
