// What every check uses: a name, entities of its own, clients, and the emulator's faults.
import { strict as assert } from "node:assert";
import { setTimeout as sleep } from "node:timers/promises";
import { ServiceBusAdministrationClient, ServiceBusClient } from "@azure/service-bus";

export { assert, sleep };

export const WITHIN_MS = 45_000;
const AT_ONCE = 12;
const CHECKS_PER_CLIENT = 15;
const RETRIES = { maxRetries: 0, timeoutInMs: 30_000, retryDelayInMs: 20, maxRetryDelayInMs: 20 };

const { SERVICEBUS, SECURE, HTTPS, ADMIN } = process.env;
export const connectionStrings = { plain: SERVICEBUS, secure: SECURE, https: HTTPS };
export const administration = new ServiceBusAdministrationClient(HTTPS);
export let client = connect();

const checks = [];
let last = 0;

// A check: it passes unless it throws. `t` makes entities that no other check uses.
export function check(name, body) {
  checks.push({ name, body });
}

// A name that no other entity has.
export function unique(prefix) {
  return `${prefix}-${++last}`;
}

// A client; without a client of its own a check cannot cut or misuse a connection.
export function connect({ connectionString = SERVICEBUS, retry = {}, ...options } = {}) {
  return new ServiceBusClient(connectionString, { retryOptions: { ...RETRIES, ...retry }, ...options });
}

export async function queue(options = {}) {
  const name = unique("queue");
  await administration.createQueue(name, options);
  return name;
}

// A topic with subscriptions, each with its options and rules; without rules it takes everything.
export async function topic(subscriptions = { all: {} }, options = {}) {
  const name = unique("topic");
  await administration.createTopic(name, options);
  for (const [subscription, { rules, ...settings }] of Object.entries(subscriptions)) {
    const [first, ...others] = Object.entries(rules ?? {});
    const rule = first && { name: first[0], ...first[1] };
    await administration.createSubscription(name, subscription, {
      ...settings,
      ...(rule && { defaultRuleOptions: rule }),
    });
    for (const [ruleName, { filter, action }] of others) {
      await (action
        ? administration.createRule(name, subscription, ruleName, filter, action)
        : administration.createRule(name, subscription, ruleName, filter));
    }
  }
  return name;
}

export async function send(entity, ...messages) {
  const sender = client.createSender(entity);
  for (const message of messages) {
    await sender.sendMessages(
      typeof message === "object" && !Array.isArray(message) ? message : { body: message },
    );
  }
  await sender.close();
}

// Up to `count` messages of a receiver, waiting until they are there.
export async function receive(receiver, count = 1, maxWaitTimeInMs = 30_000) {
  const found = [];
  while (found.length < count) {
    const more = await receiver.receiveMessages(count - found.length, { maxWaitTimeInMs });
    if (!more.length) break;
    found.push(...more);
  }
  return found;
}

// What is left for another receiver, after a short wait.
export const remaining = (receiver) => receive(receiver, 1, 150);

export const bodies = (messages) => messages.map((message) => message.body);
export const deadLetters = (entity, ...rest) =>
  client.createReceiver(entity, ...rest, { subQueueType: "deadLetter" });

// The part of an object that has the keys of another.
export const some = (found, wanted) =>
  Object.fromEntries(Object.keys(wanted).map((key) => [key, found[key]]));

// The error of a promise that is to fail; of an operation that was repeated, the last.
export async function failure(promise) {
  return promise.then(
    (value) => assert.fail(`there was no error, but ${JSON.stringify(value)}`),
    (error) => error.errors?.at(-1) ?? error,
  );
}

export async function fails(promise, code, words = /./) {
  const error = await failure(promise);
  assert.equal(error.code, code, error.message);
  assert.match(error.message, words);
  return error;
}

export async function eventually(condition) {
  while (!(await condition())) await sleep(25);
}

async function ask(path, method = "GET", body = undefined) {
  const answer = await fetch(ADMIN + path, { method, body: body && JSON.stringify(body) });
  assert.equal(answer.status, 200, await answer.clone().text());
  return answer.json();
}

export async function inject(kind, entity, options = {}) {
  const { id } = await ask("/admin/faults", "POST", { kind, entity, ...options });
  return {
    applied: async () => (await ask(`/admin/faults/${id}`)).applied,
    end: () => ask(`/admin/faults/${id}`, "DELETE"),
  };
}

export const counts = async (path) => (await ask("/admin/entities"))[path];

async function run({ name, body }) {
  const late = new AbortController();
  const began = performance.now();
  const limit = sleep(WITHIN_MS, undefined, { signal: late.signal }).then(() =>
    assert.fail(`not over in ${WITHIN_MS} ms`),
  );
  const error = await Promise.race([body(), limit]).then(
    () => null,
    (found) => found?.stack ?? String(found),
  );
  limit.catch(() => {});
  late.abort();
  console.log(JSON.stringify({ check: name, error, ms: Math.round(performance.now() - began) }));
}

// Run every check, some at a time, and print a line of JSON for each.
export async function main(only) {
  const waiting = checks.filter(({ name }) => !only || name.includes(only));
  const work = async () => {
    for (let next = waiting.shift(); next; next = waiting.shift()) {
      // The more links a connection has, the slower this client is.
      if (waiting.length % CHECKS_PER_CLIENT === 0) client = connect();
      await run(next);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  process.exit(0);
}
