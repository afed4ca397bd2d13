// The limits of the Standard tier.
import { assert, bodies, check, client, connect, counts, fails, queue, receive } from "./harness.mjs";

const LARGEST = 256 * 1024;

check("a batch takes what the link announces", async () => {
  const batch = await client.createSender(await queue()).createMessageBatch();
  assert.equal(batch.maxSizeInBytes, LARGEST);
});

check("a batch that is full takes no more, and is sent", async () => {
  const name = await queue();
  const sender = client.createSender(name);
  const batch = await sender.createMessageBatch();
  const body = Buffer.alloc(50_000);
  while (batch.tryAddMessage({ body }));
  assert.equal(batch.count, 5);
  await sender.sendMessages(batch);
  assert.equal((await counts(name)).active, 5);
});

check("a batch larger than the link allows cannot be made", async () => {
  const sender = client.createSender(await queue());
  await assert.rejects(sender.createMessageBatch({ maxSizeInBytes: LARGEST + 1 }), /[Mm]ax.*size/);
});

check("a message just below the limit is accepted", async () => {
  const name = await queue();
  const body = Buffer.alloc(LARGEST - 1_000, 7);
  await client.createSender(name).sendMessages({ body });
  assert.deepEqual(bodies(await receive(client.createReceiver(name))), [body]);
});

check("a message above the limit is refused as too large", async () => {
  const name = await queue();
  const sent = client.createSender(name).sendMessages({ body: Buffer.alloc(LARGEST + 1) });
  await fails(sent, "MessageSizeExceeded");
  assert.equal((await counts(name)).active, 0);
});

check("an array of messages above the limit is refused whole", async () => {
  const name = await queue();
  const messages = Array.from({ length: 6 }, () => ({ body: Buffer.alloc(50_000) }));
  await fails(client.createSender(name).sendMessages(messages), "MessageSizeExceeded");
  assert.equal((await counts(name)).active, 0);
});

check("a sender goes on after an oversized message", async () => {
  const name = await queue();
  // The link is detached after the refusal: the client opens another when it tries again.
  const own = connect({ retry: { maxRetries: 3 } });
  const sender = own.createSender(name);
  await fails(sender.sendMessages({ body: Buffer.alloc(LARGEST + 1) }), "MessageSizeExceeded");
  await sender.sendMessages({ body: "small" });
  await own.close();
  assert.deepEqual(bodies(await receive(client.createReceiver(name))), ["small"]);
});

check("a session id of more than 128 characters is refused", async () => {
  const sender = client.createSender(await queue());
  await assert.rejects(sender.sendMessages({ body: "x", sessionId: "s".repeat(129) }), /128/);
});
