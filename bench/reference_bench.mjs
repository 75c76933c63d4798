// The reference engine as a subject: one JSON request a line, one JSON answer a line, as engine_runs.py does for ours.
//
// Its store is a map in this process and answers at once, like the driver that ours runs on: no copies, no latency.

import { createInterface } from "node:readline";
import { Loop, runWorkflow } from "../tests/interop/engine.mjs";

const HOUR_MS = 3_600_000;

const text = (key) => Buffer.from(key).toString("latin1");

class MapDriver {
  workerPollInterval = 100;
  pairs = new Map();
  inbox = [];
  batches = 0;
  messageDriver = {
    addMessage: async (message) => void this.inbox.push(message),
    receiveMessages: async ({ names, count }) =>
      this.inbox.filter(({ name }) => !names || names.includes(name)).slice(0, count),
    completeMessage: async (id) => void (this.inbox = this.inbox.filter((message) => message.id !== id)),
  };

  async get(key) {
    return this.pairs.get(text(key))?.value ?? null;
  }
  async set(key, value) {
    this.pairs.set(text(key), { key, value });
  }
  async delete(key) {
    this.pairs.delete(text(key));
  }
  async batchDelete(keys) {
    for (const key of keys) this.pairs.delete(text(key));
  }
  async deletePrefix(prefix) {
    const start = text(prefix);
    for (const key of this.pairs.keys()) if (key.startsWith(start)) this.pairs.delete(key);
  }
  async deleteRange(from, to) {
    const [start, end] = [text(from), text(to)];
    for (const key of this.pairs.keys()) if (start <= key && key < end) this.pairs.delete(key);
  }
  async list(prefix) {
    const start = text(prefix);
    const found = [...this.pairs].filter(([key]) => key.startsWith(start));
    return found.sort(([a], [b]) => (a < b ? -1 : 1)).map(([, pair]) => pair);
  }
  async batch(writes) {
    this.batches += 1;
    for (const pair of writes) this.pairs.set(text(pair.key), pair);
  }
  async setAlarm() {}
  async clearAlarm() {}
  async waitForMessages() {
    throw new Error("nothing here waits for messages");
  }
}

async function timed(workflow, driver) {
  globalThis.gc?.();
  const began = performance.now();
  const { state } = await runWorkflow("bench", workflow, {}, driver).result;
  return { state, us: (performance.now() - began) * 1000 };
}

function expect(found, wanted) {
  if (found !== wanted) throw new Error(`${found} instead of ${wanted}`);
}

async function steps(n) {
  const workflow = async (ctx) => {
    let total = 0;
    for (let i = 0; i < n; i++) total += await ctx.step(`s${i}`, async () => i);
    await ctx.sleep("pause", HOUR_MS);
    return total;
  };
  const driver = new MapDriver();
  const fresh = await timed(workflow, driver);
  const replay = await timed(workflow, driver);
  expect(fresh.state, "sleeping");
  expect(replay.state, "sleeping");
  return { fresh: fresh.us / n, replay: replay.us / n, commits: driver.batches };
}

async function loop(n) {
  const workflow = async (ctx) =>
    ctx.loop({
      name: "l",
      state: 0,
      run: async (scope, number) => {
        if (number === n) return Loop.break(number);
        await scope.step("act", async () => number);
        return Loop.continue(number + 1);
      },
    });
  const driver = new MapDriver();
  const whole = await timed(workflow, driver);
  expect(whole.state, "completed");
  return { iteration: whole.us / n, keys_end: driver.pairs.size };
}

const kinds = { steps, loop };

for await (const line of createInterface({ input: process.stdin })) {
  const { kind, n } = JSON.parse(line);
  process.stdout.write(`${JSON.stringify(await kinds[kind](n))}\n`);
}
