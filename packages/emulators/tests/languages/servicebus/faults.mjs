// What an application sees when the network or the service fails.
import {
  assert,
  bodies,
  check,
  client,
  connect,
  counts,
  eventually,
  fails,
  inject,
  queue,
  receive,
  send,
} from "./harness.mjs";

// A send in flight when the connection is cut waits for all of its timeout before it is repeated. On a slow machine
// other sends time out too: where a check counts, duplicates are detected.
const RETRY = { maxRetries: 4, timeoutInMs: 3_000 };

// A client of its own, as its connection is cut.
async function apart(body, retry = RETRY) {
  const own = connect({ retry });
  await body(own);
  await own.close();
}

check("a send is repeated when its acknowledgement is lost, and a duplicate dropped", () =>
  apart(async (own) => {
    const name = await queue({ requiresDuplicateDetection: true });
    const fault = await inject("cut-after-transfer", name);
    await own.createSender(name).sendMessages({ body: "x", messageId: "m" });
    assert.equal(await fault.applied(), 1);
    const { active, duplicates_dropped: dropped } = await counts(name);
    assert.equal(active, 1);
    assert.ok(dropped >= 1);
  }),
);

check("a send is repeated when the connection is cut before it", () =>
  apart(async (own) => {
    const name = await queue({ requiresDuplicateDetection: true });
    const fault = await inject("cut-before-transfer", name);
    await own.createSender(name).sendMessages({ body: "x", messageId: "m" });
    assert.equal(await fault.applied(), 1);
    assert.equal((await counts(name)).active, 1);
  }),
);

check("a send without retries fails when the connection is cut", () =>
  apart(
    async (own) => {
      const name = await queue();
      await inject("cut-before-transfer", name);
      await fails(own.createSender(name).sendMessages({ body: "x" }), "ServiceTimeout");
      assert.equal((await counts(name)).active, 0);
    },
    { timeoutInMs: 1_000 },
  ),
);

check("a throttled send is repeated", () =>
  apart(async (own) => {
    const name = await queue({ requiresDuplicateDetection: true });
    const fault = await inject("server-busy", name, { count: 2 });
    await own.createSender(name).sendMessages({ body: "x", messageId: "m" });
    assert.equal(await fault.applied(), 2);
    assert.equal((await counts(name)).active, 1);
  }),
);

check("a throttled send without retries says that the service is busy", () =>
  apart(async (own) => {
    const name = await queue();
    await inject("server-busy", name);
    await fails(own.createSender(name).sendMessages({ body: "x" }), "ServiceBusy");
  }, {}),
);

check("a detached link is opened again", () =>
  apart(async (own) => {
    const name = await queue({ requiresDuplicateDetection: true });
    const fault = await inject("detach-link", name);
    await own.createSender(name).sendMessages({ body: "x", messageId: "m" });
    assert.equal(await fault.applied(), 1);
    assert.equal((await counts(name)).active, 1);
  }),
);

check("a subscription goes on after its connection was cut", () =>
  apart(async (own) => {
    const name = await queue();
    const found = [];
    own
      .createReceiver(name)
      .subscribe({ processMessage: async ({ body }) => found.push(body), processError: async () => {} });
    await send(name, "before");
    await eventually(async () => (await counts(name)).completed === 1);
    await inject("cut-receiver", name);
    await send(name, "after");
    await eventually(() => found.includes("after"));
  }),
);

check("messages of a cut connection come again once their locks end", () =>
  apart(async (own) => {
    const name = await queue();
    await send(name, "x");
    await receive(own.createReceiver(name));
    await inject("cut-receiver", name);
    await inject("expire-locks", name);
    const [again] = await receive(own.createReceiver(name));
    assert.deepEqual([again.body, again.deliveryCount], ["x", 1]);
  }),
);

check("a session is free again after its receiver's connection was cut", () =>
  apart(async (own) => {
    const name = await queue({ requiresSession: true });
    await send(name, { body: "x", sessionId: "s" });
    await receive(await own.acceptSession(name, "s"));
    await inject("cut-receiver", name);
    const session = await client.acceptSession(name, "s");
    assert.deepEqual(bodies(await receive(session)), ["x"]);
  }),
);
