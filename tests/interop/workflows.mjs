// The workflows of the interop suite, for the reference engine. Their twins are in workflows.py: same names, same bodies.
//
// Each takes (ctx, input, world). `world.step` runs a step whose body notes its label, the step's place in the history
// as `loop/~2/step`; whether a body may run again is judged by those labels. What a body does may depend on the input
// and the clock only, so that both engines see the same world.

import { CriticalError, Loop } from "./engine.mjs";

export const workflows = {
  async steps(ctx, input, { step, now }) {
    const first = await step(ctx, "first", () => input.n + 1);
    const nothing = await step(ctx, "nothing", () => null);
    const halves = await step(ctx, "halves", () => [0.5, -1.25, "köln", { deep: [true, null] }], { ephemeral: true });
    const last = await step(ctx, "last", () => first * 2);
    return { first, nothing, halves, last, started: input.n < now() };
  },

  async values(ctx, input, { step }) {
    const when = await step(ctx, "when", () => new Date(1767322800000));
    const bytes = await step(ctx, "bytes", () => new Uint8Array([0, 1, 254, 255]));
    const set = await step(ctx, "set", () => new Set([3]));
    const large = await step(ctx, "large", () => 4294967295);
    await ctx.sleep("rest", 1000);
    return { when: when.getTime(), bytes: [...bytes], set: [...set], large, float: input.float };
  },

  async loop(ctx, input, { step }) {
    return await ctx.loop({
      name: "sum",
      state: { total: 0, i: 0 },
      historyPruneInterval: 4,
      historySize: 2,
      run: async (body, state) => {
        if (state.i === input.rounds) return Loop.break(state.total);
        const added = await step(body, "add", () => state.i * 3, {}, `sum/~${state.i}/add`);
        return Loop.continue({ total: state.total + added, i: state.i + 1 });
      },
    });
  },

  async nested(ctx, input, { step }) {
    return await ctx.loop({
      name: "outer",
      state: { rows: [] },
      run: async (outer, { rows }) => {
        const row = rows.length;
        if (row === 2) return Loop.break(rows);
        const cells = await outer.loop({
          name: "inner",
          state: { cells: [] },
          // The reference cannot replay a scope in which a loop has ended and left iterations: keep none.
          historySize: 0,
          run: async (inner, { cells }) => {
            const column = cells.length;
            if (column === 3) return Loop.break(cells);
            const place = `outer/~${row}/inner/~${column}/cell`;
            const cell = await step(inner, "cell", () => row * 10 + column + input.n, {}, place);
            return Loop.continue({ cells: [...cells, cell] });
          },
        });
        await step(outer, "row", () => row, {}, `outer/~${row}/row`);
        return Loop.continue({ rows: [...rows, cells] });
      },
    });
  },

  async sleep(ctx, input, { step }) {
    const before = await step(ctx, "before", () => "b");
    await ctx.sleep("nap", 5000);
    const after = await step(ctx, "after", () => "a");
    await ctx.sleepUntil("until", Number(input.until));
    return before + after;
  },

  async retries(ctx, input, { step, now }) {
    const flaky = await step(ctx, "flaky", () => {
      if (now() < Number(input.healthy_at)) throw new Error("not yet");
      return "up";
    });
    return await step(ctx, "then", () => `${flaky}!`);
  },

  async join(ctx, input, { step }) {
    // The reference forgets a name that is used for the first time while a flush of a sibling is under way.
    for (const name of ["wait", "s2", "inner", "a", "b", "x"]) await step(ctx, name, () => null);
    const joined = await ctx.join("all", {
      quick: { run: async (branch) => await step(branch, "q", () => input.n, {}, "all/quick/q") },
      slow: {
        run: async (branch) => {
          await step(branch, "s1", () => 1, {}, "all/slow/s1");
          await branch.sleep("wait", 2000);
          return await step(branch, "s2", () => 2, {}, "all/slow/s2");
        },
      },
      nested: {
        run: async (branch) =>
          await branch.join("inner", {
            a: { run: async (inner) => await step(inner, "x", () => "a", {}, "all/nested/inner/a/x") },
            b: { run: async (inner) => await step(inner, "x", () => "b", {}, "all/nested/inner/b/x") },
          }),
      },
    });
    return { joined, end: await step(ctx, "end", () => "end") };
  },

  async join_failing(ctx, input, { step }) {
    for (const name of ["wait", "b"]) await step(ctx, name, () => null); // as above
    const outcome = await ctx.try("guard", async (block) => {
      return await block.join("both", {
        good: { run: async (branch) => await step(branch, "g", () => input.n, {}, "guard/both/good/g") },
        bad: {
          run: async (branch) => {
            await branch.sleep("wait", 500);
            return await step(branch, "b", () => { throw new CriticalError("broken"); }, {}, "guard/both/bad/b");
          },
        },
      });
    });
    await ctx.sleep("after", 1000);
    return { ok: outcome.ok, source: outcome.failure.source, name: outcome.failure.name };
  },

  async race(ctx, input, { step }) {
    const first = await ctx.race("quick", [
      { name: "work", run: async (branch) => await step(branch, "w", () => input.n, {}, "quick/work/w") },
      {
        name: "limit",
        run: async (branch) => {
          await branch.sleep("limit", 3600000);
          return "late";
        },
      },
    ]);
    const second = await ctx.race("naps", [
      {
        name: "long",
        run: async (branch) => {
          await branch.sleep("nap", 5000);
          return await step(branch, "l", () => "long", {}, "naps/long/l");
        },
      },
      {
        name: "short",
        run: async (branch) => {
          await branch.sleep("nap", 1000);
          return await step(branch, "s", () => "short", {}, "naps/short/s");
        },
      },
    ]);
    return { first, second, end: await step(ctx, "end", () => "end") };
  },

  async queue(ctx, input, { step }) {
    const one = await ctx.queue.next("one", { names: ["a"] });
    const kept = await step(ctx, "kept", () => one.body);
    const many = await ctx.queue.nextBatch("many", { names: ["b", "c"], count: 3, timeout: 10000 });
    const none = await ctx.queue.nextBatch("none", { names: ["never"], timeout: 2000 });
    const any = await ctx.queue.next("any");
    return { one: one.body, kept, many: many.map(({ id, name, body }) => [id, name, body]), none, any: any.name };
  },

  async completable(ctx, input, { step }) {
    const answers = [];
    for (const index of [0, 1]) {
      const message = await ctx.queue.next(`ask${index}`, { names: ["ask"], completable: true });
      answers.push(await step(ctx, `answer${index}`, () => message.body * 2));
      await message.complete({ answer: answers[index] });
    }
    await ctx.sleep("rest", 1000);
    return answers;
  },

  async rollback(ctx, input, { step, undo }) {
    await step(ctx, "before", () => 0);
    await ctx.rollbackCheckpoint("from here");
    await step(ctx, "reserve", () => input.n, { rollback: undo("reserve") });
    await ctx.sleep("think", 1000);
    await step(ctx, "charge", () => input.n * 2, { rollback: undo("charge") });
    await step(ctx, "ship", () => { throw new CriticalError("no stock"); });
  },

  async try_step(ctx, input, { step, tryStep }) {
    const bad = await tryStep(ctx, "bad", () => { throw new Error("down"); }, { maxRetries: 1 });
    const good = await tryStep(ctx, "good", () => input.n);
    await ctx.sleep("rest", 1000);
    await step(ctx, "end", () => null);
    const { kind, stepName, attempts, error } = bad.failure;
    return { bad: [bad.ok, kind, stepName, attempts, error.message], good: [good.ok, good.value] };
  },

  async try_block(ctx, input, { step }) {
    const outcome = await ctx.try("block", async (block) => {
      await step(block, "fine", () => 1, {}, "block/fine");
      await block.sleep("rest", 1000);
      await step(block, "fails", () => { throw new Error("down"); }, { maxRetries: 0 }, "block/fails");
    });
    const fine = await ctx.try("other", async (block) => await step(block, "fine", () => input.n, {}, "other/fine"));
    await ctx.sleep("rest", 1000);
    const { source, name, step: failed } = outcome.failure;
    return { failure: [outcome.ok, source, name, failed.kind, failed.error.message], fine: [fine.ok, fine.value] };
  },

  async version(ctx, input, { step }) {
    const version = await ctx.getVersion("flow", 3);
    const made = await step(ctx, "made", () => version * input.n);
    await ctx.sleep("rest", 1000);
    return { version, made };
  },

  async removed(ctx, input, { step }) {
    await ctx.removed("old step", "step");
    await ctx.removed("old sleep", "sleep");
    const made = await step(ctx, "made", () => input.n);
    await ctx.sleep("rest", 1000);
    return made;
  },

  // Two deployments of one workflow: what `before` wrote, `after` continues.
  async before(ctx, input, { step }) {
    const old = await step(ctx, "old step", () => input.n);
    await ctx.sleep("old sleep", 1000);
    await ctx.sleep("rest", 1000);
    return await step(ctx, "last", () => old + 1);
  },

  async after(ctx, input, { step }) {
    const version = await ctx.getVersion("new way", 2);
    await ctx.removed("old step", "step");
    await ctx.removed("old sleep", "sleep");
    await ctx.sleep("rest", 1000);
    return await step(ctx, "last", () => `${input.n}, version ${version}`);
  },
};
