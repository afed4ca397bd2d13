// Bulk: many operations, each by itself, in one request for each physical partition.
import { assert, all, check, filled, ids, made, partitionsOf, range, sorted, split } from "./harness.mjs";

const create = (id, pk = id, rest = {}) => ({
  operationType: "Create", partitionKey: pk, resourceBody: { id, pk, ...rest },
});

check("bulk returns the results in the order of the operations", async () => {
  const container = await made();
  const operations = range(60).map((n) => create(`i${n}`));
  const results = await container.items.bulk(operations);
  assert.deepEqual(results.map(({ statusCode }) => statusCode), range(60).map(() => 201));
  assert.deepEqual(results.map(({ resourceBody }) => resourceBody.id), operations.map(({ resourceBody }) => resourceBody.id));
});

check("bulk is not atomic", async () => {
  const container = await filled([{ id: "b", pk: "k" }]);
  const results = await container.items.bulk(["a", "b", "c"].map((id) => create(id, "k")));
  assert.deepEqual(results.map(({ statusCode }) => statusCode), [201, 409, 201]);
  assert.deepEqual(sorted(ids(await all(container, "SELECT * FROM c"))), ["a", "b", "c"]);
});

check("bulk that is not to go on after an error stops there", async () => {
  const container = await filled([{ id: "b", pk: "k" }]);
  const results = await container.items.bulk(["a", "b", "c"].map((id) => create(id, "k")), { continueOnError: false });
  assert.deepEqual(results.map(({ statusCode }) => statusCode), [201, 409, 424]);
  assert.deepEqual(sorted(ids(await all(container, "SELECT * FROM c"))), ["a", "b"]);
});

check("bulk runs every kind of operation", async () => {
  const container = await filled(["read", "replace", "patch", "delete"].map((id) => ({ id, pk: id, n: 0 })));
  const results = await container.items.bulk([
    { operationType: "Read", id: "read", partitionKey: "read" },
    { operationType: "Replace", id: "replace", partitionKey: "replace", resourceBody: { id: "replace", pk: "replace", n: 1 } },
    { operationType: "Upsert", partitionKey: "upsert", resourceBody: { id: "upsert", pk: "upsert", n: 2 } },
    { operationType: "Patch", id: "patch", partitionKey: "patch", resourceBody: { operations: [{ op: "incr", path: "/n", value: 3 }] } },
    { operationType: "Delete", id: "delete", partitionKey: "delete" },
    { operationType: "Delete", id: "none", partitionKey: "none" },
  ]);
  assert.deepEqual(results.map(({ statusCode }) => statusCode), [200, 200, 201, 200, 204, 404]);
  assert.deepEqual(results.slice(0, 4).map(({ resourceBody }) => resourceBody.n), [0, 1, 2, 3]);
});

check("bulk execution writes hundreds of items of many keys", async () => {
  const container = await made();
  const results = await container.items.executeBulkOperations(range(300).map((n) => create(`i${n}`, `k${n % 40}`)));
  assert.equal(results.filter(({ response }) => response?.statusCode === 201).length, 300);
  assert.deepEqual(await all(container, "SELECT VALUE COUNT(1) FROM c"), [300]);
});

check("bulk execution reports what failed beside what was done", async () => {
  const container = await filled([{ id: "b", pk: "b" }]);
  const results = await container.items.executeBulkOperations(["a", "b", "c"].map((id) => create(id)));
  assert.deepEqual(results.map(({ response, error }) => response?.statusCode ?? error.code), [201, 409, 201]);
});

check("bulk finds the children of a partition that was split", async () => {
  const container = await filled(range(20).map((n) => ({ id: `i${n}`, pk: `k${n}` })));
  for (const { id } of await partitionsOf(container)) await split(container, id);
  const results = await container.items.bulk(range(40).map((n) => create(`i${n}`, `k${n}`)));
  assert.deepEqual(results.map(({ statusCode }) => statusCode), range(40).map((n) => (n < 20 ? 409 : 201)));
});

check("bulk execution finds the children of a partition that was split", async () => {
  const container = await filled(range(20).map((n) => ({ id: `i${n}`, pk: `k${n}` })));
  for (const { id } of await partitionsOf(container)) await split(container, id);
  const results = await container.items.executeBulkOperations(range(20).map((n) => create(`j${n}`, `k${n}`)));
  assert.deepEqual(results.map(({ response }) => response?.statusCode), range(20).map(() => 201));
});
