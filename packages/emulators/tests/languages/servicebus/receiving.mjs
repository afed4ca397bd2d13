// Receiving in both modes.
import {
  assert,
  bodies,
  check,
  client,
  counts,
  eventually,
  fails,
  queue,
  receive,
  remaining,
  send,
} from "./harness.mjs";

check("a received message is locked for others", async () => {
  const name = await queue();
  await send(name, "x");
  const [message] = await receive(client.createReceiver(name));
  assert.equal(message.body, "x");
  assert.deepEqual(await remaining(client.createReceiver(name)), []);
  assert.equal((await counts(name)).locked, 1);
});

check("what is received and deleted is gone", async () => {
  const name = await queue();
  await send(name, "x", "y");
  const receiver = client.createReceiver(name, { receiveMode: "receiveAndDelete" });
  assert.deepEqual(bodies(await receive(receiver, 2)), ["x", "y"]);
  const { active, locked } = await counts(name);
  assert.deepEqual({ active, locked }, { active: 0, locked: 0 });
});

check("what was received and deleted cannot be settled", async () => {
  const name = await queue();
  await send(name, "x");
  const receiver = client.createReceiver(name, { receiveMode: "receiveAndDelete" });
  const [message] = await receive(receiver);
  assert.equal(message.lockToken, undefined);
  await assert.rejects(receiver.completeMessage(message), /receiveAndDelete/);
});

check("nothing is received from an empty queue", async () => {
  assert.deepEqual(await remaining(client.createReceiver(await queue())), []);
});

check("no more than what was asked for is received", async () => {
  const name = await queue();
  await send(name, 1, 2, 3);
  const receiver = client.createReceiver(name);
  assert.equal((await receiver.receiveMessages(2)).length, 2);
  await eventually(async () => (await counts(name)).active === 1);
});

check("a receiver that waits gets what is sent later", async () => {
  const name = await queue();
  const waiting = client.createReceiver(name).receiveMessages(1, { maxWaitTimeInMs: 5_000 });
  await send(name, "late");
  assert.deepEqual(bodies(await waiting), ["late"]);
});

check("two receivers share the messages of a queue", async () => {
  const name = await queue();
  await send(name, 1, 2);
  const [first] = await receive(client.createReceiver(name));
  const [second] = await receive(client.createReceiver(name));
  assert.deepEqual([first.body, second.body], [1, 2]);
});

check("a message is still locked after its receiver was closed", async () => {
  const name = await queue();
  await send(name, "x");
  const receiver = client.createReceiver(name);
  await receive(receiver);
  await receiver.close();
  assert.deepEqual(await remaining(client.createReceiver(name)), []);
});

check("the iterator of a receiver yields the messages in order", async () => {
  const name = await queue();
  await send(name, 1, 2, 3);
  const receiver = client.createReceiver(name);
  const found = [];
  for await (const message of receiver.getMessageIterator({ maxWaitTimeInMs: 2_000 })) {
    found.push(message.body);
    await receiver.completeMessage(message);
    if (found.length === 3) break;
  }
  assert.deepEqual(found, [1, 2, 3]);
  assert.equal((await counts(name)).locked, 0);
});

check("renewing a lock moves its end", async () => {
  const name = await queue({ lockDuration: "PT5S" });
  await send(name, "x");
  const receiver = client.createReceiver(name, { maxAutoLockRenewalDurationInMs: 0 });
  const [message] = await receive(receiver);
  const before = message.lockedUntilUtc.getTime();
  const until = await receiver.renewMessageLock(message);
  assert.ok(until.getTime() > before);
  assert.equal(message.lockedUntilUtc.getTime(), until.getTime());
});

check("the lock of a completed message cannot be renewed", async () => {
  const name = await queue();
  await send(name, "x");
  const receiver = client.createReceiver(name);
  const [message] = await receive(receiver);
  await receiver.completeMessage(message);
  await fails(receiver.renewMessageLock(message), "MessageLockLost");
});

check("an expired message is not received", async () => {
  const name = await queue();
  await send(name, { body: "short", timeToLive: 50 }, { body: "long" });
  await eventually(async () => (await counts(name)).active === 1);
  assert.deepEqual(bodies(await receive(client.createReceiver(name))), ["long"]);
});

check("the time to live of the queue limits that of the message", async () => {
  const name = await queue({ defaultMessageTimeToLive: "PT10S" });
  await send(name, { body: "x", timeToLive: 3_600_000 });
  const [message] = await receive(client.createReceiver(name));
  assert.equal(message.expiresAtUtc - message.enqueuedTimeUtc, 10_000);
});

check("a message without a time to live has that of the queue", async () => {
  const name = await queue({ defaultMessageTimeToLive: "PT10S" });
  await send(name, "x");
  const [message] = await receive(client.createReceiver(name));
  assert.equal(message.expiresAtUtc - message.enqueuedTimeUtc, 10_000);
});
