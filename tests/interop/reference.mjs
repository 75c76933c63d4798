// The reference engine as a process: one JSON request a line on stdin, one JSON answer a line on stdout.
//
// Request:
//   {workflow, id, input, kv: [[hex, hex]...], messages: [{id, name, body, at}...], now, mode}
//   now and at are milliseconds since the epoch. mode "once" runs until the workflow ends or yields; "drive" goes on from
//   alarm to alarm and message to message, on a clock that jumps, until it has ended or nothing is left to wait for.
// Answer:
//   {state, result | threw: {name, message}, kv, messages, alarm, now, ran: [labels], snapshots: [{kv, messages, now}...]}
//   one snapshot for each write that the engine made, taken just after it.

import { createInterface } from "node:readline";
import { runWorkflow } from "./engine.mjs";
import { workflows } from "./workflows.mjs";

const EPOCH_DATE_NOW = Date.now;
const ENDED = new Set(["completed", "failed", "cancelled"]);

class Store {
  atomicBatch = true;
  workerPollInterval = 0;
  pairs = new Map();
  inbox = [];
  taken = [];
  alarm = null;
  snapshots = [];

  constructor(request) {
    for (const [key, value] of request.kv) this.pairs.set(key, value);
    this.upcoming = [...request.messages].sort((a, b) => a.at - b.at);
    this.messageDriver = {
      addMessage: async (message) => void this.inbox.push(message),
      receiveMessages: async (options) => this.receive(options),
      completeMessage: async (id) => this.complete(id),
    };
  }

  // --- messages

  deliver(now) {
    while (this.upcoming.length > 0 && this.upcoming[0].at <= now) {
      const { id, name, body, at } = this.upcoming.shift();
      this.inbox.push({ id, name, data: body, sentAt: at });
    }
  }

  receive({ names, count, completable }) {
    const found = this.inbox.filter((message) => !names || names.includes(message.name)).slice(0, count);
    if (!completable) {
      this.inbox = this.inbox.filter((message) => !found.includes(message));
      this.taken.push(...found);
    }
    return found;
  }

  complete(id) {
    this.inbox = this.inbox.filter((message) => message.id !== id);
  }

  /** What a consumer that took and recorded in one write would have left: a message taken but in no record is there still. */
  remaining() {
    const recorded = [...this.pairs.values()].join(" ");
    const lost = this.taken.filter(({ id }) => !recorded.includes(Buffer.from(id).toString("hex")));
    const there = [...lost, ...this.inbox].map(({ id, name, data, sentAt }) => ({ id, name, body: data, at: sentAt }));
    return [...there, ...this.upcoming].sort((a, b) => a.at - b.at);
  }

  snapshot() {
    this.snapshots.push({ kv: this.dump(), messages: this.remaining(), now: Date.now() });
  }

  dump() {
    return [...this.pairs].sort(([a], [b]) => (a < b ? -1 : 1));
  }

  // --- the driver's port

  async get(key) {
    const value = this.pairs.get(hex(key));
    return value === undefined ? null : bytes(value);
  }
  async set(key, value) {
    this.pairs.set(hex(key), hex(value));
    this.snapshot();
  }
  async delete(key) {
    this.pairs.delete(hex(key));
  }
  async batchDelete(keys) {
    for (const key of keys) this.pairs.delete(hex(key));
  }
  async deletePrefix(prefix) {
    for (const key of [...this.pairs.keys()]) if (key.startsWith(hex(prefix))) this.pairs.delete(key);
  }
  async deleteRange(start, end) {
    for (const key of [...this.pairs.keys()]) if (key >= hex(start) && key < hex(end)) this.pairs.delete(key);
  }
  async list(prefix) {
    const found = this.dump().filter(([key]) => key.startsWith(hex(prefix)));
    return found.map(([key, value]) => ({ key: bytes(key), value: bytes(value) }));
  }
  async batch(writes) {
    for (const { key, value } of writes) this.pairs.set(hex(key), hex(value));
    this.snapshot();
  }
  async setAlarm(id, at) {
    this.alarm = at;
  }
  async clearAlarm() {
    this.alarm = null;
  }
  async waitForMessages() {
    throw new Error("this store runs in yield mode only");
  }
}

const hex = (data) => Buffer.from(data).toString("hex");
const bytes = (text) => new Uint8Array(Buffer.from(text, "hex"));

function makeWorld(ran) {
  const step = (call) => (ctx, name, body, options = {}, label = name) =>
    ctx[call]({
      name,
      run: async () => {
        ran.push(label);
        return body();
      },
      ...options,
    });
  const undo = (label) => async () => void ran.push(`undo ${label}`);
  return { step: step("step"), tryStep: step("tryStep"), undo, now: () => Date.now() };
}

async function answer(request) {
  let now = request.now;
  Date.now = () => now;
  const store = new Store(request);
  const ran = [];
  const run = async (ctx, input) => await workflows[request.workflow](ctx, input, makeWorld(ran));
  const outcome = {};
  try {
    for (;;) {
      store.deliver(now);
      const handle = runWorkflow(request.id, run, request.input, store);
      const { state, output, sleepUntil } = await handle.result;
      Object.assign(outcome, { state, result: output ?? null });
      const next = Math.min(sleepUntil ?? Infinity, store.upcoming[0]?.at ?? Infinity);
      if (request.mode === "once" || ENDED.has(state) || next === Infinity) break;
      now = Math.max(now, next);
    }
  } catch (error) {
    outcome.threw = { name: error.name, message: error.message };
    outcome.state = "failed";
  } finally {
    Date.now = EPOCH_DATE_NOW;
  }
  const { alarm, snapshots } = store;
  return { ...outcome, kv: store.dump(), messages: store.remaining(), alarm, now, ran, snapshots };
}

for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(`${JSON.stringify(await answer(JSON.parse(line)))}\n`);
}
