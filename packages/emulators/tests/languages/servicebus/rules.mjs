// Rules over AMQP, by the rule manager.
import { administration, assert, bodies, check, client, fails, receive, send, topic } from "./harness.mjs";

async function managed(subscriptions) {
  const name = await topic(subscriptions ?? { all: {} });
  return { name, manager: client.createRuleManager(name, "all") };
}

async function listed(manager) {
  const found = [];
  for await (const rule of manager.listRules()) found.push(rule);
  return found;
}

check("the rule manager lists the default rule", async () => {
  const { manager } = await managed();
  const [rule] = await listed(manager);
  assert.equal(rule.name, "$Default");
  assert.equal(rule.filter.sqlExpression, "1=1");
});

check("the rule manager adds an SQL rule that takes effect", async () => {
  const { name, manager } = await managed();
  await manager.deleteRule("$Default");
  await manager.createRule("dear", { sqlExpression: "price > 100" });
  await send(name, ...[50, 150].map((price) => ({ body: price, applicationProperties: { price } })));
  assert.deepEqual(bodies(await receive(client.createReceiver(name, "all"))), [150]);
});

check("the rule manager adds a correlation rule that takes effect", async () => {
  const { name, manager } = await managed();
  await manager.deleteRule("$Default");
  await manager.createRule("red", { subject: "red", applicationProperties: { size: 1 } });
  await send(
    name,
    { body: 1, subject: "red" },
    { body: 2, subject: "red", applicationProperties: { size: 1 } },
  );
  assert.deepEqual(bodies(await receive(client.createReceiver(name, "all"))), [2]);
});

check("the rule manager adds a rule with an action", async () => {
  const { name, manager } = await managed();
  await manager.deleteRule("$Default");
  await manager.createRule("marked", { sqlExpression: "1=1" }, { sqlExpression: "SET marked = 'yes'" });
  await send(name, "x");
  const [message] = await receive(client.createReceiver(name, "all"));
  assert.equal(message.applicationProperties.marked, "yes");
});

check("the rule manager lists what it added", async () => {
  const { manager } = await managed();
  await manager.createRule("sql", { sqlExpression: "a = 1" }, { sqlExpression: "SET b = 2" });
  await manager.createRule("correlation", { correlationId: "c", subject: "s" });
  const rules = Object.fromEntries((await listed(manager)).map((rule) => [rule.name, rule]));
  assert.deepEqual(Object.keys(rules).sort(), ["$Default", "correlation", "sql"]);
  assert.equal(rules.sql.filter.sqlExpression, "a = 1");
  assert.equal(rules.sql.action.sqlExpression, "SET b = 2");
  assert.deepEqual([rules.correlation.filter.correlationId, rules.correlation.filter.subject], ["c", "s"]);
});

check("the rule manager adds no rule twice", async () => {
  const { manager } = await managed();
  await manager.createRule("one", { subject: "a" });
  await fails(manager.createRule("one", { subject: "b" }), "MessagingEntityAlreadyExists");
});

check("the rule manager deletes no rule that is not there", async () => {
  const { manager } = await managed();
  await fails(manager.deleteRule("none"), "MessagingEntityNotFound");
});

check("the rule manager refuses an SQL filter that is wrong", async () => {
  const { manager } = await managed();
  await fails(manager.createRule("wrong", { sqlExpression: "price >" }), "GeneralError");
});

check("the administration client sees what the rule manager did", async () => {
  const { name, manager } = await managed();
  await manager.createRule("one", { sqlExpression: "a = 1" });
  assert.equal((await administration.getRule(name, "all", "one")).filter.sqlExpression, "a = 1");
});
