// The readouts and the tables: the state as text.

const element = (id) => document.getElementById(id);
const make = (tag, content, className) => Object.assign(document.createElement(tag), { textContent: content, className });
const number = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 }), whole = new Intl.NumberFormat("en");
const absent = (value) => value === null || value === undefined;
const shown = (value, unit = "") => (absent(value) ? "–" : `${number.format(value)}${unit}`);
const rate = (mbS) => (absent(mbS) ? "–" : mbS >= 0.1 || !mbS ? `${number.format(mbS)} MB/s` : `${number.format(1000 * mbS)} kB/s`);
const ms = (ns) => (absent(ns) ? "–" : `${number.format(Number(ns) / 1e6)} ms`);
const clock = (ns) => new Date(Number(BigInt(ns) / 1000000n)).toLocaleTimeString([], { hour12: false });
const SYNC = { "in-sync": "✓ in sync", stale: "▲ stale", "out-of-sync": "✕ out of sync", bound: "– nothing yet" };
const STATE = { asked: "… asked", installed: "■ installed", "on air": "■ on air", cleared: "□ cleared", rejected: "✕ rejected", "no answer": "✕ no answer" };

// A cell is a text, or {text, alarm, n: to the right}.
function fill(id, rows, nothing) {
  element(id).replaceChildren(...(rows.length ? rows : [[nothing]]).map((cells) => {
    const row = make("tr", "", "");
    row.append(...cells.map((cell) => (typeof cell === "string" ? make("td", cell, "") : make("td", cell.text, [cell.n && "n", cell.alarm && "alarm"].filter(Boolean).join(" ")))));
    return row;
  }));
}

const right = (text, alarm = false) => ({ text, n: true, alarm });

export function showTables(state) {
  element("endpoint").textContent = `${state.transport} ${state.listening ? "at" : "to"} ${state.endpoint}, as ${state.node}`;
  showReadouts(state);
  fill("flows", state.flows.map((flow) => [
    flow.flow, flow.direction === "sent" ? "→ sent" : `← from ${flow.nodes.join(", ") || "no node yet"}`, flow.format ?? "–",
    right(whole.format(flow.messages)), right(shown(flow.rate_hz, "/s")), right(rate(flow.goodput_mb_s)), right(ms(flow.age_ns)),
    { text: flow.sync ? SYNC[flow.sync.state] : "–", alarm: flow.sync?.state === "out-of-sync" },
    right(absent(flow.sync?.completeness) ? "–" : `${number.format(100 * flow.sync.completeness)} %`), right(absent(flow.repaired) ? "–" : whole.format(flow.repaired)),
    right(flow.lost ? `✕ ${whole.format(flow.lost)}` : "0", flow.lost > 0),
  ]), "no flow yet");
  fill("peers", state.peers.map((one) => [
    one.node, { text: one.state, alarm: one.state !== "up" }, right(ms(one.rtt_ns?.p50)), right(ms(one.rtt_ns?.p99)),
    right(oneWay(one)), right(one.clock_offset_ns ? `${ms(one.clock_offset_ns.offset)} ± ${ms(one.clock_offset_ns.bound)}` : "–"),
  ]), "no peer is up");
  fillBlocks(state.blocks, (block) => [
    { text: STATE[block.state], alarm: block.state === "rejected" || block.state === "no answer" }, block.prbs || "none", block.by,
    clock(block.asked_ns), right(since(block.installed_ns, block) + (block.ran_ns ? `, by the RAN ${since(block.ran_ns, block)}` : "")),
    right(since(block.on_air_ns, block)), right(since(block.ended_ns, block)),
    [block.id, block.reason].filter(Boolean).join(": "),
  ]);
  fill("events", state.events.slice().reverse().map((event) => [clock(event.time_ns), event.text]), "no event yet");
}

// A block's row unfolds into its stages.
const unfolded = new Set();

function fillBlocks(blocks, cells) {
  const focused = document.activeElement?.closest?.("#blocks button")?.dataset.id;
  fill("blocks", blocks.map(cells), "no block was asked");
  [...element("blocks").children].forEach((row, k) => {
    const block = blocks[k], open = unfolded.has(block?.id);
    if (!block) return;
    const button = make("button", "", "fold");
    Object.assign(button, { type: "button", title: "What became of it, stage by stage" });
    button.dataset.id = block.id;
    button.setAttribute("aria-expanded", String(open));
    button.setAttribute("aria-label", `Stages of ${block.id}`);
    button.addEventListener("click", () => { if (!unfolded.delete(block.id)) unfolded.add(block.id); fillBlocks(blocks, cells); });
    row.firstChild.prepend(button);
    if (open) row.after(stagesOf(block));
    if (focused === block.id) button.focus();
  });
  for (const id of unfolded) if (!blocks.some((block) => block.id === id)) unfolded.delete(id);
}

