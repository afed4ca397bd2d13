// Handlers that are called for each message.
import { assert, check, client, counts, eventually, queue, send, sleep } from "./harness.mjs";

async function filled(count, options) {
  const name = await queue(options);
  await client
    .createSender(name)
    .sendMessages(Array.from({ length: count }, (_, index) => ({ body: index })));
  return name;
}

// Subscribe until `done` says so; returns the bodies, and the errors.
async function handled(name, { done, processMessage = async () => {}, ...options }) {
  const receiver = client.createReceiver(name);
  const found = { bodies: [], errors: [] };
  receiver.subscribe(
    {
      processMessage: async (message) => {
        found.bodies.push(message.body);
        await processMessage(message, receiver);
      },
      processError: async ({ error, errorSource }) => found.errors.push({ error, errorSource }),
    },
    options,
  );
  await eventually(() => done(found));
  await receiver.close();
  return found;
}

check("a handler that returns completes its message", async () => {
  const name = await filled(5);
  const found = await handled(name, { done: async () => (await counts(name)).completed === 5 });
  assert.deepEqual(found, { bodies: [0, 1, 2, 3, 4], errors: [] });
});

check("a handler that throws abandons its message, up to the limit", async () => {
  const name = await filled(1, { maxDeliveryCount: 3 });
  const processMessage = async () => {
    throw new Error("no");
  };
  const found = await handled(name, {
    processMessage,
    done: async () => (await counts(name)).dead_letter === 1,
  });
  assert.deepEqual(found.bodies, [0, 0, 0]);
  assert.deepEqual(
    found.errors.map(({ error, errorSource }) => [error.message, errorSource]),
    Array(3).fill(["no", "processMessageCallback"]),
  );
});

check("messages stay locked without autoCompleteMessages", async () => {
  const name = await filled(2);
  const found = await handled(name, {
    autoCompleteMessages: false,
    maxConcurrentCalls: 2,
    done: ({ bodies }) => bodies.length === 2,
  });
  assert.equal(found.errors.length, 0);
  assert.equal((await counts(name)).locked, 2);
});

check("a handler settles by itself", async () => {
  const name = await filled(2);
  const processMessage = (message, receiver) =>
    message.body ? receiver.completeMessage(message) : receiver.deadLetterMessage(message);
  await handled(name, {
    processMessage,
    done: async () => (await counts(name)).completed === 1 && (await counts(name)).dead_letter === 1,
  });
});

check("no more handlers run at once than maxConcurrentCalls", async () => {
  const name = await filled(12);
  let running = 0;
  let most = 0;
  const processMessage = async () => {
    most = Math.max(most, ++running);
    await sleep(20);
    running -= 1;
  };
  await handled(name, {
    processMessage,
    maxConcurrentCalls: 4,
    done: async () => (await counts(name)).completed === 12,
  });
  assert.equal(most, 4);
});

check("a subscription by a handler gets what is sent later", async () => {
  const name = await queue();
  const work = handled(name, { done: async () => (await counts(name)).completed === 3 });
  await send(name, "a", "b", "c");
  assert.deepEqual((await work).bodies, ["a", "b", "c"]);
});

check("after it is closed a subscription gets nothing", async () => {
  const name = await filled(1);
  await handled(name, { done: async () => (await counts(name)).completed === 1 });
  await send(name, "x");
  assert.equal((await counts(name)).active, 1);
});

check("200 messages are handled once each", async () => {
  const name = await filled(200);
  const found = await handled(name, {
    maxConcurrentCalls: 20,
    done: async () => (await counts(name)).completed === 200,
  });
  assert.equal(new Set(found.bodies).size, 200);
  assert.equal(found.bodies.length, 200);
});
