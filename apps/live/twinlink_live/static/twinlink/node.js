// A node that receives (docs/protocol.md): it takes bytes and time, and returns bytes and events. No I/O, no clock.
//
// An instant is {monoMs, unixNs}: a number of a clock that never goes back, and Unix time as a BigInt.

import {
  FLOW, HEADER_OCTETS, Kind, LINK_TOPIC, MAX_PAYLOAD_OCTETS, Malformed, NODE_NAME, compose, helloBody, hexEpoch, parse,
} from "./frames.js";
import { Reassembler } from "./fragments.js";
import { Peers } from "./peers.js";
import { Stream } from "./stream.js";

const WINDOW_OCTETS = 134_217_728, ALWAYS_ALLOWED_OCTETS = 262_144;
const MAX_WAITING = 147_456;              // messages: an eighth more than a sender leaves unconsumed on a flow
const MAX_FLOWS = 1024, REPORT_MS = 50;

export class ReceivingNode {
  // `node`: its name. `epoch`: 64 random bits, new for each session. `now`: an instant. `windowOctets`: what may wait
  // to be taken, or for what is missing. `maxPayload`: octets of the longest message that it takes. Throws TypeError where
  // one of them cannot be.
  constructor({ node, epoch, now, windowOctets = WINDOW_OCTETS, maxPayload = MAX_PAYLOAD_OCTETS }) {
    if (typeof node !== "string" || !NODE_NAME.test(node)) {
      throw new TypeError(`node: give a name of 1 to 255 printable characters, not ${String(node)}`);
    }
    for (const [name, octets] of Object.entries({ windowOctets, maxPayload })) {
      const isNumber = Number.isSafeInteger(octets) && octets > 0;
      if (!isNumber) throw new TypeError(`${name}: give a whole number of octets above 0, not ${String(octets)}`);
    }
    Object.assign(this, { name: node, epoch, now, windowOctets, maxPayload });
    this.flows = new Map();
    this.stats = {};                     // counters by name; those of malformed frames begin with "malformed_"
    this.waitingOctets = this.waitingMessages = 0;
    this.owesAcks = new Set();           // streams, as those that follow
    this.consumes = new Set();           // something of them was consumed since `reportMs`
    this.reportMs = now.monoMs;
    this.refused = new Set();            // their senders are to be told
    this.closed = new Set();             // their windows are closed
    this.frames = new Reassembler(maxPayload, windowOctets + maxPayload + HEADER_OCTETS);
    this.peers = new Peers(epoch, now.monoMs, {
      report: (event) => this.reports.push(event), end: (session) => this.#end(session),
    });
    this.peers.ours = hexEpoch(epoch);
    this.ackNumber = 0n;
    this.out = [];
    this.reports = [];
  }

  // The application takes what comes on a flow; messages of other flows are rejected.
  subscribe(flow) {
    if (typeof flow !== "string" || !FLOW.test(flow)) {
      throw new TypeError(`${String(flow)}: no name of a flow; give 1 to 63 of A to Z, a to z, 0 to 9, ., _ and -`);
    }
    this.#flow(flow).isSubscribed = true;
  }

  // The next message of a flow, {flow, node, epoch, sequence, sentNs, receivedNs, payload}, or null. The sender learns
  // that there is room again.
  take(flow, now) {
    this.now = now;
    const next = this.flows.get(flow)?.queue.shift();
    if (!next) return null;
    next.stream.consume(next.message);
    this.#reopen();
    return next.message;
  }

  // A frame has arrived. `more`: others are close behind it, so acks may wait for them, until `onTime` at the latest.
  receive(topic, frame, now, more = false) {
    this.now = now;
    try {
      this.#take(topic, frame, more);
    } catch (error) {
      if (!(error instanceof Malformed)) throw error;
      this.count(`malformed_${error.reason}`);
      this.reports.push({ event: "malformed", reason: error.reason });
    }
    if (!more) this.#flush();
    this.#sayHello();
  }

  // Time has passed: call it every 50 ms or more often. `drainedMs`: when the transport was last read to its end, if it
  // has not been since.
  onTime(now, drainedMs = now.monoMs) {
    this.now = now;
    this.#flush();
    this.peers.onTime(now.monoMs, drainedMs);
    this.#reopen();
    if (now.monoMs - this.reportMs >= REPORT_MS) this.#report();
    this.#sayHello();
  }

  get isUp() { return this.peers.isUp; }

  // The session ends: peers need not wait until it is missed.
  close(now) {
    this.now = now;
    this.#flush();
    this.#transmit(LINK_TOPIC, Kind.BYE, 0n, []);
  }

  // The frames that are to be sent now: a list of {topic, frame}, in order.
  transmits() {
    const out = this.out;
    this.out = [];
    return out;
  }

  // What has happened, {event: "peer_up" | "peer_down" | "gap" | "unclaimed" | "malformed", ...}, in order.
  events() {
    const reports = this.reports;
    this.reports = [];
    return reports;
  }

