// The administration client: lists, and rules.
import { administration, assert, check, fails, queue, topic } from "./harness.mjs";

async function all(iterator) {
  const found = [];
  for await (const each of iterator) found.push(each);
  return found;
}

check("queues are listed, with those that were made", async () => {
  const made = [await queue(), await queue()];
  const listed = (await all(administration.listQueues())).map(({ name }) => name);
  assert.deepEqual(
    made.filter((name) => !listed.includes(name)),
    [],
  );
});

check("queues are listed page by page", async () => {
  const made = [await queue(), await queue(), await queue()];
  const listed = [];
  for await (const page of administration.listQueues().byPage({ maxPageSize: 50 })) {
    assert.ok(page.length <= 50);
    listed.push(...page.map(({ name }) => name));
  }
  assert.deepEqual(
    made.filter((name) => !listed.includes(name)),
    [],
  );
});

check("queues are listed with their counts", async () => {
  const name = await queue();
  const found = (await all(administration.listQueuesRuntimeProperties())).find((each) => each.name === name);
  assert.equal(found.totalMessageCount, 0);
});

check("topics are listed, with their counts", async () => {
  const name = await topic({ a: {}, b: {} });
  assert.ok((await all(administration.listTopics())).some((each) => each.name === name));
  const found = (await all(administration.listTopicsRuntimeProperties())).find((each) => each.name === name);
  assert.equal(found.subscriptionCount, 2);
});

check("the subscriptions of a topic are listed, with their counts", async () => {
  const name = await topic({ a: {}, b: {}, c: {} });
  const listed = await all(administration.listSubscriptions(name));
  assert.deepEqual(
    listed.map((each) => each.subscriptionName),
    ["a", "b", "c"],
  );
  const found = await all(administration.listSubscriptionsRuntimeProperties(name));
  assert.deepEqual(
    found.map((each) => each.totalMessageCount),
    [0, 0, 0],
  );
});

check("a subscription has a rule that takes everything", async () => {
  const [rule, ...others] = await all(administration.listRules(await topic(), "all"));
  assert.deepEqual(others, []);
  assert.equal(rule.name, "$Default");
  assert.equal(rule.filter.sqlExpression, "1=1");
});

check("an SQL rule is read as it was made", async () => {
  const name = await topic();
  const filter = {
    sqlExpression: "price > @least AND name = @name",
    sqlParameters: { "@least": 3, "@name": "Zoë" },
  };
  await administration.createRule(name, "all", "sql", filter, { sqlExpression: "SET dear = 1" });
  const rule = await administration.getRule(name, "all", "sql");
  assert.equal(rule.filter.sqlExpression, filter.sqlExpression);
  assert.deepEqual(rule.filter.sqlParameters, filter.sqlParameters);
  assert.equal(rule.action.sqlExpression, "SET dear = 1");
});

check("a correlation rule is read as it was made", async () => {
  const name = await topic();
  const filter = {
    correlationId: "c",
    messageId: "m",
    to: "t",
    replyTo: "r",
    subject: "s",
    sessionId: "i",
    replyToSessionId: "j",
    contentType: "text/plain",
    applicationProperties: {
      text: "Zoë",
      whole: 3,
      part: 1.5,
      yes: true,
      when: new Date("2020-02-03T04:05:06Z"),
    },
  };
  await administration.createRule(name, "all", "correlation", filter);
  assert.deepEqual((await administration.getRule(name, "all", "correlation")).filter, filter);
});

check("a rule is changed", async () => {
  const name = await topic();
  const rule = await administration.getRule(name, "all", "$Default");
  await administration.updateRule(name, "all", { ...rule, filter: { subject: "s" } });
  assert.equal((await administration.getRule(name, "all", "$Default")).filter.subject, "s");
});

check("a rule is deleted", async () => {
  const name = await topic();
  await administration.createRule(name, "all", "more", { sqlExpression: "1=1" });
  await administration.deleteRule(name, "all", "$Default");
  assert.deepEqual(
    (await all(administration.listRules(name, "all"))).map((rule) => rule.name),
    ["more"],
  );
});

check("a rule with an SQL expression that is wrong is not made", async () => {
  await fails(
    administration.createRule(await topic(), "all", "wrong", { sqlExpression: "price >" }),
    "ServiceError",
  );
});
