// Entities that forward what they get.
import {
  administration,
  assert,
  bodies,
  check,
  client,
  counts,
  fails,
  queue,
  receive,
  send,
  topic,
  unique,
} from "./harness.mjs";

check("a queue forwards what it gets", async () => {
  const target = await queue();
  const name = await queue({ forwardTo: target });
  await send(name, { body: "x", messageId: "m" });
  const [message] = await receive(client.createReceiver(target));
  assert.deepEqual([message.body, message.messageId], ["x", "m"]);
  assert.equal((await counts(name)).active, 0);
});

check("a subscription forwards what it takes", async () => {
  const target = await queue();
  const name = await topic({ all: { forwardTo: target } });
  await send(name, "x");
  assert.deepEqual(bodies(await receive(client.createReceiver(target))), ["x"]);
});

check("a queue that forwards is not received from", async () => {
  const name = await queue({ forwardTo: await queue() });
  await fails(client.createReceiver(name).receiveMessages(1), "GeneralError", /^InvalidOperationError/);
});

check("dead letters are forwarded, and name their source", async () => {
  const target = await queue();
  const name = await queue({ forwardDeadLetteredMessagesTo: target });
  await send(name, "x");
  const receiver = client.createReceiver(name);
  await receiver.deadLetterMessage((await receive(receiver))[0], { deadLetterReason: "why" });
  const [message] = await receive(client.createReceiver(target));
  assert.deepEqual([message.deadLetterReason, message.deadLetterSource], ["why", name]);
});

check("a queue is read with where it forwards to", async () => {
  const target = await queue();
  const name = unique("queue");
  await administration.createQueue(name, { forwardTo: target, forwardDeadLetteredMessagesTo: target });
  const { forwardTo, forwardDeadLetteredMessagesTo } = await administration.getQueue(name);
  for (const found of [forwardTo, forwardDeadLetteredMessagesTo])
    assert.ok(found.endsWith(`/${target}`), found);
});

check("a queue cannot forward to what is not there", async () => {
  await fails(administration.createQueue(unique("queue"), { forwardTo: "no-such" }), "ServiceError");
});
