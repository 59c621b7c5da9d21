// Gives the calls that come as lines of JSON to a node; answers each with what the node did.

import { createInterface } from "node:readline";

const { ReceivingNode } = await import(`${process.argv[2]}/index.js`);
const { parse } = await import(`${process.argv[2]}/frames.js`);

const START_MS = 1e9, MS = 1_000_000n;   // both clocks when a trace begins, at 10^15 ns
const bytes = (hex) => new Uint8Array(Buffer.from(hex, "hex"));
const plain = (key, value) => value instanceof Uint8Array ? Buffer.from(value).toString("hex") : typeof value === "bigint" ? (key === "epoch" ? value.toString(16).padStart(16, "0") : String(value)) : value;

let node, ms, atOnce, drainedMs, transmitted, delivered, reported;
const now = () => ({ monoMs: START_MS + ms, unixNs: BigInt(START_MS + ms) * MS });

function deliver(flow) {
  const message = node.take(flow, now());
  if (message) delivered.push([ms, { flow, epoch: message.epoch, sequence: message.sequence, payload: Buffer.from(message.payload).toString("hex") }]);
  return message;
}

function note() {
  for (const flow of atOnce) while (deliver(flow));
  for (const { topic, frame } of node.transmits()) transmitted.push([ms, topic, Buffer.from(frame).toString("hex")]);
  for (const event of node.events()) reported.push([ms, event]);
}

const calls = {
  begin({ node: name, epoch, max_payload: maxPayload, window: windowOctets }) {
    ms = 0; atOnce = new Set(); drainedMs = null;
    node = new ReceivingNode({ node: name, epoch: BigInt(`0x${epoch}`), now: now(), maxPayload, windowOctets });
  },
  advance(to) {
    while (ms < to) {
      ms += 1;
      node.onTime(now(), drainedMs === null ? undefined : START_MS + drainedMs);
      note();
    }
  },
  receive([topic, hex, more]) { node.receive(topic, bytes(hex), now(), more); },
  subscribe(flow) { node.subscribe(flow); atOnce.add(flow); },
  listen(flow) { node.subscribe(flow); },
  take(flow) { deliver(flow); },
  stats() { delivered.push([ms, node.stats]); },
  backlog() { drainedMs = ms; },
  parse([topic, hex]) {
    try { delivered.push(parse(topic, bytes(hex))); } catch (error) { delivered.push({ malformed: error.reason }); }
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const [name, argument] = JSON.parse(line);
  transmitted = []; delivered = []; reported = [];
  calls[name](argument);
  if (node) note();
  console.log(JSON.stringify({ transmitted, delivered, reported }, plain));
}
