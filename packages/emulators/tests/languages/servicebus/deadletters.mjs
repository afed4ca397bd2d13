// Dead-letter queues, and the ways into them.
import {
  assert,
  bodies,
  check,
  client,
  counts,
  deadLetters,
  eventually,
  failure,
  queue,
  receive,
  remaining,
  send,
} from "./harness.mjs";

async function deadLettered(
  options = {},
  settings = { deadLetterReason: "why", deadLetterErrorDescription: "because" },
) {
  const name = await queue(options);
  await send(name, { body: "x", messageId: "m", applicationProperties: { kept: 1 } });
  const receiver = client.createReceiver(name);
  const [message] = await receive(receiver);
  await receiver.deadLetterMessage(message, settings);
  return name;
}

check("a dead-lettered message is received with its reason", async () => {
  const name = await deadLettered();
  const [message] = await receive(deadLetters(name));
  assert.deepEqual([message.deadLetterReason, message.deadLetterErrorDescription], ["why", "because"]);
  assert.deepEqual([message.body, message.messageId, message.applicationProperties.kept], ["x", "m", 1]);
});

check("dead-lettering changes application properties", async () => {
  const name = await deadLettered({}, { deadLetterReason: "why", added: "yes" });
  const [message] = await receive(deadLetters(name));
  assert.equal(message.applicationProperties.added, "yes");
  assert.equal(message.deadLetterReason, "why");
});

check("a message is dead-lettered without a reason", async () => {
  const [message] = await receive(deadLetters(await deadLettered({}, {})));
  assert.equal(message.body, "x");
  assert.equal(message.deadLetterReason, undefined);
});

check("a dead letter that was not forwarded names no source", async () => {
  const [message] = await receive(deadLetters(await deadLettered()));
  assert.equal(message.deadLetterSource, undefined);
});

check("a dead letter is completed", async () => {
  const name = await deadLettered();
  const receiver = deadLetters(name);
  await receiver.completeMessage((await receive(receiver))[0]);
  assert.equal((await counts(name)).dead_letter, 0);
});

check("abandoning a dead letter counts no delivery", async () => {
  const receiver = deadLetters(await deadLettered());
  const [message] = await receive(receiver);
  assert.equal(message.deliveryCount, 0);
  await receiver.abandonMessage(message);
  assert.equal((await receive(receiver))[0].deliveryCount, 0);
});

check("a dead letter is deferred", async () => {
  const receiver = deadLetters(await deadLettered());
  const [message] = await receive(receiver);
  await receiver.deferMessage(message);
  assert.deepEqual(bodies(await receiver.receiveDeferredMessages(message.sequenceNumber)), ["x"]);
});

check("a dead letter cannot be dead-lettered", async () => {
  const receiver = deadLetters(await deadLettered());
  const [message] = await receive(receiver);
  await failure(receiver.deadLetterMessage(message));
});

check("dead letters are peeked", async () => {
  const name = await deadLettered();
  const [message] = await deadLetters(name).peekMessages(5);
  assert.equal(message.deadLetterReason, "why");
  assert.deepEqual(await client.createReceiver(name).peekMessages(5), []);
});

check("dead letters are received and deleted", async () => {
  const name = await deadLettered();
  const receiver = client.createReceiver(name, {
    subQueueType: "deadLetter",
    receiveMode: "receiveAndDelete",
  });
  assert.deepEqual(bodies(await receive(receiver)), ["x"]);
  assert.equal((await counts(name)).dead_letter, 0);
});

check("too many deliveries dead-letter a message", async () => {
  const name = await queue({ maxDeliveryCount: 2 });
  await send(name, "x");
  const receiver = client.createReceiver(name);
  for (const _ of [1, 2]) await receiver.abandonMessage((await receive(receiver))[0]);
  assert.deepEqual(await remaining(receiver), []);
  const [message] = await receive(deadLetters(name));
  assert.equal(message.deadLetterReason, "MaxDeliveryCountExceeded");
  assert.match(
    message.deadLetterErrorDescription,
    /Message could not be (be )?consumed after 2 delivery attempts/,
  );
});

check("an expired message is dead-lettered where the queue asks for it", async () => {
  const name = await queue({ deadLetteringOnMessageExpiration: true });
  await send(name, { body: "x", timeToLive: 50 });
  await eventually(async () => (await counts(name)).dead_letter === 1);
  const [message] = await receive(deadLetters(name));
  assert.equal(message.deadLetterReason, "TTLExpiredException");
  assert.match(message.deadLetterErrorDescription, /expired and was dead lettered/);
});

check("an expired message is dropped where the queue does not ask for it", async () => {
  const name = await queue();
  await send(name, { body: "x", timeToLive: 50 });
  await eventually(async () => (await counts(name)).active === 0);
  assert.equal((await counts(name)).dead_letter, 0);
});

check("the dead letters of a queue with sessions need no session", async () => {
  const name = await queue({ requiresSession: true });
  await send(name, { body: "x", sessionId: "s" });
  const session = await client.acceptSession(name, "s");
  await session.deadLetterMessage((await receive(session))[0], { deadLetterReason: "why" });
  const [message] = await receive(deadLetters(name));
  assert.deepEqual([message.sessionId, message.deadLetterReason], ["s", "why"]);
});
