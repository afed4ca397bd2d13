// JOIN over the arrays of an item.
import { assert, all, check, fails, filled, pages, range } from "./harness.mjs";

const orders = range(12).map((n) => ({
  id: `o${n}`, pk: `k${n}`, n,
  lines: n % 4 === 3 ? [] : [{ sku: "a", parts: [1, 2] }, { sku: `b${n}`, parts: [n] }], ...(n === 0 && { tags: "none" }),
}));
const shared = filled(orders);
const across = async (query, options) => all(await shared, query, options);

check("JOIN gives a result for each element", async () => {
  const found = await across("SELECT c.n, l.sku FROM c JOIN l IN c.lines ORDER BY c.n");
  assert.deepEqual(found.slice(0, 4), [{ n: 0, sku: "a" }, { n: 0, sku: "b0" }, { n: 1, sku: "a" }, { n: 1, sku: "b1" }]);
  assert.equal(found.length, 18);
});

check("JOIN of JOIN gives every combination", async () => {
  const query = "SELECT VALUE {sku: l.sku, part: p} FROM c JOIN l IN c.lines JOIN p IN l.parts WHERE c.n = 5";
  assert.deepEqual(await across(query), [{ sku: "a", part: 1 }, { sku: "a", part: 2 }, { sku: "b5", part: 5 }]);
});

check("WHERE and aggregates see the joined elements", async () => {
  assert.deepEqual(await across("SELECT VALUE c.n FROM c JOIN l IN c.lines WHERE l.sku = 'b6'"), [6]);
  assert.deepEqual(await across("SELECT VALUE COUNT(1) FROM c JOIN l IN c.lines"), [18]);
  const groups = await across("SELECT l.sku, COUNT(1) AS n FROM c JOIN l IN c.lines GROUP BY l.sku");
  assert.deepEqual(groups.find(({ sku }) => sku === "a"), { sku: "a", n: 9 });
});

check("FROM IN gives the elements themselves", async () => {
  assert.equal((await across("SELECT * FROM l IN c.lines")).length, 18);
  assert.deepEqual(await across("SELECT VALUE l.sku FROM l IN c.lines WHERE l.sku = 'b4'"), ["b4"]);
});

check("JOIN over what is no array gives nothing", async () => {
  assert.deepEqual(await across("SELECT * FROM t IN c.tags"), []);
  assert.deepEqual(await across("SELECT VALUE t FROM c JOIN t IN c.none"), []);
});

check("the results of JOIN come in pages without loss", async () => {
  const found = await pages(await shared, "SELECT VALUE l.sku FROM c JOIN l IN c.lines", { maxItemCount: 1 });
  assert.equal(found.flat().length, 18);
  assert.ok(found.every((page) => page.length === 1));
  const sorted = await pages(await shared, "SELECT VALUE l.sku FROM c JOIN l IN c.lines ORDER BY c.n DESC", { maxItemCount: 3 });
  assert.equal(sorted.flat().length, 18);
});

check("JOIN refuses everything and names that are unknown or taken", async () => {
  await fails(across("SELECT * FROM c JOIN l IN c.lines"), 400, /single input set/);
  await fails(across("SELECT VALUE l FROM c JOIN l IN d.lines"), 400, /could not be resolved/);
  await fails(across("SELECT VALUE c FROM c JOIN c IN c.lines"), 400, /more than once/);
  await fails(across("SELECT c.id FROM l IN c.lines"), 400, /could not be resolved/);
});

check("subqueries are served in SELECT, WHERE, JOIN and FROM", async () => {
  assert.deepEqual(await across("SELECT VALUE ARRAY(SELECT VALUE l.sku FROM l IN c.lines) FROM c WHERE c.n = 5"), [["a", "b5"]]);
  const found = await across("SELECT VALUE c.n FROM c WHERE EXISTS(SELECT VALUE l FROM l IN c.lines WHERE l.sku = 'b6')");
  assert.deepEqual(found, [6]);
  const counts = "SELECT VALUE v FROM c JOIN (SELECT VALUE COUNT(1) FROM l IN c.lines) AS v WHERE c.n IN (3, 4)";
  assert.deepEqual((await across(counts)).sort(), [0, 2]);
  assert.deepEqual(await across("SELECT VALUE d.n FROM (SELECT c.n FROM c WHERE c.n > 10) AS d"), [11]);
});
