// The administration client: what an entity is when nothing is said about it.
import { administration, assert, check, some, topic, unique } from "./harness.mjs";

const FOREVER = "P10675199DT2H48M5.4775807S";

check("the namespace is described", async () => {
  const found = await administration.getNamespaceProperties();
  assert.equal(found.messagingSku, "Standard");
  assert.ok(found.createdAt instanceof Date && !Number.isNaN(found.createdAt.getTime()));
});

check("a subscription has the service's defaults", async () => {
  const name = await topic({});
  const wanted = {
    topicName: name,
    subscriptionName: "s",
    lockDuration: "PT1M",
    requiresSession: false,
    defaultMessageTimeToLive: FOREVER,
    deadLetteringOnMessageExpiration: false,
    deadLetteringOnFilterEvaluationExceptions: true,
    maxDeliveryCount: 10,
    enableBatchedOperations: true,
    autoDeleteOnIdle: FOREVER,
    status: "Active",
  };
  assert.deepEqual(some(await administration.createSubscription(name, "s"), wanted), wanted);
});

check("a topic has the service's defaults", async () => {
  const wanted = {
    defaultMessageTimeToLive: FOREVER,
    maxSizeInMegabytes: 1024,
    requiresDuplicateDetection: false,
    duplicateDetectionHistoryTimeWindow: "PT10M",
    enableBatchedOperations: true,
    supportOrdering: true,
    autoDeleteOnIdle: FOREVER,
    enablePartitioning: false,
    status: "Active",
    availabilityStatus: "Available",
  };
  assert.deepEqual(some(await administration.createTopic(unique("topic")), wanted), wanted);
});

check("a queue has the service's defaults", async () => {
  const wanted = {
    lockDuration: "PT1M",
    maxSizeInMegabytes: 1024,
    requiresDuplicateDetection: false,
    requiresSession: false,
    defaultMessageTimeToLive: FOREVER,
    deadLetteringOnMessageExpiration: false,
    duplicateDetectionHistoryTimeWindow: "PT10M",
    maxDeliveryCount: 10,
    enableBatchedOperations: true,
    autoDeleteOnIdle: FOREVER,
    enablePartitioning: false,
    status: "Active",
    availabilityStatus: "Available",
    forwardTo: undefined,
    userMetadata: undefined,
  };
  assert.deepEqual(some(await administration.createQueue(unique("queue")), wanted), wanted);
});
