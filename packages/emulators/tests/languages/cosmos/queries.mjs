// Queries of one partition key, and across physical partitions.
import { assert, all, check, fails, filled, ids, made, pages, partitionsOf, range, sorted, split } from "./harness.mjs";

const people = range(60).map((n) => ({ id: `i${n}`, pk: `k${n % 10}`, n, team: 1 + (n % 3), even: n % 2 === 0 }));
const shared = filled(people);
const across = async (query, options) => all(await shared, query, options);

check("a query finds every item of all partitions once", async () => {
  assert.deepEqual(sorted(ids(await across("SELECT * FROM c"))), sorted(ids(people)));
});

check("a query with a partition key keeps to it", async () => {
  assert.deepEqual(
    await across("SELECT VALUE c.n FROM c ORDER BY c.n", { partitionKey: "k3" }),
    [3, 13, 23, 33, 43, 53],
  );
});

check("a query takes parameters of every kind", async () => {
  const parameters = [
    { name: "@list", value: [1, 2, 3, 4] }, { name: "@even", value: true }, { name: "@most", value: 3 },
  ];
  const query = "SELECT VALUE c.n FROM c WHERE ARRAY_CONTAINS(@list, c.n) AND c.even = @even AND c.n < @most";
  assert.deepEqual(await across({ query, parameters }), [2]);
});

check("a query projects into objects", async () => {
  const query = "SELECT c.n, {team: c.team, twice: c.n * 2} AS more, c.none FROM c WHERE c.id = 'i5'";
  assert.deepEqual(await across(query), [{ n: 5, more: { team: 3, twice: 10 } }]);
});

check("the pages of a query have at most the requested size", async () => {
  const found = await pages(await shared, "SELECT * FROM c", { maxItemCount: 7 });
  assert.ok(found.every((page) => page.length <= 7));
  assert.deepEqual(sorted(ids(found.flat())), sorted(ids(people)));
});

check("a query of a partition key continues by its token", async () => {
  const container = await filled(range(25).map((n) => ({ id: `i${n}`, pk: "k", n })));
  const found = [];
  for (let continuationToken; ; ) {
    const options = { partitionKey: "k", maxItemCount: 10, continuationToken };
    const page = await container.items.query("SELECT VALUE c.n FROM c", options).fetchNext();
    found.push(...page.resources);
    continuationToken = page.continuationToken;
    if (!continuationToken) break;
  }
  assert.deepEqual(found, range(25));
});

check("all items can be read page by page", async () => {
  const found = [];
  const iterator = (await shared).items.readAll({ maxItemCount: 8 });
  while (iterator.hasMoreResults()) {
    const { resources } = await iterator.fetchNext();
    assert.ok(resources.length <= 8);
    found.push(...resources);
  }
  assert.deepEqual(sorted(ids(found)), sorted(ids(people)));
});

check("TOP counts over all partitions", async () => {
  assert.equal((await across("SELECT TOP 7 * FROM c")).length, 7);
  assert.deepEqual(await across("SELECT TOP 4 VALUE c.n FROM c ORDER BY c.n DESC"), [59, 58, 57, 56]);
});

check("OFFSET and LIMIT count over all partitions", async () => {
  assert.deepEqual(await across("SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 20 LIMIT 5"), [20, 21, 22, 23, 24]);
  assert.equal((await across("SELECT * FROM c OFFSET 55 LIMIT 20")).length, 5);
  assert.deepEqual(await across("SELECT VALUE c.n FROM c ORDER BY c.n DESC OFFSET 58 LIMIT 20"), [1, 0]);
});

check("OFFSET and LIMIT keep to a page's size", async () => {
  const found = await pages(await shared, "SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 5 LIMIT 12", { maxItemCount: 5 });
  assert.ok(found.every((page) => page.length <= 5));
  assert.deepEqual(found.flat(), range(12).map((n) => n + 5));
});

check("DISTINCT is distinct over all partitions", async () => {
  assert.deepEqual(sorted(await across("SELECT DISTINCT VALUE c.team FROM c")), [1, 2, 3]);
  assert.equal((await across("SELECT DISTINCT c.team, c.even FROM c")).length, 6);
});

check("DISTINCT with ORDER BY is in order", async () => {
  assert.deepEqual(await across("SELECT DISTINCT VALUE c.team FROM c ORDER BY c.team DESC"), [3, 2, 1]);
});

check("DISTINCT keeps values of different types apart", async () => {
  const values = [1, true, "1", 1, true, "1", [1], [1], { a: 1 }, { a: 1 }, "true"];
  const container = await filled(values.map((v, n) => ({ id: `i${n}`, pk: `k${n}`, v })));
  const found = await all(container, "SELECT DISTINCT VALUE c.v FROM c");
  assert.equal(found.length, 6);
});

check("DISTINCT with TOP counts what is distinct", async () => {
  assert.equal((await across("SELECT DISTINCT TOP 2 VALUE c.team FROM c")).length, 2);
});

check("functions and operators work across partitions", async () => {
  const query = `SELECT VALUE {up: UPPER(c.id), has: CONTAINS(c.id, "9"), part: SUBSTRING(c.id, 1, 1), other: c.none ?? "no",
    tern: c.n > 50 ? "big" : "small", num: IS_NUMBER(c.n), within: c.n BETWEEN 59 AND 60} FROM c WHERE c.n IN (59, 100)`;
  assert.deepEqual(await across(query), [
    { up: "I59", has: true, part: "5", other: "no", tern: "big", num: true, within: true },
  ]);
});

check("a query in error is 400", async () => {
  for (const query of ["SELECT", "SELECT * FROM c WHERE", "SELECT * FROM c WHERE d.n = 1", "SELECT NOSUCH(c.n) FROM c"]) {
    await fails(across(query), 400);
  }
});

check("a query with a missing parameter is 400", async () => {
  await fails(across("SELECT * FROM c WHERE c.n = @none"), 400, /@none/);
});

check("a malformed continuation is refused", async () => {
  const query = (await shared).items.query("SELECT * FROM c", { partitionKey: "k1", continuationToken: "!nonsense" });
  await fails(query.fetchNext(), 400);
});

check("a user-defined function is refused by name", async () => {
  await fails(across("SELECT udf.tax(c.n) FROM c"), 400);
});

check("a query that begins after a split finds everything", async () => {
  const container = await filled(range(40).map((n) => ({ id: `i${n}`, pk: `k${n}`, n })));
  await all(container, "SELECT * FROM c ORDER BY c.n");
  for (const { id } of await partitionsOf(container)) await split(container, id);
  assert.deepEqual(await all(container, "SELECT VALUE c.n FROM c ORDER BY c.n"), range(40));
  assert.deepEqual(await all(container, "SELECT VALUE COUNT(1) FROM c"), [40]);
});

check("an empty container has no results", async () => {
  const container = await made();
  assert.deepEqual(await all(container, "SELECT * FROM c"), []);
  assert.deepEqual(await all(container, "SELECT * FROM c ORDER BY c.n"), []);
  assert.deepEqual(await all(container, "SELECT VALUE COUNT(1) FROM c"), [0]);
});
