// The change feed by the pull model.
import { ChangeFeedMode, ChangeFeedStartFrom } from "@azure/cosmos";
import { assert, check, drained, fails, filled, ids, made, merge, partitionsOf, range, sleep, sorted, split } from "./harness.mjs";

const numbered = (count, keys = count) => range(count).map((n) => ({ id: `i${n}`, pk: `k${n % keys}`, n }));
const Beginning = (...scope) => ({ changeFeedStartFrom: ChangeFeedStartFrom.Beginning(...scope) });
const from = (continuation) => ({ changeFeedStartFrom: ChangeFeedStartFrom.Continuation(continuation) });

check("the feed of a container has every item once", async () => {
  const container = await filled(numbered(50));
  const { changes } = await drained(container, Beginning());
  assert.deepEqual(sorted(ids(changes)), sorted(ids(numbered(50))));
});

check("the feed of a partition key is in the order of the changes", async () => {
  const container = await made();
  for (const n of range(8)) await container.items.create({ id: `i${n}`, pk: "k", n });
  await container.items.create({ id: "x", pk: "other" });
  const { changes } = await drained(container, { ...Beginning("k"), maxItemCount: 3 });
  assert.deepEqual(ids(changes), range(8).map((n) => `i${n}`));
  assert.ok(changes.every(({ _lsn }, at) => at === 0 || _lsn > changes[at - 1]._lsn));
});

check("an item changed twice comes once, with its last state", async () => {
  const container = await filled(numbered(3, 1));
  await container.items.upsert({ id: "i0", pk: "k0", n: 100 });
  const { changes } = await drained(container, Beginning("k0"));
  assert.deepEqual(changes.map(({ n }) => n), [1, 2, 100]);
});

check("a deleted item is not in the feed", async () => {
  const container = await filled(numbered(3, 1));
  await container.item("i1", "k0").delete();
  assert.deepEqual(ids((await drained(container, Beginning("k0"))).changes), ["i0", "i2"]);
});

check("a feed from now has only what comes later", async () => {
  const container = await filled(numbered(5));
  const iterator = container.items.getChangeFeedIterator({ changeFeedStartFrom: ChangeFeedStartFrom.Now() });
  const first = await iterator.readNext();
  assert.equal(first.statusCode, 304);
  await container.items.create({ id: "later", pk: "k1" });
  const { changes } = await drained(container, from(first.continuationToken));
  assert.deepEqual(ids(changes), ["later"]);
});

check("a feed from a time has what changed after it", async () => {
  const container = await made();
  const { resource } = await container.items.create({ id: "early", pk: "k" });
  let later;
  do {
    await sleep(100);
    later = (await container.items.upsert({ id: "late", pk: "k" })).resource;
  } while (later._ts === resource._ts);
  const start = ChangeFeedStartFrom.Time(new Date(resource._ts * 1000));
  assert.deepEqual(ids((await drained(container, { changeFeedStartFrom: start })).changes), ["late"]);
});

check("a feed goes on from its continuation", async () => {
  const container = await filled(numbered(30));
  const { continuation } = await drained(container, Beginning());
  await container.items.upsert({ id: "i3", pk: "k3", n: 300 });
  await container.items.create({ id: "new", pk: "k" });
  assert.deepEqual(sorted(ids((await drained(container, from(continuation))).changes)), ["i3", "new"]);
});

check("a page's continuation loses and repeats nothing", async () => {
  const container = await filled(numbered(40));
  const found = [];
  for (let options = { ...Beginning(), maxItemCount: 3 }; ; ) {
    const iterator = container.items.getChangeFeedIterator(options);
    const page = await iterator.readNext();
    if (page.statusCode === 304) break;
    found.push(...page.result);
    options = { ...from(page.continuationToken), maxItemCount: 3 };
  }
  assert.deepEqual(sorted(ids(found)), sorted(ids(numbered(40))));
});

check("the feed ranges are the physical partitions and share no item", async () => {
  const container = await filled(numbered(60));
  const ranges = await container.getFeedRanges();
  assert.equal(ranges.length, (await partitionsOf(container)).length);
  const parts = await Promise.all(ranges.map((part) => drained(container, Beginning(part))));
  assert.deepEqual(sorted(parts.flatMap(({ changes }) => ids(changes))), sorted(ids(numbered(60))));
  assert.ok(parts.every(({ changes }) => changes.length));
});

check("a feed goes on in the children of a partition that was split", async () => {
  const container = await filled(numbered(60));
  const { continuation } = await drained(container, Beginning());
  for (const { id } of await partitionsOf(container)) await split(container, id);
  for (const n of range(20)) await container.items.create({ id: `late${n}`, pk: `k${n}` });
  const { changes } = await drained(container, from(continuation));
  assert.deepEqual(sorted(ids(changes)), sorted(range(20).map((n) => `late${n}`)));
});

check("a feed read half goes on after a split without loss", async () => {
  const container = await filled(numbered(60));
  const [part] = await container.getFeedRanges();
  const iterator = container.items.getChangeFeedIterator({ ...Beginning(part), maxItemCount: 2 });
  const whole = ids((await drained(container, Beginning(part))).changes);
  const first = await iterator.readNext();
  const [{ id }] = await partitionsOf(container);
  await split(container, id);
  const { changes } = await drained(container, from(first.continuationToken));
  assert.deepEqual(sorted([...ids(first.result), ...ids(changes)]), sorted(whole));
});

check("a feed goes on where its partitions were merged", async () => {
  const container = await filled(numbered(60));
  const { continuation } = await drained(container, Beginning());
  const [first, second] = await partitionsOf(container);
  await merge(container, first.id, second.id);
  for (const n of range(20)) await container.items.create({ id: `late${n}`, pk: `k${n}` });
  const { changes } = await drained(container, from(continuation));
  assert.deepEqual(sorted(ids(changes)), sorted(range(20).map((n) => `late${n}`)));
});

check("the feed of a batch has one LSN for all of it", async () => {
  const container = await made();
  await container.items.batch(range(5).map((n) => ({ operationType: "Create", resourceBody: { id: `i${n}`, pk: "k" } })), "k");
  const { changes } = await drained(container, Beginning("k"));
  assert.equal(changes.length, 5);
  assert.equal(new Set(changes.map(({ _lsn }) => _lsn)).size, 1);
});

check("all versions and deletes is refused by name", async () => {
  const container = await made();
  const iterator = container.items.getChangeFeedIterator({
    changeFeedMode: ChangeFeedMode.AllVersionsAndDeletes, changeFeedStartFrom: ChangeFeedStartFrom.Now("k"),
  });
  await fails(iterator.readNext(), 400, /all versions and deletes/i);
});

check("a container for all versions and deletes is refused by name", async () => {
  await fails(made({ changeFeedPolicy: { retentionDuration: 10 } }), 400, /all versions and deletes/i);
});
