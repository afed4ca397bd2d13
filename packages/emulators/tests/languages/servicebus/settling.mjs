// Complete, abandon, defer, and what delivery counts show of it.
import Long from "long";
import {
  assert,
  bodies,
  check,
  client,
  counts,
  eventually,
  fails,
  inject,
  queue,
  receive,
  remaining,
  send,
} from "./harness.mjs";

async function received(options = {}, message = "x") {
  const name = await queue(options);
  await send(name, message);
  const receiver = client.createReceiver(name, { maxAutoLockRenewalDurationInMs: 0 });
  const [first] = await receive(receiver);
  return { name, receiver, message: first };
}

async function deferred(options) {
  const { name, receiver, message } = await received(options);
  await receiver.deferMessage(message);
  return { name, receiver, number: message.sequenceNumber };
}

check("a completed message is gone", async () => {
  const { name, receiver, message } = await received();
  await receiver.completeMessage(message);
  const { active, locked, completed } = await counts(name);
  assert.deepEqual({ active, locked, completed }, { active: 0, locked: 0, completed: 1 });
});

check("a message is settled once only", async () => {
  const { receiver, message } = await received();
  await receiver.completeMessage(message);
  await assert.rejects(receiver.completeMessage(message), /already settled/);
});

check("an abandoned message comes again, with one more delivery", async () => {
  const { receiver, message } = await received();
  const found = [message.deliveryCount];
  for (let next = message, left = 3; left; left--) {
    await receiver.abandonMessage(next);
    [next] = await receive(receiver);
    found.push(next.deliveryCount);
  }
  assert.deepEqual(found, [0, 1, 2, 3]);
});

check("abandoning changes application properties", async () => {
  const sent = { body: "x", applicationProperties: { kept: 1, changed: "old" } };
  const { receiver, message } = await received({}, sent);
  await receiver.abandonMessage(message, { changed: "new", added: true });
  const [again] = await receive(receiver);
  assert.deepEqual({ ...again.applicationProperties }, { kept: 1, changed: "new", added: true });
});

check("an abandoned message keeps its place in the order", async () => {
  const { name, receiver, message } = await received();
  await send(name, "y");
  await receiver.abandonMessage(message);
  assert.deepEqual(bodies(await receive(receiver, 2)), ["x", "y"]);
});

check("a deferred message is received by its number only", async () => {
  const { receiver, number } = await deferred();
  assert.deepEqual(await remaining(receiver), []);
  const [message] = await receiver.receiveDeferredMessages(number);
  assert.equal(message.body, "x");
  assert.equal(message.state, "deferred");
  await receiver.completeMessage(message);
});

check("a deferred message that is completed is gone", async () => {
  const { name, receiver, number } = await deferred();
  const [message] = await receiver.receiveDeferredMessages(number);
  await receiver.completeMessage(message);
  assert.equal((await counts(name)).deferred, 0);
  await fails(receiver.receiveDeferredMessages(number), "MessageNotFound");
});

check("several deferred messages are received together", async () => {
  const name = await queue();
  await send(name, 1, 2, 3);
  const receiver = client.createReceiver(name);
  const messages = await receive(receiver, 3);
  for (const message of messages) await receiver.deferMessage(message);
  const again = await receiver.receiveDeferredMessages(messages.map((message) => message.sequenceNumber));
  assert.deepEqual(bodies(again), [1, 2, 3]);
});

check("deferring counts as a delivery", async () => {
  const { receiver, number } = await deferred();
  const [message] = await receiver.receiveDeferredMessages(number);
  assert.equal(message.deliveryCount, 1);
});

check("an abandoned deferred message stays deferred, with one more delivery", async () => {
  const { receiver, number } = await deferred();
  const [message] = await receiver.receiveDeferredMessages(number);
  await receiver.abandonMessage(message);
  const [again] = await receiver.receiveDeferredMessages(number);
  assert.equal(again.deliveryCount, 2);
  assert.deepEqual(await remaining(receiver), []);
});

check("deferring again keeps a message deferred", async () => {
  const { receiver, number } = await deferred();
  const [message] = await receiver.receiveDeferredMessages(number);
  await receiver.deferMessage(message);
  assert.equal((await receiver.receiveDeferredMessages(number)).length, 1);
});

check("a deferred message is dead-lettered", async () => {
  const { name, receiver, number } = await deferred();
  const [message] = await receiver.receiveDeferredMessages(number);
  await receiver.deadLetterMessage(message);
  assert.equal((await counts(name)).dead_letter, 1);
});

check("deferring changes application properties", async () => {
  const { receiver, message } = await received();
  await receiver.deferMessage(message, { why: "later" });
  const [again] = await receiver.receiveDeferredMessages(message.sequenceNumber);
  assert.deepEqual({ ...again.applicationProperties }, { why: "later" });
});

check("deferred messages are received and deleted", async () => {
  const { name, number } = await deferred();
  const receiver = client.createReceiver(name, { receiveMode: "receiveAndDelete" });
  assert.deepEqual(bodies(await receiver.receiveDeferredMessages(number)), ["x"]);
  assert.equal((await counts(name)).deferred, 0);
});

check("a deferred message that is not there is an error", async () => {
  const receiver = client.createReceiver(await queue());
  await fails(receiver.receiveDeferredMessages(Long.fromNumber(99)), "MessageNotFound");
});

check("a message is received again once its lock expired", async () => {
  const { name, receiver } = await received();
  await inject("expire-locks", name);
  const [again] = await receive(receiver);
  assert.equal(again.deliveryCount, 1);
});

check("what is done with an expired lock fails", async () => {
  const { name, receiver, message } = await received();
  await inject("expire-locks", name);
  await fails(receiver.completeMessage(message), "MessageLockLost");
});

check("an expired lock cannot be renewed", async () => {
  const { name, receiver, message } = await received();
  await inject("expire-locks", name);
  await fails(receiver.renewMessageLock(message), "MessageLockLost");
});

check("a message is completed after its receiver was closed", async () => {
  const { name, receiver, message } = await received();
  await receiver.close();
  await client.createReceiver(name).completeMessage(message);
  await eventually(async () => (await counts(name)).completed === 1);
});

check("a message is deferred after its receiver was closed", async () => {
  const { name, receiver, message } = await received();
  await receiver.close();
  await client.createReceiver(name).deferMessage(message);
  await eventually(async () => (await counts(name)).deferred === 1);
});
