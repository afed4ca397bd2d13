// ORDER BY across physical partitions, page by page and from a continuation.
import { assert, all, check, fails, filled, ids, pages, range } from "./harness.mjs";

// 200 items, ten of each rank.
const ranked = range(200).map((n) => ({ id: `i${n}`, pk: `k${n % 37}`, rank: n % 20, n }));
const COMPOSITE = {
  indexingPolicy: {
    compositeIndexes: [[{ path: "/rank", order: "ascending" }, { path: "/n", order: "descending" }]],
  },
};
const shared = filled(ranked, COMPOSITE);

// All results of a query whose iterator is made anew from the continuation after each page.
async function resumed(query, maxItemCount) {
  const found = [];
  let continuationToken;
  do {
    const options = { maxItemCount, continuationToken, enableQueryControl: true };
    const page = await (await shared).items.query(query, options).fetchNext();
    found.push(...(page.resources ?? []));
    continuationToken = page.continuationToken;
  } while (continuationToken);
  return found;
}

function checkRanks(found, direction) {
  assert.equal(new Set(ids(found)).size, 200);
  assert.equal(found.length, 200);
  found.slice(1).forEach((item, n) => assert.ok((item.rank - found[n].rank) * direction >= 0));
}

check("a query sorted ascending with ties gives every item once", async () => {
  checkRanks((await pages(await shared, "SELECT * FROM c ORDER BY c.rank ASC", { maxItemCount: 13 })).flat(), 1);
});

check("a query sorted descending with ties gives every item once", async () => {
  checkRanks((await pages(await shared, "SELECT * FROM c ORDER BY c.rank DESC", { maxItemCount: 13 })).flat(), -1);
});

check("a query sorted ascending with ties resumes without loss", async () => {
  checkRanks(await resumed("SELECT * FROM c ORDER BY c.rank ASC", 13), 1);
});

check("a query sorted descending with ties resumes without loss", async () => {
  checkRanks(await resumed("SELECT * FROM c ORDER BY c.rank DESC", 13), -1);
});

check("an unsorted query resumes without loss", async () => {
  assert.equal(new Set(ids(await resumed("SELECT * FROM c", 23))).size, 200);
});

check("TOP resumes without loss", async () => {
  assert.deepEqual(await resumed("SELECT TOP 30 VALUE c.n FROM c ORDER BY c.n DESC", 8), range(30).map((n) => 199 - n));
});

check("a query sorts by two properties that a composite index has", async () => {
  const expected = [...ranked].sort((one, other) => one.rank - other.rank || other.n - one.n);
  assert.deepEqual(ids(await all(await shared, "SELECT * FROM c ORDER BY c.rank ASC, c.n DESC")), ids(expected));
  assert.deepEqual(ids(await all(await shared, "SELECT * FROM c ORDER BY c.rank DESC, c.n ASC")), ids(expected).reverse());
});

check("a query sorted by two properties comes in pages", async () => {
  const expected = [...ranked].sort((one, other) => one.rank - other.rank || other.n - one.n);
  const found = await pages(await shared, "SELECT * FROM c ORDER BY c.rank ASC, c.n DESC", { maxItemCount: 11 });
  assert.deepEqual(ids(found.flat()), ids(expected));
});

check("sorting by two properties without a composite index is refused", async () => {
  await fails(all(await shared, "SELECT * FROM c ORDER BY c.rank ASC, c.n ASC"), 400, /composite index/);
});

check("values of several types within a partition key sort by type", async () => {
  const values = [null, false, true, -1, 2.5, "", "a", "b"];
  const mixed = await filled(values.map((v, n) => ({ id: `i${n}`, pk: "k", v })).reverse());
  const inOrder = (order) => all(mixed, `SELECT VALUE c.v FROM c ORDER BY c.v ${order}`, { partitionKey: "k" });
  assert.deepEqual(await inOrder("ASC"), values);
  assert.deepEqual(await inOrder("DESC"), [...values].reverse());
});

check("a sorted query projects what it likes", async () => {
  const found = await all(await shared, "SELECT c.n AS number FROM c WHERE c.n < 3 ORDER BY c.n DESC");
  assert.deepEqual(found, [{ number: 2 }, { number: 1 }, { number: 0 }]);
});

check("sorting by an expression is refused", async () => {
  await fails(all(await shared, "SELECT * FROM c ORDER BY c.n + 1"), 400, /ORDER BY/);
});
