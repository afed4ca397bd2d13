// Topics: what their subscriptions take, and what rules do with it.
import {
  administration,
  assert,
  bodies,
  check,
  client,
  counts,
  deadLetters,
  eventually,
  receive,
  remaining,
  send,
  topic,
} from "./harness.mjs";

const sql = (sqlExpression, sqlParameters) => ({
  filter: { sqlExpression, ...(sqlParameters && { sqlParameters }) },
});
const correlation = (filter) => ({ filter });

// The bodies that a subscription with these rules takes of the messages.
async function taken(rules, ...messages) {
  const name = await topic({ filtered: { rules }, all: {} });
  await send(name, ...messages);
  await eventually(async () => (await counts(`${name}/Subscriptions/all`)).active === messages.length);
  const { active } = await counts(`${name}/Subscriptions/filtered`);
  const receiver = client.createReceiver(name, "filtered", { receiveMode: "receiveAndDelete" });
  return active ? receive(receiver, active) : [];
}

const priced = [10, 200, 150].map((price) => ({ body: price, applicationProperties: { price } }));

check("every subscription gets its own copy", async () => {
  const name = await topic({ first: {}, second: {} });
  await send(name, "x");
  const first = client.createReceiver(name, "first");
  await first.completeMessage((await receive(first))[0]);
  assert.deepEqual(bodies(await receive(client.createReceiver(name, "second"))), ["x"]);
});

check("a subscription takes only what is sent after it was made", async () => {
  const name = await topic({});
  await send(name, "early");
  await administration.createSubscription(name, "late");
  await send(name, "x");
  assert.deepEqual(bodies(await receive(client.createReceiver(name, "late"))), ["x"]);
});

check("a correlation filter matches a broker property", async () => {
  const messages = ["a", "b"].map((subject) => ({ body: subject, subject }));
  assert.deepEqual(bodies(await taken({ one: correlation({ subject: "b" }) }, ...messages)), ["b"]);
});

check("a correlation filter matches an application property", async () => {
  const rules = { one: correlation({ applicationProperties: { color: "red" } }) };
  const messages = ["red", "blue"].map((color) => ({ body: color, applicationProperties: { color } }));
  assert.deepEqual(bodies(await taken(rules, ...messages)), ["red"]);
});

check("a correlation filter needs all of its conditions", async () => {
  const rules = { one: correlation({ subject: "s", correlationId: "c" }) };
  const messages = [
    { body: 1, subject: "s" },
    { body: 2, subject: "s", correlationId: "c" },
  ];
  assert.deepEqual(bodies(await taken(rules, ...messages)), [2]);
});

check("a correlation filter compares case", async () => {
  const messages = ["Red", "red"].map((subject) => ({ body: subject, subject }));
  assert.deepEqual(bodies(await taken({ one: correlation({ subject: "red" }) }, ...messages)), ["red"]);
});

check("an SQL filter compares a number", async () => {
  assert.deepEqual(bodies(await taken({ one: sql("price > 100") }, ...priced)), [200, 150]);
});

check("an SQL filter reads broker properties", async () => {
  const messages = [
    { body: 1, subject: "a", messageId: "x" },
    { body: 2, subject: "a" },
  ];
  assert.deepEqual(
    bodies(await taken({ one: sql("sys.Label = 'a' AND sys.MessageId = 'x'") }, ...messages)),
    [1],
  );
});

check("an SQL filter has LIKE, IN, EXISTS and IS NULL", async () => {
  const messages = ["north", "south", undefined].map((region) => ({
    body: region ?? "none",
    applicationProperties: region ? { region } : {},
  }));
  const expected = {
    "region LIKE 'no%'": ["north"],
    "region IN ('south', 'east')": ["south"],
    "EXISTS(region)": ["north", "south"],
    "region IS NULL": ["none"],
  };
  const subscriptions = Object.keys(expected).map((expression, index) => [
    `s${index}`,
    { rules: { one: sql(expression) } },
  ]);
  const name = await topic(Object.fromEntries(subscriptions));
  await send(name, ...messages);
  for (const [index, found] of Object.values(expected).entries()) {
    assert.deepEqual(bodies(await receive(client.createReceiver(name, `s${index}`), found.length)), found);
  }
});

