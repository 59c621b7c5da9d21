// Frames and their bodies (docs/protocol.md, sections 2, 3 and 6). 64-bit integers are BigInt, epochs too.

export const Kind = Object.freeze({
  DATA: 1, ACK: 2, HELLO: 3, BYE: 4, RETRANSMIT: 5, NAK: 6, ABANDONED: 7, BUNDLE: 8, FRAGMENT: 9, FRAGMENT_PROGRESS: 10,
  ACK_RANGE: 11, REFUSED: 12, RUN: 13,
});
export const HEADER_OCTETS = 32;
export const MAX_PAYLOAD_OCTETS = 16_777_216;
export const MAX_SEQUENCE = 2n ** 63n - 1n;
export const MAX_RECORDS = 256;          // of an ack; ranges of a nak or of an abandoned frame
export const MAX_ROW = 4096;             // messages of an ack range or of a run
export const CONFLATED = 2;              // of the reasons of an abandoned frame
export const LINK_TOPIC = "traffic/_link";
const WORD = 0x544c0100;                 // "TL", version 1, and the kind
const MAX_HELLO_OCTETS = 262_144, MAX_BUNDLED = 16_384;
export const FLOW = /^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/;
const EPOCH = /^[0-9a-f]{16}$/;
export const NODE_NAME = /^(?: |[^\p{C}\p{Z}]){1,255}$/u;         // printable characters
const ON_ACK_TOPIC = [Kind.ACK, Kind.NAK, Kind.FRAGMENT_PROGRESS, Kind.ACK_RANGE, Kind.REFUSED];

const encoder = new TextEncoder(), decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

export const hexEpoch = (epoch) => epoch.toString(16).padStart(16, "0");

// What violates the protocol; `reason` is the name of its counter (section 7).
export class Malformed extends Error {
  constructor(reason) { super(`malformed: ${reason}`); this.reason = reason; }
}

function check(holds, reason) { if (!holds) throw new Malformed(reason); }

const viewOf = (octets) => new DataView(octets.buffer, octets.byteOffset, octets.byteLength);

// The header and body of a frame: {kind, epoch, sequence, sentNs, body}. Throws Malformed.
export function parseHeader(frame) {
  check(frame.length >= HEADER_OCTETS, "truncated");
  const view = viewOf(frame), word = view.getUint32(0), kind = word & 0xff;
  check(word >>> 16 === WORD >>> 16, "magic");
  check((word >>> 8) === (WORD >>> 8), "version");
  check(kind >= Kind.DATA && kind <= Kind.RUN, "kind");
  check(view.getUint32(4) === frame.length - HEADER_OCTETS, "length");
  return {
    kind, epoch: view.getBigUint64(8), sequence: view.getBigUint64(16), sentNs: view.getBigUint64(24),
    body: frame.subarray(HEADER_OCTETS),
  };
}

// The whole of a frame: what `parseHeader` gives, its flow (null of a hello or bye), and what its body says.
// Throws Malformed.
export function parse(topic, frame) {
  const parsed = parseHeader(frame), { kind } = parsed;
  parsed.flow = flowOf(topic, kind);
  check(parsed.sequence <= MAX_SEQUENCE, "sequence");
  Object.assign(parsed, BODIES[kind]?.(viewOf(parsed.body), parsed));
  return parsed;
}

function flowOf(topic, kind) {
  if (kind === Kind.HELLO || kind === Kind.BYE) {
    check(topic === LINK_TOPIC, "topic");
    return null;
  }
  const prefix = ON_ACK_TOPIC.includes(kind) ? "ack/" : "traffic/";
  check(topic.startsWith(prefix) && FLOW.test(topic.slice(prefix.length)), "topic");
  return topic.slice(prefix.length);
}

const BODIES = {
  [Kind.DATA]: (view) => { check(view.byteLength <= MAX_PAYLOAD_OCTETS, "length"); },
  [Kind.RETRANSMIT]: (view) => { check(view.byteLength <= MAX_PAYLOAD_OCTETS, "length"); },
  [Kind.ACK]: (view) => {
    check(view.byteLength >= 16 && (view.byteLength - 16) % 24 === 0, "ack");
    check((view.byteLength - 16) / 24 <= MAX_RECORDS, "ack");
    for (let at = 16; at < view.byteLength; at += 24) check(view.getBigUint64(at) <= MAX_SEQUENCE, "ack");
  },
  [Kind.ACK_RANGE]: (view) => {
    check(view.byteLength === 40, "ack_range");
    const first = view.getBigUint64(16), end = view.getBigUint64(24);
    check(first < end && end - first <= MAX_ROW && end <= MAX_SEQUENCE && view.getBigUint64(32) > 0n, "ack_range");
  },
  [Kind.NAK]: (view) => { rangesOf(view, 16, "nak"); },
  [Kind.ABANDONED]: (view) => {
    const ranges = rangesOf(view, 8, "abandoned"), reason = view.getBigUint64(0);
    check(reason <= CONFLATED, "abandoned");
    return { reason: Number(reason), ranges };
  },
  [Kind.BUNDLE]: (view, { body, epoch }) => ({ messages: bundled(body, epoch) }),
  [Kind.RUN]: (view, { body, sequence }) => {
    check(view.byteLength >= 8, "run");
    const count = view.getUint32(0), octets = view.getUint32(4);
    check(count >= 1 && count <= MAX_ROW && octets >= 1 && octets <= MAX_PAYLOAD_OCTETS, "run");
    check(view.byteLength === 8 + count * octets && sequence + BigInt(count) - 1n <= MAX_SEQUENCE, "run");
    const payload = (at) => body.subarray(8 + at * octets, 8 + (at + 1) * octets);
    return { payloads: Array.from({ length: count }, (_, at) => payload(at)) };
  },
  [Kind.FRAGMENT_PROGRESS]: (view) => { check(view.byteLength === 24, "fragment_progress"); },
  [Kind.REFUSED]: (view) => { check(view.byteLength === 16 && view.getBigUint64(8) <= MAX_SEQUENCE, "refused"); },
  [Kind.HELLO]: (view, { body }) => ({ hello: helloOf(body) }),
};

