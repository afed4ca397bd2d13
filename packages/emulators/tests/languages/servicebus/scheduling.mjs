// Messages that are enqueued later.
import Long from "long";
import {
  assert,
  bodies,
  check,
  client,
  counts,
  fails,
  queue,
  receive,
  remaining,
  send,
  topic,
} from "./harness.mjs";

const later = (ms = 60_000) => new Date(Date.now() + ms);

check("a scheduled message arrives at its time, not before", async () => {
  const name = await queue();
  const due = later(200);
  const [number] = await client.createSender(name).scheduleMessages({ body: "x" }, due);
  assert.ok(Long.isLong(number));
  const [received] = await receive(client.createReceiver(name));
  assert.equal(received.body, "x");
  assert.ok(received.enqueuedTimeUtc >= due);
});

check("scheduled messages are peeked with their state and time", async () => {
  const name = await queue();
  const due = later();
  const numbers = await client.createSender(name).scheduleMessages([{ body: 1 }, { body: 2 }], due);
  const peeked = await client.createReceiver(name).peekMessages(5);
  assert.deepEqual(bodies(peeked), [1, 2]);
  assert.deepEqual(
    peeked.map((message) => message.state),
    ["scheduled", "scheduled"],
  );
  assert.deepEqual(
    peeked.map((message) => String(message.sequenceNumber)),
    numbers.map(String),
  );
  assert.equal(peeked[0].scheduledEnqueueTimeUtc.getTime(), due.getTime());
});

check("a cancelled message does not arrive", async () => {
  const name = await queue();
  const sender = client.createSender(name);
  const [number] = await sender.scheduleMessages({ body: "x" }, later());
  await sender.cancelScheduledMessages(number);
  const { active, scheduled } = await counts(name);
  assert.deepEqual({ active, scheduled }, { active: 0, scheduled: 0 });
});

check("several messages are cancelled at once", async () => {
  const name = await queue();
  const sender = client.createSender(name);
  const numbers = await sender.scheduleMessages([{ body: 1 }, { body: 2 }, { body: 3 }], later());
  await sender.cancelScheduledMessages(numbers);
  assert.equal((await counts(name)).scheduled, 0);
});

check("cancelling a message that is not there is an error", async () => {
  const sender = client.createSender(await queue());
  await fails(sender.cancelScheduledMessages(Long.fromNumber(12_345)), "MessageNotFound");
});

check("a message is scheduled by its property too", async () => {
  const name = await queue();
  await send(
    name,
    { body: "later", scheduledEnqueueTimeUtc: later() },
    { body: "soon", scheduledEnqueueTimeUtc: later(50) },
  );
  assert.deepEqual(bodies(await receive(client.createReceiver(name))), ["soon"]);
  assert.equal((await counts(name)).scheduled, 1);
});

check("a message scheduled for the past arrives at once", async () => {
  const name = await queue();
  await client.createSender(name).scheduleMessages({ body: "x" }, later(-60_000));
  assert.deepEqual(bodies(await receive(client.createReceiver(name))), ["x"]);
});

check("a message scheduled on a topic reaches its subscription", async () => {
  const name = await topic();
  await client.createSender(name).scheduleMessages({ body: "x" }, later(200));
  assert.deepEqual(bodies(await receive(client.createReceiver(name, "all"))), ["x"]);
});

check("a scheduled message keeps its properties", async () => {
  const name = await queue();
  const sent = { body: { a: 1 }, messageId: "m", subject: "s", correlationId: "c" };
  await client.createSender(name).scheduleMessages({ ...sent, applicationProperties: { n: 1 } }, later(100));
  const [{ body, messageId, subject, correlationId, applicationProperties }] = await receive(
    client.createReceiver(name),
  );
  assert.deepEqual({ body, messageId, subject, correlationId }, sent);
  assert.deepEqual({ ...applicationProperties }, { n: 1 });
});

check("scheduling on a queue with sessions needs a session", async () => {
  const name = await queue({ requiresSession: true });
  const sender = client.createSender(name);
  await fails(sender.scheduleMessages({ body: "x" }, later()), "GeneralError", /^InvalidOperationError/);
  await sender.scheduleMessages({ body: "x", sessionId: "s" }, later());
  assert.equal((await counts(name)).scheduled, 1);
});

check("a duplicate of a scheduled message is dropped", async () => {
  const name = await queue({ requiresDuplicateDetection: true });
  const sender = client.createSender(name);
  await sender.scheduleMessages({ body: "x", messageId: "a" }, later());
  await sender.sendMessages({ body: "y", messageId: "a" });
  assert.deepEqual(await remaining(client.createReceiver(name)), []);
});
