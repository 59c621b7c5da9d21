// The messages of one session on one flow: order, gaps, acks and naks (docs/protocol.md, section 5). A stream is of a
// sender that repairs, or of one that does not: then it delivers what comes as it comes, and what is missing is a gap.

import { CONFLATED, Kind, MAX_RECORDS, MAX_ROW } from "./frames.js";
import { Ranges } from "./ranges.js";

const CREDIT_OCTETS = 131_072, CREDIT_PER_MESSAGE = 512;   // consumed since it was last said: then it is said
const MAX_BATCH = 64;                                      // acks that wait for others
const MAX_RANGES_KEPT = 16_384;          // of a session, on all of its flows: a peer could leave out every other number
const MAX_JUMP = 2n ** 26n;              // more numbers than a peer could send while it is suspended
const REQUEST_OCTETS = 262_144;          // of refused messages that are requested together

const max = (a, b) => (a > b ? a : b), min = (a, b) => (a < b ? a : b);

export class Stream {
  // `start`: the number that is expected first. `node` sends, reports and limits (node.js). `kept.count`: the
  // session's ranges, which its streams (`kept.streams`) have together.
  constructor(node, flow, epoch, repairs, start, kept) {
    Object.assign(this, { node, flow, epoch, repairs, kept });
    this.next = start;                   // every number below it was sent, as far as is known
    this.due = start;                    // the next that is delivered; of a sender that does not repair, `next`
    this.consumed = start;
    this.missing = new Ranges(kept);
    this.passed = new Ranges(kept);      // numbers that are not delivered: given up, or rejected
    this.rejected = new Ranges(kept);    // of them, those that no abandoned frame has named yet
    this.isNew = true;                   // nothing has come yet
    this.held = new Map();               // behind something that is missing
    this.acks = [];                      // {sequence, sentNs, receivedNs}: not sent yet
    this.queued = 0;                     // messages that wait for the application
    this.heldOctets = this.unreported = 0;
    this.windowEnd = null;               // where the window is closed: from which number on messages are refused
    this.refusedEnd = 0n;
    this.refusedOctets = 1;              // of the last one that was refused
  }

  // Takes a message in: {sequence, sentNs, receivedNs, payload}.
  take(message, isRetransmission) {
    const { sequence, payload } = message;
    if (this.#jumps(sequence) || this.#crowds(sequence)) return;
    if (isRetransmission && this.isNew) return this.node.count("stray");
    if (this.isNew && sequence < this.next) this.next = this.due = this.consumed = sequence;
    this.isNew = false;
    if (this.rejected.has(sequence)) return this.#reject(message);
    if (!this.flow.isSubscribed) return this.#reject(message);
    if (!this.#isNews(sequence)) return this.#repeat(message);
    if (!this.#fits(sequence, payload.length)) return this.#refuse(sequence, payload.length);
    this.node.count("received");
    message.payload = owned(payload);
    this.#see(sequence);
    this.#acknowledge(message);
    if (!this.repairs) return this.#deliver(message);
    this.held.set(sequence, message);
    this.heldOctets += payload.length;
    this.node.hold(payload.length, 1);
    this.#release();
  }

  #isNews(sequence) { return sequence >= this.next || this.missing.has(sequence); }

  // Everything up to this number was sent; what is missing before it is requested, or a gap.
  #see(sequence) {
    this.missing.take(sequence, sequence + 1n);
    if (sequence < this.next) return;
    const first = this.next, found = sequence > first;
    this.next = sequence + 1n;
    if (!found) return;
    this.#miss(first, sequence);
    if (this.repairs) return this.#nak([[first, sequence]], this.missing.all[0][0]);
    this.#gap(first, sequence);
  }

  #miss(first, end) {
    this.missing.add(first, end);
    if (!this.repairs && this.#isCrowded()) this.missing.dropFirst();   // what comes late of it counts as repeated
  }

  #gap(first, end) { this.node.gap(this, first, end); }

  #repeat(message) {
    this.node.count("duplicates");
    if (!this.passed.has(message.sequence)) this.#acknowledge(message);
  }

  #reject(message) {
    const { sequence } = message;
    if (this.#isNews(sequence)) {
      this.node.rejected(this, sequence);
      this.#see(sequence);
      this.rejected.add(sequence, sequence + 1n);
      this.passed.add(sequence, sequence + 1n);
    }
    this.#acknowledge({ ...message, receivedNs: 0n });
    this.#release();
  }

