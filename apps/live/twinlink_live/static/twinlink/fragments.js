// Puts together long frames that come in fragments (docs/protocol.md, sections 3 and 5).

import { HEADER_OCTETS, Malformed } from "./frames.js";

export class Reassembler {
  // `maxOctets`: of all frames that have begun; the oldest then makes room.
  constructor(maxPayload, maxOctets) {
    Object.assign(this, { maxPayload, maxOctets });
    this.partial = new Map();            // by topic and epoch
    this.octets = 0;
  }

  // Takes a fragment; returns {whole} where it completes a frame, {received} octets of one that goes on, or {tooLong},
  // the number of a message that is longer than this node takes. Throws Malformed.
  receive(topic, { epoch, sequence, sentNs, body }) {
    const key = `${epoch} ${topic}`, offset = Number(sequence);
    let one = this.partial.get(key);
    if (offset === 0 && !(one?.sentNs === sentNs && body.length >= 4 && isSameHeader(one.frame, body))) {
      this.#drop(key);
      if (body.length < HEADER_OCTETS) throw new Malformed("fragment");
      const view = new DataView(body.buffer, body.byteOffset, body.byteLength);
      const octets = HEADER_OCTETS + view.getUint32(4);
      if (octets > HEADER_OCTETS + this.maxPayload) return { tooLong: view.getBigUint64(16) };
      one = { sentNs, frame: new Uint8Array(octets), received: 0 };
      this.partial.set(key, one);
      this.octets += octets;
      for (const oldest of this.partial.keys()) {
        if (this.octets <= this.maxOctets || oldest === key) break;
        this.#drop(oldest);
      }
    }
    if (!one || one.sentNs !== sentNs) return { received: 0 };
    if (offset + body.length > one.frame.length) {
      this.#drop(key);
      throw new Malformed("fragment");
    }
    if (offset <= one.received && offset + body.length > one.received) {
      one.frame.set(body, offset);
      one.received = offset + body.length;
    }
    if (one.received < one.frame.length) return { received: one.received };
    this.#drop(key);
    return { whole: one.frame };
  }

  // Nothing more will come of this session.
  forget(epoch) {
    for (const key of [...this.partial.keys()]) if (key.startsWith(`${epoch} `)) this.#drop(key);
  }

  #drop(key) {
    this.octets -= this.partial.get(key)?.frame.length ?? 0;
    this.partial.delete(key);
  }
}

// A retransmission has another header than the frame that it repeats, and begins anew.
function isSameHeader(frame, body) {
  return [0, 1, 2, 3].every((at) => frame[at] === body[at]);
}