function rangesOf(view, start, reason) {
  const count = (view.byteLength - start) / 16, ranges = [];
  check(Number.isInteger(count) && count >= 0 && count <= MAX_RECORDS, reason);
  for (let at = start, least = -1n; at < view.byteLength; at += 16) {
    const first = view.getBigUint64(at), end = view.getBigUint64(at + 8);
    check(first > least && first < end && end <= MAX_SEQUENCE, reason);
    ranges.push([first, end]);
    least = end;
  }
  return ranges;
}

function bundled(body, epoch) {
  const messages = [];
  for (let at = 0; at < body.length; ) {
    check(body.length - at >= HEADER_OCTETS && messages.length < MAX_BUNDLED, "bundle");
    const end = at + HEADER_OCTETS + viewOf(body).getUint32(at + 4);
    check(end <= body.length, "bundle");
    let one;
    try { one = parseHeader(body.subarray(at, end)); } catch { throw new Malformed("bundle"); }
    check(one.kind === Kind.DATA || one.kind === Kind.RETRANSMIT, "bundle");
    check(one.epoch === epoch && one.sequence <= MAX_SEQUENCE, "bundle");
    messages.push(one);
    at = end;
  }
  return messages;
}

// What a hello says. Numbers above 2^53 come as the nearest double.
function helloOf(body) {
  check(body.length <= MAX_HELLO_OCTETS, "hello");
  let given;
  try { given = JSON.parse(decoder.decode(body)); } catch { throw new Malformed("hello"); }
  const isObject = (one) => typeof one === "object" && one !== null && !Array.isArray(one);
  const isNumber = (one) => Number.isInteger(one) && one >= 0 && one <= 2 ** 63;
  const isMap = (one, keys, isValue) => (
    isObject(one) && Object.entries(one).every(([key, value]) => keys.test(key) && isValue(value))
  );
  const isNumbers = (one, keys) => isMap(one, keys, isNumber);
  check(isObject(given), "hello");
  const { node, heard, flows, detect = [], since = {}, max_payload = MAX_PAYLOAD_OCTETS } = given;
  check(typeof node === "string" && NODE_NAME.test(node), "hello");
  check(isNumbers(heard, EPOCH) && isNumbers(flows, FLOW) && isNumber(max_payload), "hello");
  check(Array.isArray(detect) && detect.every((flow) => FLOW.test(flow)), "hello");
  check(isMap(since, EPOCH, (one) => isNumbers(one, FLOW)), "hello");
  for (const flag of ["repairs", "runs", "behind"]) check([undefined, true, false].includes(given[flag]), "hello");
  return {
    node, heard: new Map(Object.entries(heard)), flows: new Map(Object.entries(flows)),
    since: new Map(Object.entries(since)), detect: new Set(detect),
    repairs: given.repairs === true, behind: given.behind === true,
  };
}

// A frame, of the parts of its body: Uint8Array, or a list of 64-bit integers.
export function compose(kind, epoch, sequence, sentNs, body) {
  const octets = Array.isArray(body) ? 8 * body.length : body.length;
  const frame = new Uint8Array(HEADER_OCTETS + octets), view = viewOf(frame);
  view.setUint32(0, WORD + kind);
  view.setUint32(4, octets);
  view.setBigUint64(8, epoch);
  view.setBigUint64(16, sequence);
  view.setBigUint64(24, sentNs);
  if (Array.isArray(body)) body.forEach((value, at) => view.setBigUint64(HEADER_OCTETS + 8 * at, value));
  else frame.set(body, HEADER_OCTETS);
  return frame;
}

// The body of a hello of a node that sends no messages; `heard` has its numbers by epoch, both BigInt. They are written
// digit by digit: as doubles they might come back changed.
export function helloBody({ node, heard, maxPayload, behind }) {
  const listed = [...heard].map(([epoch, number]) => `"${hexEpoch(epoch)}":${number}`).join(",");
  const limit = maxPayload === MAX_PAYLOAD_OCTETS ? "" : `,"max_payload":${maxPayload}`;
  const more = limit + (behind ? ',"behind":true' : "");
  return encoder.encode(
    `{"node":${JSON.stringify(node)},"heard":{${listed}},"flows":{},"repairs":true,"runs":true${more}}`,
  );
}