check("an SQL filter does not match where the property is missing", async () => {
  assert.deepEqual(bodies(await taken({ one: sql("NOT (price > 100)") }, { body: "none" }, ...priced)), [10]);
});

check("an SQL filter takes parameters", async () => {
  assert.deepEqual(bodies(await taken({ one: sql("price = @wanted", { "@wanted": 150 }) }, ...priced)), [
    150,
  ]);
});

check("the false filter takes nothing", async () => {
  assert.deepEqual(await taken({ one: sql("1=0") }, "x"), []);
});

check("the true filter takes everything", async () => {
  assert.deepEqual(bodies(await taken({ one: sql("1=1") }, "x", "y")), ["x", "y"]);
});

check("a message that two rules match is taken once", async () => {
  const rules = { one: sql("price > 100"), two: sql("price > 180") };
  assert.deepEqual(bodies(await taken(rules, ...priced)), [200, 150]);
});

check("each rule with an action makes a copy of its own", async () => {
  const rules = {
    one: { ...sql("price > 100"), action: { sqlExpression: "SET rule = 'one'" } },
    two: { ...sql("price > 180"), action: { sqlExpression: "SET rule = 'two'" } },
  };
  const found = await taken(rules, ...priced);
  const copies = found.map(({ body, applicationProperties }) => `${body} ${applicationProperties.rule}`);
  assert.deepEqual(copies.sort(), ["150 one", "200 one", "200 two"]);
});

check("an action sets and removes properties", async () => {
  const action = { sqlExpression: "SET sys.Label = 'dear'; SET doubled = price * 2; REMOVE price" };
  const [message] = await taken({ one: { ...sql("price = 200"), action } }, ...priced);
  assert.equal(message.subject, "dear");
  assert.deepEqual({ ...message.applicationProperties }, { doubled: 400 });
});

check("a message for which a filter fails is dead-lettered unless that is off", async () => {
  const rules = { one: sql("price > 100") };
  const name = await topic({ on: { rules }, off: { rules, deadLetteringOnFilterEvaluationExceptions: false } });
  await send(name, { body: 1, applicationProperties: { price: "dear" } });
  const [message] = await receive(deadLetters(name, "on"));
  assert.equal(message.deadLetterReason, "FilterException");
  assert.equal((await counts(`${name}/Subscriptions/off`)).active, 0);
  assert.deepEqual(await remaining(deadLetters(name, "off")), []);
});

check("a subscription without rules takes nothing", async () => {
  const name = await topic({ bare: {}, all: {} });
  await administration.deleteRule(name, "bare", "$Default");
  await send(name, "x");
  assert.equal((await receive(client.createReceiver(name, "all"))).length, 1);
  assert.deepEqual(await remaining(client.createReceiver(name, "bare")), []);
});

check("a topic drops duplicates for all its subscriptions", async () => {
  const name = await topic({ a: {}, b: {} }, { requiresDuplicateDetection: true });
  await send(name, { body: 1, messageId: "m" }, { body: 2, messageId: "m" });
  for (const each of ["a", "b"]) assert.equal((await counts(`${name}/Subscriptions/${each}`)).active, 1);
});

check("a subscription has dead letters of its own", async () => {
  const name = await topic({ a: {}, b: {} });
  await send(name, "x");
  const receiver = client.createReceiver(name, "a");
  await receiver.deadLetterMessage((await receive(receiver))[0], { deadLetterReason: "why" });
  const [message] = await receive(deadLetters(name, "a"));
  assert.deepEqual([message.body, message.deadLetterReason], ["x", "why"]);
  assert.deepEqual(await remaining(deadLetters(name, "b")), []);
});

check("the name of a subscription is not case-sensitive", async () => {
  const name = await topic({ Mixed: {} });
  await send(name.toUpperCase(), "x");
  assert.deepEqual(bodies(await receive(client.createReceiver(name, "mIXED"))), ["x"]);
});