function stagesOf({ stages }) {
  const row = make("tr", "", "story"), cell = make("td", "", ""), list = make("ol", "", "");
  for (const { name, known, clock: by, note, time_ns: at, after_ns: after, error_ns: error } of stages) {
    const item = make("li", "", known ? "" : "gap");
    const time = !known ? "not known" : absent(at) ? note : after === 0 || absent(after) ? clock(at) : `${after > 0 ? "+" : ""}${ms(after)}`;
    const meets = known && after && error !== 0 ? ` ± ${error ? ms(error) : "not known"}` : "";
    item.append(make("b", name, ""), make("span", time + meets, ""), make("small", [known && !absent(at) && `${by}'s clock`, !absent(at) && note].filter(Boolean).join("; "), ""));
    list.append(item);
  }
  cell.colSpan = 8;
  cell.append(list);
  row.append(cell);
  return row;
}

const since = (ns, { asked_ns: asked }) => (ns === null ? "–" : ms(BigInt(ns) - BigInt(asked)));
const oneWay = ({ one_way_ns: one }) => (one ? `${ms(one.p50)} ± ${ms(one.bound)}` : "–");

// Of the last window that was compared; null is not known.
function fidelityTile({ score, low, parts }) {
  const least = Object.entries(parts ?? {}).filter(([, part]) => !absent(part)).toSorted(([, a], [, b]) => a - b)[0];
  const note = low ? "no decision leaves" : least ? `least: ${least[0]} ${number.format(least[1])}` : "not known yet";
  return ["fidelity", `${low ? "✕ " : ""}${shown(score)}`, note, absent(score) ? "" : low ? "alarm" : "good"];
}

// Of the flow with the spectrum, or else the one with most goodput.
function showReadouts(state) {
  const flows = state.flows, flow = flows.find((one) => one.flow === "spectrum") ?? flows.toSorted((a, b) => b.goodput_mb_s - a.goodput_mb_s)[0];
  const peer = state.peers.find((one) => one.rtt_ns) ?? null, lost = flows.reduce((sum, one) => sum + one.lost, 0);
  const standing = state.blocks.find((one) => one.prbs && ["installed", "on air"].includes(one.state));
  const asked = state.blocks.find((one) => one.prbs && one.state === "asked"), block = standing ?? asked, sync = flow?.sync;
  const up = state.peers.filter((one) => one.state === "up").map((one) => one.node);
  const tiles = [
    ["sync", sync ? SYNC[sync.state] : "–", sync ? `${absent(sync.completeness) ? "–" : number.format(100 * sync.completeness)} % complete` : "not watched here", sync?.state === "in-sync" ? "good" : sync?.state === "out-of-sync" ? "alarm" : ""],
    ["age of the newest", ms(flow?.age_ns), sync?.mean_age_ns ? `mean ${ms(sync.mean_age_ns)}` : flow?.flow ?? "", ""],
    ["rate", shown(flow?.rate_hz, "/s"), flow ? `${whole.format(flow.messages)} messages` : "", ""],
    ["goodput", rate(flow?.goodput_mb_s), flow ? `of ${flow.flow}` : "", ""],
    ["round trip", ms(peer?.rtt_ns.p50), peer ? `99th ${ms(peer.rtt_ns.p99)}` : "nothing sent", ""],
    ["one-way delay", ms(peer?.one_way_ns?.p50), peer?.one_way_ns ? `± ${ms(peer.one_way_ns.bound)}` : "", ""],
    ["lost", lost ? `✕ ${whole.format(lost)}` : "0", "of all flows", lost ? "alarm" : ""],
    ...(state.fidelity ? [fidelityTile(state.fidelity)] : []),
    state.blocks.length ? ["block", block ? `PRB ${block.prbs}` : "none", block ? STATE[block.state] : "none stands", ""] : ["peers", `${up.length} up`, up.join(", "), ""],
  ];
  element("readouts").replaceChildren(...tiles.map(([name, value, note, mark]) => {
    const tile = make("div", "", ""), said = make("dd", value, mark);
    said.append(make("small", note, ""));
    tile.append(make("dt", name, ""), said);
    return tile;
  }));
}
