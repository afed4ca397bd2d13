// What is refused, and what the client repeats.
import { assert, all, ask, check, connect, database, ENDPOINT, fails, filled, made } from "./harness.mjs";

const WRONG = Buffer.from("another key").toString("base64");

async function injected(container, kind, operation, options = {}) {
  const fault = await ask("faults", { kind, match: { operation, container: container.id }, ...options });
  return async () => (await ask(`faults/${fault.id}`, undefined, "GET")).applied;
}

check("a wrong key is 401", async () => {
  const stranger = connect({ connectionString: undefined, endpoint: ENDPOINT, key: WRONG });
  await fails(stranger.database(database.id).read(), 401, /wrong key/);
});

check("a container that does not exist is 404 without a sub-status", async () => {
  const error = await fails(database.container("none").items.create({ id: "a", pk: "k" }), 404);
  assert.ok(!error.substatus, String(error.substatus));
});

check("throttled requests are repeated until they pass", async () => {
  const container = await made();
  const applied = await injected(container, "throttle", "create", { count: 3, retry_after_ms: 5 });
  const created = await container.items.create({ id: "a", pk: "k" });
  assert.equal(created.statusCode, 201);
  assert.equal(await applied(), 3);
});

check("a request that is throttled for good is 429 with 3200", async () => {
  const container = await made();
  const patient = connect({ connectionPolicy: { retryOptions: { maxRetryAttemptCount: 1 } } });
  await injected(container, "throttle", "create", { count: 2, retry_after_ms: 5 });
  const error = await fails(
    patient.database(database.id).container(container.id).items.create({ id: "a", pk: "k" }), 429,
  );
  assert.equal(error.substatus, 3200);
  assert.equal(error.retryAfterInMs, 5);
});

check("a write whose reply was lost was done", async () => {
  const container = await made();
  await injected(container, "drop-after", "create", { count: 1 });
  await assert.rejects(container.items.create({ id: "a", pk: "k" }));
  assert.equal((await all(container, "SELECT * FROM c")).length, 1);
});

check("stored procedures, triggers and functions are refused by name", async () => {
  const { scripts } = await made();
  const body = "function () {}";
  await fails(scripts.storedProcedures.create({ id: "p", body }), 400, /'sprocs' is not supported/);
  await fails(scripts.triggers.create({ id: "t", body, triggerType: "Pre", triggerOperation: "All" }), 400, /'triggers'/);
  await fails(scripts.userDefinedFunctions.create({ id: "f", body }), 400, /'udfs'/);
});

check("users and permissions are refused by name", async () => {
  await fails(database.users.create({ id: "u" }), 400, /'users' is not supported/);
});

check("a trigger for an item is refused", async () => {
  const container = await filled([]);
  await fails(container.items.create({ id: "a", pk: "k" }, { preTriggerInclude: ["t"] }), 400, /[Tt]rigger/);
});

check("direct mode is refused with what to set", async () => {
  const answer = await fetch(`${ENDPOINT}/addresses/?$resolveFor=docs&$filter=protocol eq rntbd&$partitionKeyRangeIds=0`);
  assert.equal(answer.status, 400);
  assert.match((await answer.json()).message, /gateway mode/);
});

check("vector and full-text policies are refused by name", async () => {
  const vectorEmbeddings = [{ path: "/v", dataType: "float32", dimensions: 3, distanceFunction: "cosine" }];
  await fails(made({ vectorEmbeddingPolicy: { vectorEmbeddings } }), 400, /vector/);
  await fails(made({ computedProperties: [{ name: "p", query: "SELECT VALUE c.n FROM c" }] }), 400, /computed/);
});
