// A peer of a twinlink WebSocket listener that receives: docs/protocol.md, sections 2 to 4 and 8.
//
// It says hello, acknowledges each message, and repairs nothing: what it misses is a gap. Numbers of 64 bits are BigInt.

const DATA = 1, ACK = 2, HELLO = 3, BYE = 4;
const WORD = 0x544c0100;                 // "TL", version 1, and the kind
const HEADER_OCTETS = 32;
const SEARCH_MS = 50, HELLO_MS = 200;    // between two hellos, while no peer is up, and else
const SILENT_MS = 1300;                  // a peer that sends nothing for so long is down
const RECONNECT_MS = 500;
const LINK = "traffic/_link";

const text = new TextEncoder(), octets = new TextDecoder();

const unixNs = () => BigInt(Math.round((performance.timeOrigin + performance.now()) * 1000)) * 1000n;
const hex = (epoch) => epoch.toString(16).padStart(16, "0");

export class Peer {
  // Callbacks: message({flow, sequence, sentNs, payload}), gap({flow, first, end}), state(isUp).
  constructor(url, node, { message, gap, state }) {
    Object.assign(this, { url, node, message, gap, state });
    this.connect();
    setInterval(() => this.tick(), SEARCH_MS);
  }

  connect() {
    this.epoch = crypto.getRandomValues(new BigUint64Array(1))[0];
    this.origin = performance.now();     // the numbers of hellos count from here, in ns
    this.heard = new Map();              // by epoch of a session: number of its last hello
    this.heardMs = performance.now();
    this.saidMs = 0;
    this.next = new Map();               // by flow: the sequence that comes next
    this.setUp(false);
    this.socket = new WebSocket(`${this.url}/?epoch=${hex(this.epoch)}`, "twinlink.1");
    this.socket.binaryType = "arraybuffer";
    this.socket.onmessage = ({ data }) => this.take(data);
    this.socket.onclose = () => { this.setUp(false); setTimeout(() => this.connect(), RECONNECT_MS); };
  }

  setUp(isUp) {
    if (isUp !== this.isUp) { this.isUp = isUp; this.state(isUp); }
  }

  tick() {
    const now = performance.now();
    if (this.socket.readyState !== WebSocket.OPEN) return;
    if (this.isUp && now - this.heardMs > SILENT_MS) { this.heard.clear(); this.next.clear(); this.setUp(false); }
    if (now - this.saidMs >= (this.isUp ? HELLO_MS : SEARCH_MS)) this.sayHello();
  }

  sayHello() {
    this.saidMs = performance.now();
    const heard = Object.fromEntries([...this.heard].map(([epoch, number]) => [hex(epoch), number]));
    const number = BigInt(Math.round((this.saidMs - this.origin) * 1e6) + 1);
    this.send(LINK, HELLO, number, text.encode(JSON.stringify({ node: this.node, heard, flows: {} })));
  }

  send(topic, kind, sequence, body) {
    const name = text.encode(topic), start = 1 + name.length;
    const message = new Uint8Array(start + HEADER_OCTETS + body.length), view = new DataView(message.buffer, start);
    message[0] = name.length;
    message.set(name, 1);
    view.setUint32(0, WORD + kind);
    view.setUint32(4, body.length);
    view.setBigUint64(8, this.epoch);
    view.setBigUint64(16, sequence);
    view.setBigUint64(24, unixNs());
    message.set(body, start + HEADER_OCTETS);
    this.socket.send(message);
  }

  take(data) {
    const all = new Uint8Array(data), start = 1 + all[0];
    if (all.length < start + HEADER_OCTETS) return;
    const topic = octets.decode(all.subarray(1, start)), view = new DataView(data, start), kind = view.getUint8(3);
    if (view.getUint32(0) !== WORD + kind || view.getUint32(4) !== view.byteLength - HEADER_OCTETS) return;
    const epoch = view.getBigUint64(8), sequence = view.getBigUint64(16), sentNs = view.getBigUint64(24);
    const body = all.subarray(start + HEADER_OCTETS);
    this.heardMs = performance.now();
    if (kind === HELLO) this.onHello(epoch, Number(sequence), JSON.parse(octets.decode(body)));
    else if (kind === BYE) { this.heard.delete(epoch); this.next.clear(); this.setUp(false); }
    else if (kind === DATA && topic.startsWith("traffic/")) this.onData(topic.slice(8), epoch, sequence, sentNs, body);
  }

  onHello(epoch, number, hello) {
    if (!this.heard.has(epoch)) {        // another session: its flows begin where it says
      this.next = new Map(Object.entries(hello.flows).map(([flow, next]) => [flow, BigInt(next)]));
    }
    const hearsUs = hex(this.epoch) in hello.heard, answers = !hearsUs || !this.isUp;
    this.heard.set(epoch, number);
    if (answers) this.sayHello();
    this.setUp(this.isUp || hearsUs);
  }

  onData(flow, epoch, sequence, sentNs, payload) {
    const receivedNs = unixNs(), ack = new DataView(new ArrayBuffer(40)), next = this.next.get(flow) ?? sequence;
    [epoch, sequence + 1n, sequence, sentNs, receivedNs].forEach((value, place) => ack.setBigUint64(8 * place, value));
    this.send(`ack/${flow}`, ACK, 0n, new Uint8Array(ack.buffer));
    if (sequence < next) return;         // a repeat
    if (sequence > next) this.gap({ flow, first: next, end: sequence });
    this.next.set(flow, sequence + 1n);
    this.message({ flow, sequence, sentNs, payload });
  }
}
