// What every check uses: a name, a container of its own, clients, and the emulator's splits, merges and faults.
import { strict as assert } from "node:assert";
import { setTimeout as sleep } from "node:timers/promises";
import { CosmosClient } from "@azure/cosmos";

export { assert, sleep };

const WITHIN_MS = 45_000;
const AT_ONCE = 8;

const { COSMOS } = process.env;
export const ENDPOINT = /AccountEndpoint=([^;]+)/.exec(COSMOS)[1];
export const client = connect();
export const { database } = await client.databases.createIfNotExists({ id: "javascript" });

const checks = [];
let last = 0;

// A check: it passes unless it throws.
export function check(name, body) {
  checks.push({ name, body });
}

// A name that no other resource has.
export function unique(prefix) {
  return `${prefix}-${++last}`;
}

export function connect(options = {}) {
  return new CosmosClient({
    connectionString: COSMOS,
    consistencyLevel: "Session",
    ...options,
    connectionPolicy: { enableEndpointDiscovery: false, ...options.connectionPolicy },
  });
}

// A container of its own, partitioned by /pk unless the definition says otherwise.
export async function made(definition = {}, options = {}) {
  const { container } = await database.containers.create(
    { id: unique("container"), partitionKey: "/pk", ...definition },
    options,
  );
  return container;
}

// A container with these items.
export async function filled(items, definition = {}) {
  const container = await made(definition);
  const results = await container.items.executeBulkOperations(
    items.map((resourceBody) => ({ operationType: "Create", resourceBody, partitionKey: resourceBody.pk })),
  );
  for (const { response, error } of results) assert.equal(response?.statusCode, 201, error?.message);
  return container;
}

export const range = (count) => Array.from({ length: count }, (_, n) => n);
export const ids = (items) => items.map(({ id }) => id);
export const sorted = (values) => [...values].sort();

export async function all(container, query, options = {}) {
  return (await container.items.query(query, options).fetchAll()).resources;
}

// The pages of a query, empty ones left out.
export async function pages(container, query, options) {
  const iterator = container.items.query(query, options);
  const found = [];
  while (iterator.hasMoreResults()) {
    const { resources } = await iterator.fetchNext();
    if (resources?.length) found.push(resources);
  }
  return found;
}

// The changes up to the end of a feed, and the continuation there.
export async function drained(container, options) {
  const iterator = container.items.getChangeFeedIterator(options);
  const changes = [];
  for (;;) {
    const page = await iterator.readNext();
    if (page.statusCode === 304) return { changes, continuation: page.continuationToken };
    changes.push(...page.result);
  }
}

// The error of a promise that is to fail.
export async function fails(promise, code, words = /./) {
  const error = await promise.then(
    (value) => assert.fail(`there was no error, but ${JSON.stringify(value?.resource ?? value?.statusCode)}`),
    (found) => found,
  );
  assert.equal(error.code, code, error.message);
  assert.match(error.message, words);
  return error;
}

export const substatus = ({ headers }) => Number(headers["x-ms-substatus"]);

export async function ask(path, body, method = "POST") {
  const answer = await fetch(`${ENDPOINT}admin/${path}`, { method, body: body && JSON.stringify(body) });
  assert.equal(answer.status, 200, await answer.clone().text());
  return answer.json();
}

// Split a physical partition; returns the ids of its children.
export const split = async (container, partition) =>
  (await ask("split", { database: database.id, container: container.id, range: partition })).into;

// Merge two physical partitions that are next to each other; returns the id of the one in their place.
export const merge = async (container, ...ranges) =>
  (await ask("merge", { database: database.id, container: container.id, ranges })).into;

export async function partitionsOf(container) {
  return (await container.readPartitionKeyRanges().fetchAll()).resources;
}

async function run({ name, body }) {
  const late = new AbortController();
  const began = performance.now();
  const limit = sleep(WITHIN_MS, undefined, { signal: late.signal }).then(() => assert.fail(`not over in ${WITHIN_MS} ms`));
  const error = await Promise.race([body(), limit]).then(() => null, (found) => found?.stack ?? String(found));
  limit.catch(() => {});
  late.abort();
  console.log(JSON.stringify({ check: name, error, ms: Math.round(performance.now() - began) }));
}

// Run every check, some at a time, and print a line of JSON for each.
export async function main(only) {
  const waiting = checks.filter(({ name }) => !only || name.includes(only));
  const work = async () => {
    for (let next = waiting.shift(); next; next = waiting.shift()) await run(next);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  process.exit(0);
}
