// Add up the items that were ordered, in a file of JSON lines: node consumer.mjs FILE. SIGTERM and Ctrl-C stop it.
import { appendFileSync, existsSync, readFileSync } from "node:fs";
import { setTimeout as pause } from "node:timers/promises";
import { ServiceBusClient } from "@azure/service-bus";

const SIGNS = { OrderPlaced: 1, OrderCancelled: -1 };
const SESSIONS = 4;
const PAUSE_MS = 10_000;

const file = process.argv[2];
const client = new ServiceBusClient(process.env.SERVICEBUS, {
  // A wait for the next session ends after this time. The SDK would repeat it after a pause.
  retryOptions: { maxRetries: 0, timeoutInMs: 5000 },
});
const stopping = new AbortController();
for (const signal of ["SIGTERM", "SIGINT"]) process.once(signal, () => stopping.abort());

/** What was handled: the lines of the file, except one that a crash has cut. */
function* read() {
  for (const line of existsSync(file) ? readFileSync(file, "utf8").split("\n") : []) {
    try {
      yield JSON.parse(line);
    } catch {
      continue;
    }
  }
}

// An id is unique within its session.
const keyOf = ({ session, id }) => JSON.stringify([session, id]);
const handled = new Set([...read()].map(keyOf));

/** Store the effect and the message's id, which are one line; return false if they were stored before. */
function once(message, effect) {
  const line = { session: message.sessionId, id: message.messageId, ...effect };
  if (handled.has(keyOf(line))) return false;
  appendFileSync(file, `\n${JSON.stringify(line)}`, { flush: true });
  handled.add(keyOf(line));
  return true;
}

function handle(message) {
  const sign = SIGNS[message.subject];
  if (sign === undefined) return;
  const { item, quantity } = message.body;
  const first = once(message, { item, quantity: sign * quantity });
  console.log(first ? "handled" : "repeated", message.messageId);
}

/** Handle the messages of one session, in order, until there are none. The SDK renews its lock for five minutes. */
async function handleSession(session) {
  try {
    while (!stopping.signal.aborted) {
      const [message] = await session.receiveMessages(1, { maxWaitTimeInMs: 1000 });
      if (message === undefined) return;
      handle(message);
      await session.completeMessage(message);
    }
  } catch (error) {
    await report(error); // the message comes again, before its successors
  } finally {
    await session.close();
  }
}

/** Print an error, and wait before the next attempt. */
async function report(error) {
  console.error(error.code ?? error.name, error.message);
  await pause(PAUSE_MS, undefined, { signal: stopping.signal }).catch(() => {});
}

async function work() {
  while (!stopping.signal.aborted) {
    try {
      await handleSession(await client.acceptNextSession("domain-events", "all"));
    } catch (error) {
      if (error.code !== "ServiceTimeout") await report(error); // otherwise no session has messages
    }
  }
}

await Promise.all(Array.from({ length: SESSIONS }, work));
await client.close();
