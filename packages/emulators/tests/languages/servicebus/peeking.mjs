// Peeking changes nothing.
import Long from "long";
import { assert, bodies, check, client, counts, queue, receive, send } from "./harness.mjs";

check("peeking neither locks nor counts a delivery", async () => {
  const name = await queue();
  await send(name, "x");
  const receiver = client.createReceiver(name);
  const [peeked] = await receiver.peekMessages(1);
  assert.deepEqual([peeked.body, peeked.lockToken, peeked.state], ["x", undefined, "active"]);
  assert.equal((await receive(receiver))[0].deliveryCount, 0);
});

check("peeking goes on where it stopped", async () => {
  const name = await queue();
  await send(name, 1, 2, 3, 4);
  const receiver = client.createReceiver(name);
  const found = [
    bodies(await receiver.peekMessages(2)),
    bodies(await receiver.peekMessages(5)),
    await receiver.peekMessages(1),
  ];
  assert.deepEqual(found, [[1, 2], [3, 4], []]);
});

check("peeking begins at a sequence number", async () => {
  const name = await queue();
  await send(name, 1, 2, 3);
  const receiver = client.createReceiver(name);
  assert.deepEqual(
    bodies(await receiver.peekMessages(5, { fromSequenceNumber: Long.fromNumber(2) })),
    [2, 3],
  );
});

check("locked and deferred messages are peeked too", async () => {
  const name = await queue();
  await send(name, "locked", "deferred", "free");
  const receiver = client.createReceiver(name);
  const [, second] = await receive(receiver, 2);
  await receiver.deferMessage(second);
  const peeked = await client.createReceiver(name).peekMessages(5);
  assert.deepEqual(
    peeked.map(({ body, state }) => [body, state]),
    [
      ["locked", "active"],
      ["deferred", "deferred"],
      ["free", "active"],
    ],
  );
});

check("an empty queue has nothing to peek", async () => {
  assert.deepEqual(await client.createReceiver(await queue()).peekMessages(5), []);
});

check("a session's receiver peeks its session only", async () => {
  const name = await queue({ requiresSession: true });
  await send(name, { body: 1, sessionId: "a" }, { body: 2, sessionId: "b" }, { body: 3, sessionId: "a" });
  const session = await client.acceptSession(name, "a");
  assert.deepEqual(bodies(await session.peekMessages(5)), [1, 3]);
});

check("a queue with sessions is peeked without one", async () => {
  const name = await queue({ requiresSession: true });
  await send(name, { body: 1, sessionId: "a" }, { body: 2, sessionId: "b" });
  assert.deepEqual(bodies(await client.createReceiver(name).peekMessages(5)), [1, 2]);
  assert.equal((await counts(name)).active, 2);
});
