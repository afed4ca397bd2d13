// Sessions: who has them, and in which order their messages come.
import {
  assert,
  bodies,
  check,
  client,
  connect,
  counts,
  eventually,
  failure,
  fails,
  inject,
  queue,
  receive,
  remaining,
  send,
  topic,
} from "./harness.mjs";

const ofSession = (sessionId, ...found) => found.map((body) => ({ body, sessionId }));

async function chats(...messages) {
  const name = await queue({ requiresSession: true });
  await send(name, ...messages);
  return name;
}

check("a session is accepted by its id", async () => {
  const name = await chats(...ofSession("a", 1), ...ofSession("b", 2));
  const session = await client.acceptSession(name, "b");
  assert.equal(session.sessionId, "b");
  const [message] = await receive(session);
  assert.deepEqual([message.body, message.sessionId], [2, "b"]);
  assert.deepEqual(await remaining(session), []);
});

check("a session is accepted before it has messages", async () => {
  const name = await chats();
  const session = await client.acceptSession(name, "early");
  await send(name, { body: "x", sessionId: "early" });
  assert.deepEqual(bodies(await receive(session)), ["x"]);
});

check("the next session is one that has messages", async () => {
  const name = await chats(...ofSession("only", 1));
  const session = await client.acceptNextSession(name);
  assert.equal(session.sessionId, "only");
  assert.deepEqual(bodies(await receive(session)), [1]);
});

check("the next session is never one that is locked", async () => {
  const name = await chats(...ofSession("a", 1), ...ofSession("b", 2));
  const sessions = [await client.acceptNextSession(name), await client.acceptNextSession(name)];
  assert.deepEqual(sessions.map((session) => session.sessionId).sort(), ["a", "b"]);
});

check("waiting for a next session ends with a timeout", async () => {
  const impatient = connect({ retry: { timeoutInMs: 300 } });
  await fails(impatient.acceptNextSession(await chats()), "ServiceTimeout");
  await impatient.close();
});

check("who waits for a session gets the one that comes", async () => {
  const name = await chats();
  const waiting = client.acceptNextSession(name);
  await send(name, { body: "x", sessionId: "late" });
  assert.equal((await waiting).sessionId, "late");
});

check("a locked session cannot be accepted", async () => {
  const name = await chats(...ofSession("a", 1));
  await client.acceptSession(name, "a");
  await fails(client.acceptSession(name, "a"), "SessionCannotBeLocked");
});

check("a closed session can be accepted again, with what was not completed", async () => {
  const name = await chats(...ofSession("a", 1, 2));
  const first = await client.acceptSession(name, "a");
  const [message] = await receive(first, 1);
  await first.completeMessage(message);
  await first.close();
  const second = await client.acceptSession(name, "a");
  assert.deepEqual(bodies(await receive(second)), [2]);
});

check("a session's messages come in order", async () => {
  const numbers = Array.from({ length: 30 }, (_, index) => index);
  const name = await chats();
  await client.createSender(name).sendMessages(ofSession("a", ...numbers));
  assert.deepEqual(bodies(await receive(await client.acceptSession(name, "a"), 30)), numbers);
});

check("an abandoned message is the next of its session", async () => {
  const name = await chats(...ofSession("a", 1, 2, 3));
  const session = await client.acceptSession(name, "a");
  const [message] = await receive(session);
  await session.abandonMessage(message);
  const found = await receive(session, 3);
  assert.deepEqual(bodies(found), [1, 2, 3]);
  assert.deepEqual(
    found.map(({ deliveryCount }) => deliveryCount),
    [1, 0, 0],
  );
});

check("two sessions are received side by side", async () => {
  const name = await chats(...ofSession("a", 1, 2), ...ofSession("b", 3, 4));
  const [a, b] = [await client.acceptSession(name, "a"), await client.acceptSession(name, "b")];
  assert.deepEqual(
    [bodies(await receive(b, 2)), bodies(await receive(a, 2))],
    [
      [3, 4],
      [1, 2],
    ],
  );
});

