// What is sent arrives as it was sent.
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

async function roundTrip(message) {
  const name = await queue();
  await send(name, message);
  // Without the last option this client gives dates as numbers.
  const options = { receiveMode: "receiveAndDelete", skipConvertingDate: true };
  const [received] = await receive(client.createReceiver(name, options));
  return received;
}

check("a string is received as sent", async () => {
  assert.equal((await roundTrip({ body: "Zoë ✓" })).body, "Zoë ✓");
});

check("an object is received as sent", async () => {
  const body = { id: 1, nested: { list: [1, 2.5, null, true] } };
  assert.deepEqual((await roundTrip({ body })).body, body);
});

check("a number is received as sent", async () => {
  assert.equal((await roundTrip({ body: 42 })).body, 42);
});

check("bytes are received as sent", async () => {
  const body = Buffer.from([0, 255, 1, 254]);
  assert.deepEqual((await roundTrip({ body })).body, body);
});

check("a message without a body is received", async () => {
  assert.ok([undefined, null].includes((await roundTrip({ body: undefined, messageId: "empty" })).body));
});

check("a value body keeps its type", async () => {
  const received = await roundTrip({ body: { a: 1, b: "two" }, bodyType: "value" });
  assert.deepEqual(received.body, { a: 1, b: "two" });
  assert.equal(received._rawAmqpMessage.bodyType, "value");
});

check("a sequence body keeps its elements", async () => {
  const received = await roundTrip({ body: [1, "two", true], bodyType: "sequence" });
  assert.deepEqual(received.body, [1, "two", true]);
  assert.equal(received._rawAmqpMessage.bodyType, "sequence");
});

check("every broker property is received as sent", async () => {
  const sent = {
    body: "x",
    messageId: "id-1",
    correlationId: "correlation-1",
    subject: "OrderPlaced",
    contentType: "application/json",
    to: "somewhere",
    replyTo: "answers",
    replyToSessionId: "session-2",
    sessionId: "session-1",
    partitionKey: "session-1",
    timeToLive: 60_000,
  };
  const received = await roundTrip(sent);
  assert.deepEqual(Object.fromEntries(Object.keys(sent).map((key) => [key, received[key]])), sent);
});

check("application properties keep their types", async () => {
  const when = new Date("2020-02-03T04:05:06.789Z");
  const applicationProperties = { text: "Zoë", whole: 7, part: 1.5, yes: true, when, nothing: null };
  const received = await roundTrip({ body: "x", applicationProperties });
  assert.deepEqual(received.applicationProperties, applicationProperties);
});

check("a large whole number in the application properties is exact", async () => {
  const applicationProperties = { large: 2 ** 40, negative: -(2 ** 40) };
  assert.deepEqual(
    (await roundTrip({ body: "x", applicationProperties })).applicationProperties,
    applicationProperties,
  );
});

check("a message id that is a number is received as sent", async () => {
  assert.equal(String((await roundTrip({ body: "x", messageId: 17 })).messageId), "17");
});

check("a message without an id is given one", async () => {
  const { messageId } = await roundTrip({ body: "x" });
  assert.match(String(messageId), /^[0-9a-f]{32}$|^[0-9a-f-]{36}$/);
});

check("a message has what the service adds", async () => {
  const before = Date.now();
  const name = await queue();
  await send(name, { body: "x", timeToLive: 30_000 });
  const [received] = await receive(client.createReceiver(name));
  const enqueued = received.enqueuedTimeUtc.getTime();
  assert.ok(Math.abs(enqueued - before) < 5_000);
  assert.equal(received.expiresAtUtc.getTime(), enqueued + 30_000);
  assert.equal(received.sequenceNumber.toNumber(), 1);
  assert.equal(received.deliveryCount, 0);
  assert.equal(received.state, "active");
  assert.match(received.lockToken, /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/);
  const locked = received.lockedUntilUtc.getTime() - Date.now();
  assert.ok(locked > 50_000 && locked <= 61_000, `locked for ${locked} ms`);
});

check("sequence numbers follow the order of sending", async () => {
  const name = await queue();
  await send(name, "a", "b", "c");
  const received = await receive(client.createReceiver(name), 3);
  assert.deepEqual(bodies(received), ["a", "b", "c"]);
  assert.deepEqual(
    received.map((message) => message.sequenceNumber.toNumber()),
    [1, 2, 3],
  );
});

