// Joins a receiving node to a twinlink WebSocket listener: reads, stamps, feeds, drains, sends (docs/protocol.md,
// section 8). For browsers, and for programs that have their WebSocket.

import { hexEpoch } from "./frames.js";
import { ReceivingNode } from "./node.js";

const TICK_MS = 50, RECONNECT_MS = 500;
const LATE_MS = 300;                     // a tick so late was held up, and so may be what has arrived
const CLOCK_MS = 5;                      // between Unix time and that since the page's origin, beyond their resolution
const SILENT_MS = 6000;                  // a connection on which nothing comes; of a listener, hellos do

const SETTINGS = ["node", "windowOctets", "maxPayload"];
const NO_WEBSOCKET = "this program has no WebSocket: use Node 22 or newer, or node --experimental-websocket";

const encoder = new TextEncoder(), decoder = new TextDecoder();

// The clock that never goes back stops while a computer sleeps, and does not notice when the time is set.
let originMs = performance.timeOrigin;
const now = () => {
  const monoMs = performance.now(), originNowMs = Date.now() - monoMs;
  if (Math.abs(originNowMs - originMs) > CLOCK_MS) originMs = originNowMs;
  return { monoMs, unixNs: BigInt(Math.round((originMs + monoMs) * 1000)) * 1000n };
};

// Opens a link to a listener's URL, of scheme ws or wss, and connects again whenever its connection ends, until it is
// closed.
//
// `node`: its name. `flows`: names of those that are taken. `message({flow, node, epoch, sequence, sentNs, receivedNs,
// payload})` is called with each message, once and in order; `event({event, ...})` as ReceivingNode.events() says;
// `state(isUp)` soon, and when the peer has come up or is not there any more. Further settings are those of
// ReceivingNode. Throws Error where there is no WebSocket, and TypeError where a setting cannot be.
export function connect(url, { flows, message, event = () => {}, state = () => {}, ...settings }) {
  if (!Array.isArray(flows)) throw new TypeError('flows: give a list of names, such as ["spectrum"]');
  for (const [name, call] of Object.entries({ message, event, state })) {
    if (typeof call !== "function") throw new TypeError(`${name}: give a function`);
  }
  for (const name of Object.keys(settings)) {
    if (!SETTINGS.includes(name)) throw new TypeError(`${name}: there is no such setting; see docs/javascript.md`);
  }
  return new Link(url, flows, { message, event, state }, settings);
}

class Link {
  #url; #flows; #calls; #node; #epoch; #socket; #timer; #drainedMs; #tickMs; #heardMs; #events = []; #wasLate = false;
  #isClosed = false;

  constructor(url, flows, calls, settings) {
    if (typeof WebSocket === "undefined") throw new Error(NO_WEBSOCKET);
    [this.#url, this.#flows, this.#calls] = [url, flows, calls];
    this.#epoch = crypto.getRandomValues(new BigUint64Array(1))[0];
    this.#drainedMs = this.#tickMs = performance.now();
    this.#node = new ReceivingNode({ epoch: this.#epoch, now: now(), ...settings });
    for (const flow of flows) this.#node.subscribe(flow);
    this.#connect();
    this.#timer = setInterval(() => this.#tick(), TICK_MS);
  }

  // Counters by name.
  get stats() { return { ...this.#node.stats }; }

  close() {
    if (this.#isClosed) return;
    this.#isClosed = true;
    clearInterval(this.#timer);
    this.#node.close(now());
    this.#drain();
    this.#socket.close();
  }

  #connect() {
    this.#heardMs = performance.now();
    const socket = this.#socket = new WebSocket(`${this.#url}/?epoch=${hexEpoch(this.#epoch)}`, "twinlink.1");
    socket.binaryType = "arraybuffer";
    socket.onmessage = ({ data }) => this.#receive(data);
    socket.onclose = socket.onerror = () => this.#hasEnded(socket);     // Node 20 has no close behind a first error
  }

  // The next attempt is sure before the program is told, which may throw.
  #hasEnded(socket) {
    socket.onmessage = socket.onclose = socket.onerror = null;
    if (!this.#isClosed) setTimeout(() => this.#isClosed || this.#connect(), RECONNECT_MS);
    this.#drain();
  }

  #receive(data) {
    this.#heardMs = performance.now();
    const octets = typeof data === "string" ? new Uint8Array() : new Uint8Array(data), end = 1 + octets[0];
    if (!(end > 1 && end <= octets.length)) this.#node.count("malformed_topic");
    else this.#node.receive(decoder.decode(octets.subarray(1, end)), octets.subarray(end), now());
    this.#drain();
  }

  // After a tick that comes late, the messages that have arrived meanwhile are read first, and only then missed.
  #tick() {
    const instant = now(), { monoMs } = instant;
    this.#wasLate = monoMs - this.#tickMs > LATE_MS && !this.#wasLate;
    this.#tickMs = monoMs;
    if (!this.#wasLate) this.#drainedMs = monoMs;
    this.#node.onTime(instant, this.#drainedMs);
    if (this.#socket.onclose && this.#drainedMs - this.#heardMs > SILENT_MS) {
      const silent = this.#socket;       // a path that is gone may tell neither side for a quarter of an hour
      silent.close();
      this.#hasEnded(silent);
    } else this.#drain();
  }

  // Acks leave before the program gets the messages: it may take long, or throw.
  #drain() {
    this.#transmit();
    const isUp = this.#socket.readyState === WebSocket.OPEN && this.#node.isUp;
    if (isUp !== this.isUp) this.#calls.state(this.isUp = isUp);
    this.#events = this.#events.concat(this.#node.events());
    while (this.#events.length) this.#calls.event(this.#events.shift());
    for (const flow of this.#flows) {
      for (let one = this.#node.take(flow, now()); one; one = this.#node.take(flow, now())) this.#calls.message(one);
    }
    this.#transmit();                    // what was taken may have made room
  }

  #transmit() { for (const one of this.#node.transmits()) this.#send(one); }

  #send({ topic, frame }) {
    if (this.#socket.readyState !== WebSocket.OPEN) return this.#node.count("unsent");
    const name = encoder.encode(topic), message = new Uint8Array(1 + name.length + frame.length);
    message[0] = name.length;
    message.set(name, 1);
    message.set(frame, 1 + name.length);
    this.#socket.send(message);
  }
}
