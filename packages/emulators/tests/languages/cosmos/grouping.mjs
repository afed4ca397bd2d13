// Aggregates and GROUP BY across physical partitions.
import { assert, all, check, fails, filled, made, range } from "./harness.mjs";

const people = range(60).map((n) => ({
  id: `i${n}`, pk: `k${n % 10}`, n, team: n % 3, name: `name${n % 2}`, ...(n % 2 && { odd: n }), ...(n === 7 && { once: 42 }),
}));
const shared = filled(people);
const across = async (query, options) => all(await shared, query, options);
const by = (key) => (one, other) => (one[key] < other[key] ? -1 : 1);

const gives = (aggregate, expected) => async () =>
  assert.deepEqual(await across(`SELECT VALUE ${aggregate} FROM c`), [expected]);

check("COUNT is over all partitions", gives("COUNT(1)", 60));
check("COUNT passes over what is undefined", gives("COUNT(c.odd)", 30));
check("SUM is over all partitions", gives("SUM(c.n)", 1770));
check("AVG is over all partitions", gives("AVG(c.n)", 29.5));
check("MIN is over all partitions", gives("MIN(c.n)", 0));
check("MAX is over all partitions", gives("MAX(c.n)", 59));
check("MAX takes strings", gives("MAX(c.name)", "name1"));

check("MIN and MAX pass over the partitions that have nothing", async () => {
  assert.deepEqual(await across("SELECT VALUE MIN(c.once) FROM c"), [42]);
  assert.deepEqual(await across("SELECT VALUE MAX(c.once) FROM c"), [42]);
  assert.deepEqual(await across("SELECT VALUE AVG(c.once) FROM c"), [42]);
});

check("aggregates of nothing are zero or undefined", async () => {
  assert.deepEqual(await across("SELECT VALUE COUNT(1) FROM c WHERE c.n > 100"), [0]);
  for (const aggregate of ["MIN", "MAX", "AVG"]) {
    assert.deepEqual(await across(`SELECT VALUE ${aggregate}(c.none) FROM c`), []);
  }
});

check("the sum of what is no number is undefined", async () => {
  assert.deepEqual(await across("SELECT VALUE SUM(c.name) FROM c"), []);
});

check("an aggregate without VALUE has its name", async () => {
  assert.deepEqual(await across("SELECT COUNT(1) AS n FROM c"), [{ n: 60 }]);
  assert.deepEqual(await across("SELECT COUNT(1) FROM c"), [{ $1: 60 }]);
});

check("several aggregates come in one object", async () => {
  const query = "SELECT COUNT(1) AS n, SUM(c.n) AS sum, AVG(c.n) AS mean, MIN(c.once) AS low, MAX(c.once) AS high FROM c";
  assert.deepEqual(await across(query), [{ n: 60, sum: 1770, mean: 29.5, low: 42, high: 42 }]);
});

check("GROUP BY counts each group over all partitions", async () => {
  const found = await across("SELECT c.team, COUNT(1) AS n FROM c GROUP BY c.team");
  assert.deepEqual(found.sort(by("team")), [0, 1, 2].map((team) => ({ team, n: 20 })));
});

check("GROUP BY takes every aggregate", async () => {
  const found = await across(
    "SELECT c.name AS who, SUM(c.n) AS sum, AVG(c.n) AS mean, MIN(c.n) AS low, MAX(c.n) AS high FROM c GROUP BY c.name",
  );
  assert.deepEqual(found.sort(by("who")), [
    { who: "name0", sum: 870, mean: 29, low: 0, high: 58 },
    { who: "name1", sum: 900, mean: 30, low: 1, high: 59 },
  ]);
});

check("GROUP BY groups by several properties and expressions", async () => {
  const two = await across("SELECT c.team, c.name, COUNT(1) AS n FROM c GROUP BY c.team, c.name");
  assert.deepEqual(new Set(two.map(({ n }) => n)), new Set([10]));
  assert.equal(two.length, 6);
  const upper = await across("SELECT UPPER(c.name) AS name, COUNT(1) AS n FROM c GROUP BY UPPER(c.name)");
  assert.deepEqual(upper.sort(by("name")), [{ name: "NAME0", n: 30 }, { name: "NAME1", n: 30 }]);
});

check("GROUP BY without an aggregate gives each group once", async () => {
  assert.deepEqual((await across("SELECT VALUE c.team FROM c GROUP BY c.team")).sort(), [0, 1, 2]);
  assert.equal((await across("SELECT c.team FROM c GROUP BY c.team")).length, 3);
});

check("GROUP BY with VALUE gives the aggregates alone", async () => {
  assert.deepEqual((await across("SELECT VALUE COUNT(1) FROM c GROUP BY c.team")), [20, 20, 20]);
  assert.deepEqual((await across("SELECT VALUE MAX(c.n) FROM c GROUP BY c.team")).sort(), [57, 58, 59]);
});

check("GROUP BY keeps items without the property in a group of their own", async () => {
  const container = await filled([
    { id: "a", pk: "a" }, { id: "b", pk: "b" }, { id: "c", pk: "c", team: null }, { id: "d", pk: "d", team: 1 },
  ]);
  const found = await all(container, "SELECT c.team, COUNT(1) AS n FROM c GROUP BY c.team");
  assert.deepEqual(found.sort(by("n")).map(({ n }) => n), [1, 1, 2]);
  assert.deepEqual(found.find(({ n }) => n === 2), { n: 2 });
});

check("GROUP BY comes in pages, and each partition's groups whole", async () => {
  const found = await across("SELECT c.n, COUNT(1) AS count FROM c GROUP BY c.n", { maxItemCount: 4 });
  assert.deepEqual(found.map(({ n }) => n).sort((one, other) => one - other), range(60));
});

check("GROUP BY works within a partition key", async () => {
  const found = await across("SELECT c.name, COUNT(1) AS n FROM c GROUP BY c.name", { partitionKey: "k1" });
  assert.deepEqual(found, [{ name: "name1", n: 6 }]);
});

check("GROUP BY with OFFSET and LIMIT counts groups", async () => {
  assert.equal((await across("SELECT c.n, COUNT(1) AS count FROM c GROUP BY c.n OFFSET 50 LIMIT 20")).length, 10);
});

check("a property that is not grouped by is refused", async () => {
  await fails(across("SELECT c.n, COUNT(1) AS count FROM c GROUP BY c.team"), 400, /not contained in/);
  await fails(across("SELECT c.n, COUNT(1) AS count FROM c"), 400, /not contained in/);
});

check("GROUP BY with ORDER BY is refused", async () => {
  await fails(across("SELECT c.team FROM c GROUP BY c.team ORDER BY c.team"), 400);
});

check("an aggregate within an expression is refused across partitions", async () => {
  await fails(across("SELECT COUNT(1) + 1 AS n FROM c"), 400, /Compositions of aggregates and other expressions are not allowed/);
  assert.deepEqual(await across("SELECT COUNT(1) + 1 AS n FROM c", { partitionKey: "k1" }), [{ n: 7 }]);
});

check("an empty container has no groups", async () => {
  assert.deepEqual(await all(await made(), "SELECT c.team, COUNT(1) AS n FROM c GROUP BY c.team"), []);
});
