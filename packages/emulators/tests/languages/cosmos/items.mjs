// One item at a time.
import { assert, all, check, client, connect, fails, filled, ids, made, sorted, substatus } from "./harness.mjs";

const ODD = ["a b", "100% & more", "ünïcödé 中文", "quote ' and \"", "a+b=c", "semi;colon,comma", "~tilde|pipe", "%2z"];
// The gateway decodes a path once more, and cuts whitespace off.
const DECODED = ["a ", "a%20", "%2e%2e", "100%25"];

check("a created item has its system properties", async () => {
  const container = await made();
  const created = await container.items.create({ id: "a", pk: "k", n: 1 });
  assert.equal(created.statusCode, 201);
  assert.equal(created.etag, created.resource._etag);
  assert.deepEqual(
    Object.keys(created.resource).sort(),
    ["_attachments", "_etag", "_rid", "_self", "_ts", "id", "n", "pk"],
  );
  assert.ok(created.requestCharge > 0);
  assert.match(created.headers["x-ms-session-token"], /^\d+:-1#\d+$/);
});

check("an id can be created once for each partition key", async () => {
  const container = await made();
  await container.items.create({ id: "a", pk: "k" });
  await fails(container.items.create({ id: "a", pk: "k" }), 409, /already exists/);
  assert.equal((await container.items.create({ id: "a", pk: "other" })).statusCode, 201);
});

check("an item without an id gets one from the client", async () => {
  const container = await made();
  const { resource } = await container.items.create({ pk: "k" });
  assert.equal((await container.item(resource.id, "k").read()).resource.id, resource.id);
});

check("reading what does not exist is 404 without a sub-status", async () => {
  const container = await made();
  const missing = await container.item("none", "k").read();
  assert.equal(missing.statusCode, 404);
  assert.equal(missing.resource, undefined);
  assert.equal(substatus(missing), 0);
});

check("an upsert creates, then replaces", async () => {
  const container = await made();
  assert.equal((await container.items.upsert({ id: "a", pk: "k", n: 1 })).statusCode, 201);
  assert.equal((await container.items.upsert({ id: "a", pk: "k", n: 2 })).statusCode, 200);
  assert.equal((await container.item("a", "k").read()).resource.n, 2);
});

check("replacing and deleting what does not exist is 404", async () => {
  const container = await made();
  await fails(container.item("none", "k").replace({ id: "none", pk: "k" }), 404);
  await fails(container.item("none", "k").delete(), 404);
});

check("a deleted item is gone", async () => {
  const container = await filled([{ id: "a", pk: "k" }]);
  assert.equal((await container.item("a", "k").delete()).statusCode, 204);
  assert.equal((await container.item("a", "k").read()).statusCode, 404);
});

check("a stale ETag fails a replace, an upsert and a delete", async () => {
  const container = await made();
  const { resource } = await container.items.create({ id: "a", pk: "k", n: 1 });
  await container.item("a", "k").replace({ id: "a", pk: "k", n: 2 });
  const stale = { accessCondition: { type: "IfMatch", condition: resource._etag } };
  await fails(container.item("a", "k").replace({ id: "a", pk: "k", n: 3 }, stale), 412);
  await fails(container.items.upsert({ id: "a", pk: "k", n: 3 }, stale), 412);
  await fails(container.item("a", "k").delete(stale), 412);
  assert.equal((await container.item("a", "k").read()).resource.n, 2);
});

check("the current ETag lets a replace pass, and changes", async () => {
  const container = await made();
  const { resource } = await container.items.create({ id: "a", pk: "k" });
  const current = { accessCondition: { type: "IfMatch", condition: resource._etag } };
  const replaced = await container.item("a", "k").replace({ id: "a", pk: "k", n: 2 }, current);
  assert.equal(replaced.statusCode, 200);
  assert.notEqual(replaced.etag, resource._etag);
});

check("an upsert with an ETag creates what is not there", async () => {
  const container = await made();
  const condition = { accessCondition: { type: "IfMatch", condition: '"other"' } };
  assert.equal((await container.items.upsert({ id: "a", pk: "k" }, condition)).statusCode, 201);
});

check("reading a version that the client has is 304", async () => {
  const container = await made();
  const { resource } = await container.items.create({ id: "a", pk: "k" });
  const known = { accessCondition: { type: "IfNoneMatch", condition: resource._etag } };
  const answer = await container.item("a", "k").read(known);
  assert.equal(answer.statusCode, 304);
});

check("a replace may change the id and keeps the _rid", async () => {
  const container = await made();
  const { resource } = await container.items.create({ id: "old", pk: "k" });
  const replaced = await container.item("old", "k").replace({ id: "new", pk: "k" });
  assert.equal(replaced.resource._rid, resource._rid);
  assert.equal((await container.item("old", "k").read()).statusCode, 404);
});

check("a partition key that is not the item's is refused", async () => {
  const container = await filled([{ id: "a", pk: "k" }]);
  await fails(container.item("a", "k").replace({ id: "a", pk: "other" }), 400, /Partition key/);
});

check("a partition key can be a string, a number, a boolean or null", async () => {
  const container = await made();
  for (const pk of ["k", "", 1.5, -0.1, true, false, null]) {
    await container.items.create({ id: "a", pk });
    assert.equal((await container.item("a", pk).read()).resource.pk, pk);
    assert.deepEqual((await all(container, "SELECT * FROM c", { partitionKey: pk })).map((item) => item.pk), [pk]);
  }
});

check("an item without a partition key is apart from one with null", async () => {
  const container = await made();
  await container.items.create({ id: "a", n: 1 });
  await container.items.create({ id: "a", pk: null, n: 2 });
  assert.equal((await container.item("a", undefined).read()).resource.n, 1);
  assert.equal((await container.item("a", null).read()).resource.n, 2);
});

check("ids with odd characters are created, read, replaced and deleted", async () => {
  const container = await made();
  for (const id of ODD) {
    const item = container.item(id, "k");
    assert.equal((await container.items.create({ id, pk: "k" })).statusCode, 201);
    assert.equal((await item.read()).resource?.id, id);
    assert.equal((await item.replace({ id, pk: "k", n: 1 })).statusCode, 200);
    assert.equal((await item.delete()).statusCode, 204);
  }
});

check("an id that the gateway changes is created and found by a query, and is 401 by its path", async () => {
  const container = await made();
  for (const id of DECODED) {
    const item = container.item(id, "k");
    assert.equal((await container.items.create({ id, pk: "k" })).statusCode, 201);
    assert.equal((await container.items.upsert({ id, pk: "k", n: 1 })).statusCode, 200);
    await fails(item.read(), 401, /can't serve the request/);
    await fails(item.replace({ id, pk: "k", n: 2 }), 401);
    await fails(item.patch([{ op: "set", path: "/n", value: 2 }]), 401);
    await fails(item.delete(), 401);
  }
  assert.deepEqual(sorted(ids(await all(container, "SELECT * FROM c WHERE c.n = 1"))), sorted(DECODED));
});

check("an id that no path can hold is stored and found by a query", async () => {
  const container = await made();
  const odd = ["a/b", "a\\b", "a?b", "a#b"];
  const { result } = await container.items.batch(
    odd.map((id) => ({ operationType: "Create", resourceBody: { id, pk: "k" } })), "k",
  );
  assert.deepEqual(result.map(({ statusCode }) => statusCode), [201, 201, 201, 201]);
  assert.deepEqual(sorted(ids(await all(container, "SELECT * FROM c"))), sorted(odd));
  assert.deepEqual(ids(await all(container, "SELECT * FROM c WHERE c.id = 'a/b'")), ["a/b"]);
});

check("values come back as they were sent", async () => {
  const container = await made();
  const values = {
    text: "é\u2028😀\u0001\t", empty: "", large: 9007199254740991, small: -1.5e-9, list: [1, [2, []], {}], nil: null,
    deep: { "odd key/~": { yes: true } },
  };
  await container.items.create({ id: "a", pk: "k", values });
  assert.deepEqual((await container.item("a", "k").read()).resource.values, values);
});

check("an item beyond two megabytes is refused", async () => {
  const container = await made();
  assert.equal((await container.items.create({ id: "a", pk: "k", text: "x".repeat(2_000_000) })).statusCode, 201);
  await fails(container.items.create({ id: "b", pk: "k", text: "x".repeat(2_200_000) }), 413);
});

check("a unique key holds within a partition key", async () => {
  const container = await made({ uniqueKeyPolicy: { uniqueKeys: [{ paths: ["/email"] }] } });
  await container.items.create({ id: "a", pk: "k", email: "x" });
  await fails(container.items.create({ id: "b", pk: "k", email: "x" }), 409, /Unique index constraint violation/);
  assert.equal((await container.items.create({ id: "b", pk: "other", email: "x" })).statusCode, 201);
});

check("a hierarchical partition key addresses an item and a prefix", async () => {
  const partitionKey = { paths: ["/tenant", "/user"], kind: "MultiHash", version: 2 };
  const container = await made({ partitionKey });
  for (const [id, user] of [["a", "u"], ["b", "v"]]) await container.items.create({ id, tenant: "t", user });
  await container.items.create({ id: "c", tenant: "other", user: "u" });
  assert.equal((await container.item("a", ["t", "u"]).read()).resource.id, "a");
  assert.deepEqual(ids(await all(container, "SELECT * FROM c WHERE c.tenant = 't' ORDER BY c.id")), ["a", "b"]);
});

check("all items of a partition key can be deleted at once", async () => {
  const container = await filled([{ id: "a", pk: "k" }, { id: "b", pk: "k" }, { id: "c", pk: "other" }]);
  await container.deleteAllItemsForPartitionKey("k");
  assert.deepEqual(ids(await all(container, "SELECT * FROM c")), ["c"]);
});

check("a client that writes sees its own writes", async () => {
  const container = await made();
  for (let n = 0; n < 25; n += 1) {
    await container.items.upsert({ id: "a", pk: "k", n });
    assert.equal((await container.item("a", "k").read()).resource.n, n);
  }
});

check("a session token of one client lets another see the write", async () => {
  const container = await made();
  const other = connect().database(container.database.id).container(container.id);
  for (let n = 0; n < 10; n += 1) {
    const { headers } = await container.items.upsert({ id: "a", pk: "k", n });
    const read = await other.item("a", "k").read({ sessionToken: headers["x-ms-session-token"] });
    assert.equal(read.resource?.n, n);
  }
});

check("a session token ahead of the partition is 404 with 1002", async () => {
  const container = await filled([{ id: "a", pk: "k" }]);
  const { headers } = await container.item("a", "k").read();
  const ahead = headers["x-ms-session-token"].replace(/\d+$/, (lsn) => String(Number(lsn) + 100));
  const read = await container.item("a", "k").read({ sessionToken: ahead });
  assert.deepEqual([read.statusCode, substatus(read)], [404, 1002]);
  await fails(all(container, "SELECT * FROM c", { partitionKey: "k", sessionToken: ahead }), 404, /session/);
});

check("the account says what it is", async () => {
  const { resource } = await client.getDatabaseAccount();
  assert.equal(resource.consistencyPolicy, "Session");
  assert.equal(resource.enableMultipleWritableLocations, false);
});
