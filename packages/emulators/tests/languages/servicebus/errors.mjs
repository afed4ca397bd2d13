// What goes wrong has the code that the service's errors have.
import {
  administration,
  assert,
  bodies,
  check,
  client,
  connect,
  connectionStrings,
  failure,
  fails,
  queue,
  receive,
  send,
  topic,
} from "./harness.mjs";

const NOT_FOUND = "MessagingEntityNotFound";

check("a sender to a queue that is not there", async () => {
  await fails(
    client.createSender("no-such").sendMessages({ body: "x" }),
    NOT_FOUND,
    /no-such' could not be found/,
  );
});

check("a receiver of a queue that is not there", async () => {
  await fails(client.createReceiver("no-such").receiveMessages(1), NOT_FOUND);
});

check("a receiver of a subscription that is not there", async () => {
  await fails(client.createReceiver(await topic(), "no-such").receiveMessages(1), NOT_FOUND);
});

check("peeking in a queue that is not there", async () => {
  await fails(client.createReceiver("no-such").peekMessages(1), NOT_FOUND);
});

check("scheduling on a queue that is not there", async () => {
  await fails(
    client.createSender("no-such").scheduleMessages({ body: "x" }, new Date(Date.now() + 60_000)),
    NOT_FOUND,
  );
});

check("accepting a session of a queue that is not there", async () => {
  await fails(client.acceptSession("no-such", "s"), NOT_FOUND);
});

check("a queue that is deleted under a sender", async () => {
  const name = await queue();
  const own = connect({ retry: { maxRetries: 3, timeoutInMs: 3_000 } });
  const sender = own.createSender(name);
  await sender.sendMessages({ body: "x" });
  await administration.deleteQueue(name);
  await fails(sender.sendMessages({ body: "y" }), NOT_FOUND);
  await own.close();
});

check("a wrong key", async () => {
  const stranger = connect({
    connectionString: connectionStrings.plain.replace("SharedAccessKey=", "SharedAccessKey=no"),
  });
  await fails(stranger.createSender(await queue()).sendMessages({ body: "x" }), "UnauthorizedAccess");
  await stranger.close();
});

check("a wrong key's name", async () => {
  const stranger = connect({ connectionString: connectionStrings.plain.replace("RootManage", "No") });
  await fails(stranger.createReceiver(await queue()).receiveMessages(1), "UnauthorizedAccess");
  await stranger.close();
});

check("sending to a queue that takes nothing", async () => {
  const name = await queue({ status: "SendDisabled" });
  await fails(client.createSender(name).sendMessages({ body: "x" }), "MessagingEntityDisabled");
});

check("receiving from a queue that gives nothing", async () => {
  const name = await queue({ status: "ReceiveDisabled" });
  await send(name, "x");
  await fails(client.createReceiver(name).receiveMessages(1), "MessagingEntityDisabled");
});

check("a queue that is disabled and active again", async () => {
  const name = await queue();
  const properties = await administration.getQueue(name);
  await administration.updateQueue({ ...properties, status: "Disabled" });
  await fails(client.createSender(name).sendMessages({ body: "x" }), "MessagingEntityDisabled");
  await administration.updateQueue({ ...properties, status: "Active" });
  await send(name, "x");
  assert.deepEqual(bodies(await receive(client.createReceiver(name))), ["x"]);
});

check("receiving from a topic", async () => {
  await failure(client.createReceiver(await topic()).receiveMessages(1));
});
