// The administration client: entities made, read, changed and deleted.
import {
  administration,
  assert,
  bodies,
  check,
  client,
  connectionStrings,
  counts,
  fails,
  queue,
  receive,
  remaining,
  send,
  some,
  topic,
  unique,
} from "./harness.mjs";
import { ServiceBusAdministrationClient } from "@azure/service-bus";

check("a queue is read as it was made", async () => {
  const name = unique("queue");
  const wanted = {
    lockDuration: "PT45S",
    requiresDuplicateDetection: true,
    requiresSession: true,
    defaultMessageTimeToLive: "P1D",
    deadLetteringOnMessageExpiration: true,
    duplicateDetectionHistoryTimeWindow: "PT5M",
    maxDeliveryCount: 7,
    autoDeleteOnIdle: "PT1H",
    userMetadata: "mine & <yours>",
    enablePartitioning: true,
  };
  await administration.createQueue(name, wanted);
  assert.deepEqual(some(await administration.getQueue(name), wanted), wanted);
});

check("a queue is changed", async () => {
  const name = await queue();
  const properties = await administration.getQueue(name);
  await administration.updateQueue({ ...properties, lockDuration: "PT30S", maxDeliveryCount: 3 });
  const { lockDuration, maxDeliveryCount } = await administration.getQueue(name);
  assert.deepEqual([lockDuration, maxDeliveryCount], ["PT30S", 3]);
});

check("what is fixed when a queue is made cannot be changed", async () => {
  const properties = await administration.getQueue(await queue());
  await fails(administration.updateQueue({ ...properties, requiresSession: true }), "ServiceError");
});

check("a topic is changed", async () => {
  const name = await topic();
  const properties = await administration.getTopic(name);
  await administration.updateTopic({
    ...properties,
    userMetadata: "changed",
    defaultMessageTimeToLive: "PT1H",
  });
  const { userMetadata, defaultMessageTimeToLive } = await administration.getTopic(name);
  assert.deepEqual([userMetadata, defaultMessageTimeToLive], ["changed", "PT1H"]);
});

check("a subscription is changed", async () => {
  const name = await topic();
  const properties = await administration.getSubscription(name, "all");
  await administration.updateSubscription({
    ...properties,
    maxDeliveryCount: 4,
    deadLetteringOnMessageExpiration: true,
  });
  const { maxDeliveryCount, deadLetteringOnMessageExpiration } = await administration.getSubscription(
    name,
    "all",
  );
  assert.deepEqual([maxDeliveryCount, deadLetteringOnMessageExpiration], [4, true]);
});

check("entities exist until they are deleted", async () => {
  const [queueName, topicName] = [await queue(), await topic()];
  const exist = () =>
    Promise.all([
      administration.queueExists(queueName),
      administration.topicExists(topicName),
      administration.subscriptionExists(topicName, "all"),
      administration.ruleExists(topicName, "all", "$Default"),
    ]);
  assert.deepEqual(await exist(), [true, true, true, true]);
  await administration.deleteQueue(queueName);
  await administration.deleteSubscription(topicName, "all");
  await administration.deleteTopic(topicName);
  assert.deepEqual(await exist(), [false, false, false, false]);
});

check("an entity that is not there is not read, changed or deleted", async () => {
  const code = "MessageEntityNotFoundError";
  await fails(administration.getQueue("no-such"), code);
  await fails(administration.getTopic("no-such"), code);
  await fails(administration.getSubscription(await topic(), "no-such"), code);
  await fails(administration.getRule(await topic(), "all", "no-such"), code);
  await fails(administration.deleteQueue("no-such"), code);
  await fails(
    administration.updateQueue({ ...(await administration.getQueue(await queue())), name: "no-such" }),
    code,
  );
});

check("an entity is made once only", async () => {
  const code = "MessageEntityAlreadyExistsError";
  const [queueName, topicName] = [await queue(), await topic()];
  await fails(administration.createQueue(queueName), code);
  await fails(administration.createTopic(topicName), code);
  await fails(administration.createTopic(queueName), code);
  await fails(administration.createSubscription(topicName, "all"), code);
  await fails(administration.createRule(topicName, "all", "$Default", { sqlExpression: "1=1" }), code);
});

check("a queue with a wrong value is not made", async () => {
  for (const wrong of [
    { lockDuration: "PT10M" },
    { maxDeliveryCount: 0 },
    { defaultMessageTimeToLive: "soon" },
  ]) {
    await fails(administration.createQueue(unique("queue"), wrong), "ServiceError");
  }
});

check("a wrong key is refused with 401", async () => {
  const wrong = connectionStrings.https.replace("SharedAccessKey=", "SharedAccessKey=no");
  const error = await fails(
    new ServiceBusAdministrationClient(wrong).getQueue(await queue()),
    "UnauthorizedRequestError",
  );
  assert.equal(error.statusCode, 401);
});

check("a queue's counts are shown", async () => {
  const name = await queue();
  await send(name, "a", "b", "c", { body: "d", scheduledEnqueueTimeUtc: new Date(Date.now() + 60_000) });
  const receiver = client.createReceiver(name);
  const [first] = await receive(receiver, 2);
  await receiver.deadLetterMessage(first);
  const found = await administration.getQueueRuntimeProperties(name);
  const wanted = {
    name,
    totalMessageCount: 4,
    activeMessageCount: 2,
    deadLetterMessageCount: 1,
    scheduledMessageCount: 1,
    transferMessageCount: 0,
    transferDeadLetterMessageCount: 0,
  };
  assert.deepEqual(some(found, wanted), wanted);
  assert.ok(found.sizeInBytes > 0);
  for (const moment of [found.createdAt, found.modifiedAt, found.accessedAt])
    assert.ok(Math.abs(moment - Date.now()) < 60_000);
});

check("a topic's and a subscription's counts are shown", async () => {
  const name = await topic({ a: {}, b: {} });
  await send(name, "x", { body: "d", scheduledEnqueueTimeUtc: new Date(Date.now() + 60_000) });
  const ofTopic = { subscriptionCount: 2, scheduledMessageCount: 1 };
  assert.deepEqual(some(await administration.getTopicRuntimeProperties(name), ofTopic), ofTopic);
  const ofSubscription = {
    totalMessageCount: 1,
    activeMessageCount: 1,
    deadLetterMessageCount: 0,
    subscriptionName: "a",
  };
  assert.deepEqual(
    some(await administration.getSubscriptionRuntimeProperties(name, "a"), ofSubscription),
    ofSubscription,
  );
});

check("a queue that was changed works as it is set up", async () => {
  const name = await queue();
  const properties = await administration.getQueue(name);
  await administration.updateQueue({ ...properties, maxDeliveryCount: 1 });
  await send(name, "x");
  const receiver = client.createReceiver(name);
  await receiver.abandonMessage((await receive(receiver))[0]);
  assert.deepEqual(await remaining(receiver), []);
  assert.equal((await counts(name)).dead_letter, 1);
});

check("a queue is made again after it was deleted, and is empty", async () => {
  const name = await queue();
  await send(name, "old");
  await administration.deleteQueue(name);
  await administration.createQueue(name);
  await send(name, "new");
  assert.deepEqual(bodies(await receive(client.createReceiver(name))), ["new"]);
});

check("a name with a path is an entity of its own", async () => {
  const name = `${unique("path")}/to/queue`;
  await administration.createQueue(name);
  await send(name, "x");
  assert.deepEqual(bodies(await receive(client.createReceiver(name))), ["x"]);
  assert.equal((await administration.getQueue(name)).name, name);
});
