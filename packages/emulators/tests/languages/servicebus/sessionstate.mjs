// The state that is kept with a session.
import { assert, check, client, fails, inject, queue, receive, send } from "./harness.mjs";

const session = async (name) => client.acceptSession(name ?? (await queue({ requiresSession: true })), "s");

check("a session has no state at first", async () => {
  assert.equal(await (await session()).getSessionState(), null);
});

check("a session's state is read as it was set", async () => {
  const accepted = await session();
  for (const state of [{ step: 1 }, "text", { list: [1, 2] }]) {
    await accepted.setSessionState(state);
    assert.deepEqual(await accepted.getSessionState(), state);
  }
});

check("a session's state is read by the next receiver", async () => {
  const name = await queue({ requiresSession: true });
  const first = await session(name);
  await first.setSessionState("kept");
  await first.close();
  assert.equal(await (await session(name)).getSessionState(), "kept");
});

check("a session's state is cleared", async () => {
  const accepted = await session();
  await accepted.setSessionState("x");
  await accepted.setSessionState(null);
  assert.equal(await accepted.getSessionState(), null);
});

check("a session's state outlives its messages", async () => {
  const name = await queue({ requiresSession: true });
  await send(name, { body: "x", sessionId: "s" });
  const first = await session(name);
  await first.completeMessage((await receive(first))[0]);
  await first.setSessionState("kept");
  await first.close();
  assert.equal(await (await session(name)).getSessionState(), "kept");
});

check("a session's state needs its lock", async () => {
  const name = await queue({ requiresSession: true });
  const accepted = await client.acceptSession(name, "s", { maxAutoLockRenewalDurationInMs: 0 });
  await inject("expire-locks", name);
  await fails(accepted.setSessionState("x"), "SessionLockLost");
  await fails(accepted.getSessionState(), "SessionLockLost");
});
