// Transactional batches.
import { assert, all, check, filled, ids, made } from "./harness.mjs";

const create = (id, rest = {}) => ({ operationType: "Create", resourceBody: { id, pk: "k", ...rest } });
const statuses = ({ result }) => result.map(({ statusCode }) => statusCode);

check("a batch runs every kind of operation", async () => {
  const container = await filled(["read", "replace", "upsert", "patch", "delete"].map((id) => ({ id, pk: "k", n: 0 })));
  const answer = await container.items.batch(
    [
      create("created"),
      { operationType: "Read", id: "read" },
      { operationType: "Replace", id: "replace", resourceBody: { id: "replace", pk: "k", n: 1 } },
      { operationType: "Upsert", resourceBody: { id: "upsert", pk: "k", n: 2 } },
      { operationType: "Patch", id: "patch", resourceBody: { operations: [{ op: "incr", path: "/n", value: 3 }] } },
      { operationType: "Delete", id: "delete" },
    ],
    "k",
  );
  assert.equal(answer.code, 200);
  assert.deepEqual(statuses(answer), [201, 200, 200, 200, 200, 204]);
  assert.deepEqual(answer.result.slice(0, 5).map(({ resourceBody }) => resourceBody.n), [undefined, 0, 1, 2, 3]);
  assert.ok(answer.result.every(({ requestCharge }) => requestCharge > 0));
});

check("a batch with a failure is 207 and does nothing", async () => {
  const container = await filled([{ id: "taken", pk: "k" }]);
  const answer = await container.items.batch([create("a"), create("taken"), create("b")], "k");
  assert.equal(answer.code, 207);
  assert.deepEqual(statuses(answer), [424, 409, 424]);
  assert.deepEqual(ids(await all(container, "SELECT * FROM c")), ["taken"]);
});

check("a batch with a stale ETag does nothing", async () => {
  const container = await filled([{ id: "a", pk: "k" }]);
  const replace = { operationType: "Replace", id: "a", ifMatch: '"other"', resourceBody: { id: "a", pk: "k" } };
  const answer = await container.items.batch([create("b"), replace], "k");
  assert.deepEqual([answer.code, ...statuses(answer)], [207, 424, 412]);
  assert.equal((await container.item("b", "k").read()).statusCode, 404);
});

check("a batch that reads what the client has is 207 and is done", async () => {
  const container = await made();
  const { resource } = await container.items.create({ id: "a", pk: "k" });
  const read = { operationType: "Read", id: "a", ifNoneMatch: resource._etag };
  const answer = await container.items.batch([read, create("b")], "k");
  assert.deepEqual([answer.code, ...statuses(answer)], [207, 304, 201]);
  assert.equal((await container.item("b", "k").read()).statusCode, 200);
});

check("a batch of a hundred operations is done, of one more refused", async () => {
  const container = await made();
  const operations = Array.from({ length: 101 }, (_, n) => create(String(n)));
  await assert.rejects(container.items.batch(operations, "k"), /more than 100 operations/);
  assert.deepEqual(new Set(statuses(await container.items.batch(operations.slice(1), "k"))), new Set([201]));
});

check("a batch beyond two megabytes is 413", async () => {
  const container = await made();
  const text = "x".repeat(1_100_000);
  await assert.rejects(container.items.batch([create("a", { text }), create("b", { text })], "k"), /size is too large/);
});

check("a batch whose answer is too large fails by its last operation and does nothing", async () => {
  const container = await filled([{ id: "big", pk: "k", text: "x".repeat(1_900_000) }]);
  const reads = Array.from({ length: 3 }, () => ({ operationType: "Read", id: "big" }));
  const answer = await container.items.batch([create("a"), ...reads], "k");
  assert.deepEqual([answer.code, ...statuses(answer)], [207, 424, 424, 424, 413]);
  assert.equal((await container.item("a", "k").read()).statusCode, 404);
});

check("a batch returns no bodies where none are wanted", async () => {
  const container = await made();
  const answer = await container.items.batch([create("a")], "k", { contentResponseOnWriteEnabled: false });
  assert.deepEqual(statuses(answer), [201]);
  assert.equal(answer.result[0].resourceBody, undefined);
  assert.ok(answer.result[0].eTag);
});

check("a batch keeps to its partition key", async () => {
  const container = await made();
  const answer = await container.items.batch([create("a"), create("b", { pk: "other" })], "k");
  assert.deepEqual([answer.code, ...statuses(answer)], [207, 424, 400]);
});