check("a session is received and deleted", async () => {
  const name = await chats(...ofSession("a", 1, 2));
  const session = await client.acceptSession(name, "a", { receiveMode: "receiveAndDelete" });
  assert.deepEqual(bodies(await receive(session, 2)), [1, 2]);
  assert.equal((await counts(name)).active, 0);
});

check("a message of a session is deferred, and received by its number", async () => {
  const name = await chats(...ofSession("a", 1, 2));
  const session = await client.acceptSession(name, "a");
  const [message] = await receive(session);
  await session.deferMessage(message);
  assert.deepEqual(bodies(await receive(session)), [2]);
  const [again] = await session.receiveDeferredMessages(message.sequenceNumber);
  await session.completeMessage(again);
  assert.equal((await counts(name)).deferred, 0);
});

check("the lock of a session lasts as long as the queue says", async () => {
  const name = await queue({ requiresSession: true, lockDuration: "PT30S" });
  const session = await client.acceptSession(name, "a");
  const left = session.sessionLockedUntilUtc - Date.now();
  assert.ok(left > 25_000 && left <= 31_000, `${left} ms`);
});

check("renewing a session's lock moves its end", async () => {
  const name = await chats(...ofSession("a", 1));
  const session = await client.acceptSession(name, "a", { maxAutoLockRenewalDurationInMs: 0 });
  const before = session.sessionLockedUntilUtc;
  const until = await session.renewSessionLock();
  assert.ok(until > before);
});

check("a lost session lock fails what is done with it", async () => {
  const name = await chats(...ofSession("a", 1));
  const session = await client.acceptSession(name, "a", { maxAutoLockRenewalDurationInMs: 0 });
  const [message] = await receive(session);
  await inject("expire-locks", name);
  // What it settles while the detach is on its way is never answered: the client waits a minute for that.
  await eventually(() => session.isClosed);
  await fails(session.completeMessage(message), "SessionLockLost");
  await fails(session.renewSessionLock(), "SessionLockLost");
});

check("a session is accepted by another once its lock is lost", async () => {
  const name = await chats(...ofSession("a", 1));
  const session = await client.acceptSession(name, "a", { maxAutoLockRenewalDurationInMs: 0 });
  await receive(session);
  await inject("expire-locks", name);
  const [again] = await receive(await client.acceptSession(name, "a"));
  assert.deepEqual([again.body, again.deliveryCount], [1, 1]);
});

check("a queue with sessions has no receiver without one", async () => {
  const receiver = client.createReceiver(await chats(...ofSession("a", 1)));
  await fails(receiver.receiveMessages(1), "GeneralError", /^InvalidOperationError: .*session/);
});

check("a queue without sessions has no session to accept", async () => {
  // The client names another reason if the link is attached before it is refused.
  const error = await failure(client.acceptSession(await queue(), "a"));
  assert.match(error.code, /^(GeneralError|SessionCannotBeLocked)$/);
});

check("a session of a subscription is accepted", async () => {
  const name = await topic({ all: { requiresSession: true } });
  await send(name, ...ofSession("a", 1, 2));
  const session = await client.acceptNextSession(name, "all");
  assert.deepEqual([session.sessionId, bodies(await receive(session, 2))], ["a", [1, 2]]);
});

check("a scheduled message arrives in its session", async () => {
  const name = await chats();
  await client.createSender(name).scheduleMessages({ body: "x", sessionId: "a" }, new Date(Date.now() + 150));
  const session = await client.acceptNextSession(name);
  assert.deepEqual([session.sessionId, bodies(await receive(session))], ["a", ["x"]]);
});

check("a session is subscribed to, in order, one message at a time", async () => {
  const name = await chats(...ofSession("a", 1, 2, 3));
  const session = await client.acceptSession(name, "a");
  const found = [];
  await new Promise((resolve, reject) => {
    session.subscribe({
      processMessage: async ({ body }) => {
        found.push(body);
        if (found.length === 3) resolve();
      },
      processError: async ({ error }) => reject(error),
    });
  });
  await eventually(async () => (await counts(name)).completed === 3);
  await session.close();
  assert.deepEqual(found, [1, 2, 3]);
});