  #take(topic, frame, more) {
    const parsed = parse(topic, frame), { kind, epoch } = parsed;
    if (epoch === this.epoch) throw new Malformed("reflected");
    const session = this.peers.sessions.get(epoch);
    if (session) session.heardMs = this.now.monoMs;
    if (kind === Kind.HELLO) this.#onHello(parsed);
    else if (kind === Kind.BYE) this.peers.onBye(epoch);
    else if (!topic.startsWith("traffic/")) return;        // it acknowledges what this node, which sends nothing, sent
    else if (!session) this.count("unknown");              // it says no hello, or has been replaced
    else if (kind === Kind.FRAGMENT) this.#onFragment(topic, parsed, session, more);
    else this.#onMessages(parsed, session, more);
  }

  #onHello(parsed) {
    const session = this.peers.onHello(parsed.epoch, parsed, this.now.monoMs);
    if (!session) return this.count("unknown");
    const since = parsed.hello.since.get(this.peers.ours);
    if (!since || session.since) return;
    session.since = new Map(Object.entries(since));
    for (const [flow, first] of session.since) session.streams.get(flow)?.startAt(BigInt(first));
  }

  #onMessages(parsed, session, more) {
    const stream = this.#stream(session, parsed.flow), from = { flow: parsed.flow, node: session.node, epoch: session.epoch };
    if (!stream) return;
    if (parsed.kind === Kind.ABANDONED) return stream.abandon(parsed.reason, parsed.ranges, parsed.sequence);
    for (const { kind, sequence, sentNs, payload } of messagesOf(parsed)) {
      if (payload.length > this.maxPayload) stream.skip(sequence);
      else stream.take({ ...from, sequence, sentNs, receivedNs: this.now.unixNs, payload }, kind === Kind.RETRANSMIT);
    }
    if (more && stream.isBatchFull) stream.flush();
  }

  #onFragment(topic, parsed, session, more) {
    const { epoch, sentNs, flow } = parsed, { whole, tooLong, received = 0 } = this.frames.receive(topic, parsed);
    if (tooLong !== undefined) this.#stream(session, flow)?.skip(tooLong);
    if (!whole) return this.sendControl({ name: flow }, Kind.FRAGMENT_PROGRESS, [epoch, sentNs, BigInt(received)]);
    const inner = parse(topic, whole);
    if (inner.epoch !== epoch || inner.kind === Kind.FRAGMENT || inner.kind === Kind.RUN) throw new Malformed("fragment");
    this.#onMessages(inner, session, more);
  }

  #flow(name) {
    let flow = this.flows.get(name);
    if (!flow) this.flows.set(name, flow = { name, isSubscribed: false, queue: [] });
    return flow;
  }

  // The stream of a session on a flow; undefined where there are too many flows.
  #stream(session, flow) {
    let stream = session.streams.get(flow);
    if (!stream) {
      if (!this.flows.has(flow) && this.flows.size >= MAX_FLOWS) return void this.count("limited");
      const start = session.since?.get(flow) ?? session.flows.get(flow) ?? 0;
      const repairs = session.repairs && !session.detect.has(flow);
      stream = new Stream(this, this.#flow(flow), session.epoch, repairs, BigInt(start), session.kept);
      session.streams.set(flow, stream);
    }
    return stream;
  }

  #end(session) {
    this.frames.forget(session.epoch);
    for (const stream of session.streams.values()) stream.end();
  }

  #report() {
    this.reportMs = this.now.monoMs;
    for (const stream of this.consumes) stream.report();
    this.consumes.clear();
  }

  #flush() {
    for (const stream of this.owesAcks) stream.flush();
    for (const { flow, epoch, refusedEnd } of this.refused) this.sendControl(flow, Kind.REFUSED, [epoch, refusedEnd], 0n);
    this.refused.clear();
  }

  #reopen() {
    for (const stream of this.closed) stream.reopen(this.windowOctets - this.waitingOctets, this.windowOctets);
  }

  #sayHello() {
    const { monoMs } = this.now;
    if (!this.peers.isHelloDue(monoMs)) return;
    const { number, behind } = this.peers.nextHello(monoMs);
    const body = helloBody({ node: this.name, heard: this.peers.heard, maxPayload: this.maxPayload, behind });
    this.#transmit(LINK_TOPIC, Kind.HELLO, number, body);
  }

  #transmit(topic, kind, number, body) {
    this.out.push({ topic, frame: compose(kind, this.epoch, number, this.now.unixNs, body) });
  }

  // What streams call

  sendControl(flow, kind, body, number = this.ackNumber++) { this.#transmit(`ack/${flow.name}`, kind, number, body); }

  count(name, by = 1) { this.stats[name] = (this.stats[name] ?? 0) + by; }

  gap({ flow, epoch }, first, end) {
    this.count("gaps", Number(end - first));
    this.reports.push({ event: "gap", flow: flow.name, epoch, first, end });
  }

  rejected({ flow, epoch, rejected }, sequence) {
    this.count("rejected");
    if (!rejected.count) this.reports.push({ event: "unclaimed", flow: flow.name, epoch, first: sequence, end: sequence + 1n });
  }

  // So much more waits for what is missing, or to be taken.
  hold(octets, messages) {
    this.waitingOctets += octets;
    this.waitingMessages += messages;
  }

  // Whether a message of so many octets may wait; `beside`: messages that go on as soon as it is here.
  hasRoom(octets, beside = 0) {
    const fits = this.waitingOctets <= ALWAYS_ALLOWED_OCTETS || this.waitingOctets + octets <= this.windowOctets;
    return fits && this.waitingMessages - beside < MAX_WAITING;
  }
}

function messagesOf({ kind, sequence, sentNs, body, messages, payloads }) {
  if (kind === Kind.BUNDLE) return messages.map((one) => ({ ...one, payload: one.body }));
  if (kind === Kind.RUN) return payloads.map((payload, at) => ({ kind, sequence: sequence + BigInt(at), sentNs, payload }));
  return [{ kind, sequence, sentNs, payload: body }];
}
