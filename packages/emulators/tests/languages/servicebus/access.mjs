// Keys that may do one thing only.
import { randomBytes } from "node:crypto";
import {
  administration,
  assert,
  bodies,
  check,
  connect,
  connectionStrings,
  fails,
  queue,
  receive,
  send,
} from "./harness.mjs";

const newKey = () => randomBytes(32).toString("base64");

const rule = (keyName, ...accessRights) => ({
  claimType: "SharedAccessKey",
  accessRights,
  keyName,
  primaryKey: newKey(),
  secondaryKey: newKey(),
});

// A client that knows only a key of the rule "mine".
const connectWith = (key) =>
  connect({
    connectionString: connectionStrings.plain
      .replace("RootManageSharedAccessKey", "mine")
      .replace(/SharedAccessKey=[^;]+/, `SharedAccessKey=${key}`),
  });

// Run `body` with a queue that has the rule "mine", and a client for each of its keys.
async function withRule(body, ...accessRights) {
  const mine = rule("mine", ...accessRights);
  const name = await queue({ authorizationRules: [mine] });
  for (const key of [mine.primaryKey, mine.secondaryKey]) {
    const own = connectWith(key);
    await body(name, own);
    await own.close();
  }
}

check("a key that may send does not receive", () =>
  withRule(async (name, own) => {
    await own.createSender(name).sendMessages({ body: "x" });
    await fails(own.createReceiver(name).receiveMessages(1), "UnauthorizedAccess");
  }, "Send"),
);

check("a key that may listen does not send", () =>
  withRule(async (name, own) => {
    await send(name, "x");
    assert.deepEqual(bodies(await receive(own.createReceiver(name, { receiveMode: "receiveAndDelete" }))), [
      "x",
    ]);
    await fails(own.createSender(name).sendMessages({ body: "y" }), "UnauthorizedAccess");
  }, "Listen"),
);

check("a queue's key opens no other queue", () =>
  withRule(
    async (_, own) => {
      await fails(own.createSender(await queue()).sendMessages({ body: "x" }), "UnauthorizedAccess");
    },
    "Send",
    "Listen",
  ),
);

check("a rule that is taken away ends what its key may do", async () => {
  const mine = rule("mine", "Send");
  const name = await queue({ authorizationRules: [mine] });
  const properties = await administration.getQueue(name);
  await administration.updateQueue({ ...properties, authorizationRules: [] });
  const own = connectWith(mine.primaryKey);
  await fails(own.createSender(name).sendMessages({ body: "x" }), "UnauthorizedAccess");
  await own.close();
});

check("authorization rules are read as they were made", async () => {
  const rules = [rule("listen", "Listen"), rule("all", "Listen", "Manage", "Send")];
  const name = await queue({ authorizationRules: rules });
  const found = (await administration.getQueue(name)).authorizationRules;
  const shown = (each) =>
    each.map(({ keyName, accessRights, primaryKey, secondaryKey }) => ({
      keyName,
      accessRights: [...accessRights].sort(),
      primaryKey,
      secondaryKey,
    }));
  assert.deepEqual(shown(found), shown(rules));
});
