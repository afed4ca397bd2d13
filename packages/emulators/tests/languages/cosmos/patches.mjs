// Partial updates.
import { assert, check, fails, filled } from "./harness.mjs";

const item = async (rest = {}) => (await filled([{ id: "a", pk: "k", ...rest }])).item("a", "k");

check("a patch sets, adds, replaces, removes, increments and moves", async () => {
  const patched = await (await item({ n: 1, gone: 1, list: [1, 3], from: "x", old: 1 })).patch([
    { op: "set", path: "/set", value: { deep: true } },
    { op: "add", path: "/list/1", value: 2 },
    { op: "add", path: "/list/-", value: 4 },
    { op: "replace", path: "/old", value: 2 },
    { op: "remove", path: "/gone" },
    { op: "incr", path: "/n", value: 2.5 },
    { op: "move", from: "/from", path: "/to" },
  ]);
  const { id, pk, ...rest } = Object.fromEntries(Object.entries(patched.resource).filter(([key]) => key[0] !== "_"));
  assert.equal(patched.statusCode, 200);
  assert.deepEqual(rest, { set: { deep: true }, list: [1, 2, 3, 4], old: 2, n: 3.5, to: "x" });
});

check("a patch can have a condition", async () => {
  const target = await item({ n: 1 });
  const operations = [{ op: "incr", path: "/n", value: 1 }];
  await fails(target.patch({ operations, condition: "FROM c WHERE c.n = 2" }), 412);
  assert.equal((await target.patch({ operations, condition: "FROM c WHERE c.n = 1" })).resource.n, 2);
});

check("a patch fails as a whole", async () => {
  const target = await item({ n: 1 });
  const operations = [{ op: "set", path: "/n", value: 2 }, { op: "replace", path: "/none", value: 1 }];
  await fails(target.patch(operations), 400, /For Operation\(2\)/);
  assert.equal((await target.read()).resource.n, 1);
});

check("a patch of more than ten operations is refused", async () => {
  const operations = Array.from({ length: 11 }, (_, n) => ({ op: "set", path: `/p${n}`, value: n }));
  const target = await item();
  await fails(target.patch(operations), 400);
  assert.equal((await target.patch(operations.slice(1))).statusCode, 200);
});

check("a patch can change neither the id nor the partition key", async () => {
  const target = await item();
  await fails(target.patch([{ op: "set", path: "/id", value: "b" }]), 400);
  await fails(target.patch([{ op: "set", path: "/pk", value: "b" }]), 400);
});

check("a patch with a stale ETag is 412, one of nothing 404", async () => {
  const target = await item();
  const operations = [{ op: "set", path: "/n", value: 1 }];
  await fails(target.patch(operations, { accessCondition: { type: "IfMatch", condition: '"other"' } }), 412);
  await fails(target.container.item("none", "k").patch(operations), 404);
});
