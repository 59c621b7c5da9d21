// The sessions at the other end: which of them say hello, and whether they hear this node (docs/protocol.md, section 4).

const HELLO_MS = 200, SEARCH_MS = 50, SUSPECT_MS = 300, TIMEOUT_MS = 1300, HARD_TIMEOUT_MS = 6000, RESTART_MS = 400;
const SUSPENDED_MS = 120_000, BEHIND_MS = 300, ANSWER_MS = 20;
const NUMBER_PERIOD_NS = 2n ** 50n, MS = 1_000_000n;
const MAX_PEERS = 16, MAX_REPLACED = 1024;

const monoNs = (ms) => BigInt(Math.round(ms * 1e6));

export class Peers {
  // `report(event)`, and `end(session)` where one will not return.
  constructor(epoch, monoMs, { report, end }) {
    Object.assign(this, { epoch, startMs: monoMs, report, end });
    this.sessions = new Map();           // by epoch: unknown ones are not in it
    this.replaced = new Set();           // epochs that do not return
    this.originNs = monoNs(monoMs) / NUMBER_PERIOD_NS * NUMBER_PERIOD_NS;
    this.number = 0n;                    // of this node's last hello
    this.saidMs = monoMs;
    this.answerMs = Infinity;            // when an answer is due
    this.answeredMs = -Infinity;
    this.drainedMs = monoMs;
  }

  get heard() {
    return new Map([...this.sessions.values()].filter(({ state }) => state !== "silent").map((one) => [one.epoch, one.number]));
  }

  get isUp() { return [...this.sessions.values()].some(({ state }) => state === "up"); }

  // Takes a hello in. Returns its session, or null where it does not count.
  onHello(epoch, { sequence: number, sentNs, hello }, monoMs) {
    if (this.replaced.has(epoch)) return null;
    this.#replacePredecessors(epoch, number, sentNs, hello.node, monoMs);
    let one = this.sessions.get(epoch);
    if (!one) {
      if (this.sessions.size >= MAX_PEERS) return null;
      const streams = new Map(), kept = { count: 0, streams };   // of ranges, in all its streams
      one = { epoch, state: "heard", confirmedMs: this.startMs, newsMs: 0, flows: hello.flows, since: null, streams, kept };
      this.sessions.set(epoch, one);
    }
    if (one.state === "silent") Object.assign(one, { state: "deaf", newsMs: 0 });
    const confirmed = hello.heard.get(this.ours), confirmedMs = Number(this.originNs) / 1e6 + confirmed / 1e6;
    const wereLost = one.state === "up" && (number - one.number > BigInt(SUSPECT_MS) * MS || confirmedMs - one.confirmedMs > 2 * SUSPECT_MS);
    Object.assign(one, { node: hello.node, number, sentNs, heardMs: monoMs, repairs: hello.repairs, detect: hello.detect });
    let isAnswered = wereLost;
    if (confirmed === undefined) {
      if (one.state === "up") this.#suspend(one, "deaf", monoMs);
    } else if (confirmedMs > one.confirmedMs && confirmedMs <= monoMs) {
      one.confirmedMs = confirmedMs;
      one.newsMs = Math.max(one.newsMs, confirmedMs, monoMs - HELLO_MS);
      if (one.state !== "up") {
        one.state = "up";
        isAnswered = true;
        this.report({ event: "peer_up", node: one.node, epoch });
      }
    } else if (hello.behind) one.newsMs = monoMs;
    if (isAnswered) this.answerMs = monoMs;
    else if (one.state !== "up") this.answerMs = Math.min(this.answerMs, Math.max(monoMs, this.answeredMs + ANSWER_MS));
    return one;
  }

  // A session of the same node takes the place of one that has been silent, or that is away.
  #replacePredecessors(epoch, number, sentNs, node, monoMs) {
    for (const other of [...this.sessions.values()]) {
      const isLater = other.number > number && other.sentNs > sentNs;
      if (other.node !== node || other.epoch === epoch || isLater) continue;
      if (monoMs - other.heardMs <= RESTART_MS && other.state !== "deaf" && other.state !== "silent") continue;
      this.#remove(other, "restarted");
      this.replaced.add(other.epoch);
      if (this.replaced.size > MAX_REPLACED) this.replaced.delete(this.replaced.values().next().value);
    }
  }

  onBye(epoch) {
    const one = this.sessions.get(epoch);
    if (one) this.#remove(one, "closed");
  }

  #remove(one, reason) {
    this.sessions.delete(one.epoch);
    if (one.state === "up") this.report({ event: "peer_down", node: one.node, epoch: one.epoch, reason });
    this.end(one);
  }

  #suspend(one, state, monoMs) {
    Object.assign(one, { state, downMs: monoMs, confirmedMs: monoMs });
    this.report({ event: "peer_down", node: one.node, epoch: one.epoch, reason: state });
  }

  // `drainedMs`: when the transport was last read to its end.
  onTime(monoMs, drainedMs) {
    this.drainedMs = drainedMs;
    for (const one of [...this.sessions.values()]) {
      const isSilent = drainedMs - one.heardMs > TIMEOUT_MS || monoMs - one.heardMs > HARD_TIMEOUT_MS;
      if (one.state === "up") {
        const isWithoutNews = drainedMs - one.newsMs > TIMEOUT_MS, speaks = one.heardMs - one.newsMs > 2 * HELLO_MS;
        if (isSilent || isWithoutNews) this.#suspend(one, speaks ? "deaf" : "silent", monoMs);
      } else if (isSilent && one.state === "heard") this.#remove(one, "silent");
      else if (isSilent && one.state === "deaf") Object.assign(one, { state: "silent", confirmedMs: monoMs });
      else if (monoMs - one.downMs > SUSPENDED_MS) this.#remove(one, "silent");
    }
  }

  #isSearching(now) {
    return !this.isUp || [...this.sessions.values()].some(
      (one) => one.state === "up" && (now - one.heardMs > SUSPECT_MS || now - one.newsMs > 2 * SUSPECT_MS),
    );
  }

  isHelloDue(monoMs) {
    return monoMs >= this.answerMs || monoMs - this.saidMs >= (this.#isSearching(monoMs) ? SEARCH_MS : HELLO_MS);
  }

  // The number of the hello that leaves now, and whether it says that this node is behind.
  nextHello(monoMs) {
    if (this.answerMs <= monoMs) this.answeredMs = monoMs;
    Object.assign(this, { saidMs: monoMs, answerMs: Infinity });
    const number = monoNs(monoMs) - this.originNs;
    this.number = number > this.number ? number : this.number + 1n;
    return { number: this.number, behind: monoMs - this.drainedMs > BEHIND_MS };
  }
}