  #release() {
    if (!this.repairs) this.due = this.next;
    while (this.due < this.next) {
      const message = this.held.get(this.due), end = message ? null : this.passed.endOf(this.due);
      if (!message && end === null) break;
      if (message) {
        this.held.delete(this.due);
        this.heldOctets -= message.payload.length;
        this.node.hold(-message.payload.length, -1);
        this.due += 1n;
        this.#deliver(message);
      } else this.due = end;
    }
    if (!this.queued) this.consumed = max(this.consumed, this.due);
  }

  #deliver(message) {
    if (!this.repairs) this.due = this.next;
    this.queued += 1;
    this.node.hold(message.payload.length, 1);
    this.flow.queue.push({ message, stream: this });
  }

  // The application has taken a message of this stream.
  consume({ sequence, payload }) {
    this.queued -= 1;
    this.node.hold(-payload.length, -1);
    this.consumed = max(this.consumed, this.queued ? sequence + 1n : this.due);
    this.unreported += payload.length + CREDIT_PER_MESSAGE;
    if (!this.isEnded) this.node.consumes.add(this);
    if (this.unreported >= CREDIT_OCTETS && !this.isEnded) this.sendAck([]);
  }

  // Says what has been consumed, where no ack has said it.
  report() {
    if (this.unreported) this.sendAck([]);
  }

  // Acknowledgement

  #acknowledge({ sequence, sentNs, receivedNs }) {
    this.acks.push({ sequence, sentNs, receivedNs });
    this.node.owesAcks.add(this);
  }

  get isBatchFull() { return this.acks.length >= MAX_BATCH; }

  // Sends the acks that are due.
  flush() {
    const acks = this.acks;
    this.acks = [];
    this.node.owesAcks.delete(this);
    for (let at = 0; at < acks.length; ) {
      const end = this.repairs ? rowEnd(acks, at) : at;
      if (end - at > 1) {
        const { sequence, receivedNs } = acks[at], after = sequence + BigInt(end - at);
        this.#send(Kind.ACK_RANGE, [this.epoch, this.#consumedNow(acks, end), sequence, after, receivedNs]);
        at = end;
        continue;
      }
      let last = at + 1;
      while (last < acks.length && last - at < MAX_RECORDS && !(this.repairs && rowEnd(acks, last) - last > 1)) last++;
      this.sendAck(acks.slice(at, last), this.#consumedNow(acks, last));
      at = last;
    }
  }

  // `consumed` as it may be said: below what has not been acknowledged.
  #consumedNow(acks = this.acks, from = 0) {
    const waiting = acks.slice(from).filter(({ receivedNs }) => receivedNs > 0n);
    return waiting.reduce((least, { sequence }) => min(least, sequence), this.consumed);
  }

  sendAck(records, consumed = this.#consumedNow()) {
    if (consumed === this.consumed) this.unreported = 0;
    this.#send(Kind.ACK, [this.epoch, consumed, ...records.flatMap((one) => [one.sequence, one.sentNs, one.receivedNs])]);
  }

  // Names ranges that are missing, and those that were rejected, as their rejections may be lost. Acks leave before.
  #nak(missing, known) {
    const named = new Ranges();
    for (const ranges of [missing, this.rejected.all]) {
      for (const [first, end] of ranges) {
        if (named.count < MAX_RECORDS) named.add(first, end); else { known = min(known, first); break; }
      }
    }
    this.flush();
    this.#send(Kind.NAK, [this.epoch, known, ...named.all.flat()], 0n);
  }

  #send(kind, body, number) { this.node.sendControl(this.flow, kind, body, number); }

  // Abandonment and probes

  abandon(reason, ranges, nextToSend) {
    let end = ranges.reduce((most, range) => max(most, range[1]), nextToSend);
    if (this.#jumps(end)) return;
    if (this.repairs && this.#isCrowded()) {           // it can still say what will not come
      const whole = ranges.filter(([low, high]) => !this.missing.isCutBy(low, high) && !this.rejected.isCutBy(low, high));
      if (end > this.next || whole.length < ranges.length) this.node.count("limited");
      [ranges, end] = [whole, min(end, this.next)];
    }
    this.isNew = false;
    const first = this.next, isClosed = this.windowEnd !== null;
    if (isClosed) this.refusedEnd = max(this.refusedEnd, end);
    if (!isClosed || ranges.some(([low, high]) => low <= this.next && this.next < high)) this.#expect(end);
    if (isClosed) this.windowEnd = max(this.windowEnd, this.next);
    if (!this.repairs) {
      if (!ranges.length && first < this.next) this.#gap(first, this.next);
      if (!ranges.length) this.#nak(this.missing.all, this.next);
    } else {
      for (const [low, high] of ranges) {
        this.rejected.take(low, high);
        this.#giveUp(low, min(high, this.next), reason === CONFLATED);
      }
      const isNewlyMissing = this.missing.all.some(([low, high]) => high > first && low < nextToSend);
      if (!ranges.length || isNewlyMissing) this.#nak(this.missing.all, this.next);
    }
    this.#release();
    if (ranges.length) return;
    this.sendAck([]);
    if (this.windowEnd !== null) this.node.refused.add(this);
  }

  #expect(end) {
    if (end <= this.next) return;
    this.#miss(this.next, end);
    this.next = end;
  }

  #giveUp(first, end, silently) {
    for (const [low, high] of this.missing.take(first, end)) {
      this.passed.add(low, high);
      if (!silently) this.#gap(low, high);
      else this.node.count("conflated", Number(high - low));
    }
  }

  // A message that is longer than this node takes.
  skip(sequence) {
    if (!this.repairs || !this.#isNews(sequence) || this.#jumps(sequence) || this.#crowds(sequence)) return;
    this.isNew = false;
    this.#see(sequence);
    this.passed.add(sequence, sequence + 1n);
    this.#gap(sequence, sequence + 1n);
    this.#release();
  }

  // The sender says from which number on it owes this node something: what is missing before is no gap.
  startAt(first) {
    if (!this.repairs || this.#jumps(first)) return;
    this.#expect(first);
    for (const [low, high] of this.missing.take(0n, first)) this.passed.add(low, high);
    this.#release();
  }

  // The session will not return: what it still owes is a gap.
  end() {
    if (this.repairs) this.#giveUp(0n, this.next, false);
    this.#release();
    for (const set of [this.node.owesAcks, this.node.consumes, this.node.refused, this.node.closed]) set.delete(this);
    this.isEnded = true;
  }

  // Limits: what is beyond them is dropped and counted. It is not acknowledged, so it comes again

  // Whether the session has as many ranges as are kept, also without those that are past.
  #isCrowded() {
    if (this.kept.count >= MAX_RANGES_KEPT) for (const stream of this.kept.streams.values()) stream.forget();
    return this.kept.count >= MAX_RANGES_KEPT;
  }

  // Drops what only repetitions ask for: what comes late of it counts as repeated.
  forget() {
    for (const past of [this.passed, this.rejected]) past.dropBelow(this.due);
    if (!this.repairs) this.missing.dropBelow(this.next);
  }

  // Whether this message would leave more that is missing than is kept.
  #crowds(sequence) {
    if (!this.repairs || !this.#isCrowded()) return false;
    if (sequence <= this.next && !this.missing.isCutBy(sequence, sequence + 1n)) return false;
    this.node.count("limited");
    return true;
  }

  #jumps(sequence) {
    if (sequence <= this.next + MAX_JUMP) return false;
    this.node.count("limited");
    return true;
  }

  // The window

  #fits(sequence, octets) {
    const isDue = sequence === (this.missing.all[0]?.[0] ?? this.next);
    if (this.windowEnd !== null && sequence >= this.windowEnd && !isDue) return false;
    return this.node.hasRoom(octets) || (isDue && this.node.hasRoom(octets - this.heldOctets, this.held.size));
  }

  #refuse(sequence, octets) {
    this.node.count("refused");
    if (!this.repairs) return;           // the next message shows the gap
    this.windowEnd ??= this.next;
    this.refusedEnd = max(this.refusedEnd, sequence + 1n);
    this.refusedOctets = octets;
    this.node.refused.add(this);
    this.node.closed.add(this);
  }

  // Requests what was refused, as far as there is room.
  reopen(room, window) {
    if (this.missing.count || room < Math.min(window / 2, REQUEST_OCTETS)) return;
    const most = max(1n, BigInt(Math.floor(Math.min(room, REQUEST_OCTETS) / Math.max(1, this.refusedOctets))));
    const first = this.next, end = min(this.refusedEnd, first + most);
    this.windowEnd = end >= this.refusedEnd ? null : end;
    if (this.windowEnd === null) this.node.closed.delete(this);
    if (end <= first) return;
    this.#expect(end);
    this.#nak([[first, end]], first);
  }
}

// The payload, in memory of its own where it came in a much longer frame, which waits with it and would not be counted.
function owned(payload) {
  return payload.buffer.byteLength > 2 * payload.length + CREDIT_PER_MESSAGE ? payload.slice() : payload;
}

// The index behind the consecutive messages that begin at this one, arrived together and were not rejected.
function rowEnd(acks, at) {
  const { receivedNs } = acks[at];
  if (receivedNs === 0n) return at + 1;
  const follows = (one, before) => one?.receivedNs === receivedNs && one.sequence === before.sequence + 1n;
  let end = at + 1;
  while (end - at < MAX_ROW && follows(acks[end], acks[end - 1])) end++;
  return end;
}