check("an array of messages is sent as one batch", async () => {
  const name = await queue();
  const sender = client.createSender(name);
  await sender.sendMessages(
    Array.from({ length: 20 }, (_, index) => ({ body: index, messageId: `m-${index}` })),
  );
  const received = await receive(client.createReceiver(name, { receiveMode: "receiveAndDelete" }), 20);
  assert.deepEqual(
    bodies(received),
    Array.from({ length: 20 }, (_, index) => index),
  );
  assert.equal(received[19].messageId, "m-19");
});

check("a batch is sent with what was added to it", async () => {
  const name = await queue();
  const sender = client.createSender(name);
  const batch = await sender.createMessageBatch();
  for (const body of ["a", "b", "c"])
    assert.equal(batch.tryAddMessage({ body, applicationProperties: { body } }), true);
  assert.equal(batch.count, 3);
  await sender.sendMessages(batch);
  const received = await receive(client.createReceiver(name), 3);
  assert.deepEqual(
    received.map((message) => message.applicationProperties.body),
    ["a", "b", "c"],
  );
});

check("many sends at once on one sender all arrive", async () => {
  const name = await queue();
  const sender = client.createSender(name);
  await Promise.all(Array.from({ length: 200 }, (_, index) => sender.sendMessages({ body: index })));
  const received = await receive(client.createReceiver(name, { receiveMode: "receiveAndDelete" }), 200);
  assert.deepEqual(
    bodies(received),
    Array.from({ length: 200 }, (_, index) => index),
  );
});

check("a message to a topic without subscriptions is accepted", async () => {
  const name = await topic({});
  await send(name, "x");
  assert.equal((await counts(name)).accepted, 1);
});

check("a queue with sessions refuses a message without a session", async () => {
  const name = await queue({ requiresSession: true });
  await fails(
    client.createSender(name).sendMessages({ body: "x" }),
    "GeneralError",
    /^InvalidOperationError: .*[Ss]ession/,
  );
});

check("a batch without a session is refused by a queue with sessions", async () => {
  const name = await queue({ requiresSession: true });
  const sent = client.createSender(name).sendMessages([{ body: "x" }, { body: "y" }]);
  await fails(sent, "GeneralError", /^InvalidOperationError/);
  assert.equal((await counts(name)).active, 0);
});

check("a queue without sessions takes messages with a session id", async () => {
  assert.equal((await roundTrip({ body: "x", sessionId: "s" })).sessionId, "s");
});

check("a duplicate is dropped where duplicates are detected", async () => {
  const name = await queue({ requiresDuplicateDetection: true });
  await send(
    name,
    { body: "first", messageId: "a" },
    { body: "second", messageId: "a" },
    { body: "b", messageId: "b" },
  );
  assert.deepEqual(bodies(await receive(client.createReceiver(name), 2)), ["first", "b"]);
  assert.equal((await counts(name)).duplicates_dropped, 1);
});

check("a duplicate is dropped after the first was completed", async () => {
  const name = await queue({ requiresDuplicateDetection: true });
  await send(name, { body: "first", messageId: "a" });
  const receiver = client.createReceiver(name, { receiveMode: "receiveAndDelete" });
  await receive(receiver);
  await send(name, { body: "again", messageId: "a" });
  assert.deepEqual(await remaining(receiver), []);
});

check("duplicates within one batch are dropped", async () => {
  const name = await queue({ requiresDuplicateDetection: true });
  await client
    .createSender(name)
    .sendMessages(["a", "b", "a"].map((messageId) => ({ body: messageId, messageId })));
  assert.deepEqual(bodies(await receive(client.createReceiver(name), 2)), ["a", "b"]);
  assert.equal((await counts(name)).duplicates_dropped, 1);
});

check("equal ids are no duplicates where they are not detected", async () => {
  const name = await queue();
  await send(name, { body: 1, messageId: "a" }, { body: 2, messageId: "a" });
  assert.deepEqual(bodies(await receive(client.createReceiver(name), 2)), [1, 2]);
});
