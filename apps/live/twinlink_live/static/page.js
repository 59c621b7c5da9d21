import { Peer } from "./peer.js";
import { Waterfall } from "./waterfall.js";

const element = (id) => document.getElementById(id);
const make = (tag, content = "", className = "") => Object.assign(document.createElement(tag), { textContent: content, className });
const number = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const shown = (value, unit = "") => (value === null || value === undefined ? "–" : `${number.format(value)}${unit}`);

const waterfalls = new Map();            // by number: {waterfall, caption}
let paused = false, drawn = 0;

new Peer(`ws://${location.host}`, `browser-${Math.random().toString(36).slice(2, 8)}`, {
  message: ({ flow, payload }) => {
    if (flow === "live-state") showState(JSON.parse(new TextDecoder().decode(payload)));
    else if (flow === "live-rows") takeRows(payload);
  },
  gap: () => {},                         // a row that is missing all the same shows as such
  state: (isUp) => {
    element("link").textContent = isUp ? "connected" : "not connected: is `twinlink live` running?";
    document.body.classList.toggle("down", !isUp);
  },
});

function takeRows(payload) {
  const view = new DataView(payload.buffer, payload.byteOffset, payload.byteLength);
  for (let at = 0; at + 8 <= view.byteLength; ) {
    const step = view.getUint32(at), entry = waterfalls.get(view.getUint8(at + 4)), octets = view.getUint16(at + 6);
    entry?.waterfall.add({ step, state: view.getUint8(at + 5), levels: payload.slice(at + 8, at + 8 + octets) });
    at += 8 + octets;
  }
}

function showState(state) {
  element("endpoint").textContent = `${state.transport} ${state.endpoint}, as ${state.node}`;
  for (const one of state.waterfalls) showWaterfall(one, state.step_s);
  element("empty").hidden = state.waterfalls.length > 0;
  fill("flows", state.flows.map((flow) => [
    flow.flow, flow.node, flow.format ?? "–", number.format(flow.messages), shown(flow.rate_hz, "/s"),
    shown(flow.goodput_mb_s, " MB/s"), shown(flow.age_ns === null ? null : flow.age_ns / 1e6, " ms"),
    flow.lost ? `${number.format(flow.lost)} ✕` : "0",
  ]), (cells, row) => row.classList.toggle("lossy", cells[7] !== "0"));
  fill("peers", state.peers.map((one) => [one.node, one.state]), (cells, row) => { row.dataset.state = cells[1]; });
  fill("events", state.events.slice().reverse().map((event) => [
    new Date(Number(BigInt(event.time_ns) / 1000000n)).toLocaleTimeString(), event.text,
  ]));
  const behind = Math.max(0, ...[...waterfalls.values()].map(({ waterfall }) => waterfall.behind));
  element("behind").textContent = behind ? `This browser was too slow for ${number.format(behind * state.step_s)} s of rows.` : "";
}

function fill(id, rows, mark = () => {}) {
  element(id).replaceChildren(...rows.map((cells) => {
    const row = make("tr");
    row.append(...cells.map((cell) => make("td", cell)));
    mark(cells, row);
    return row;
  }));
}

function showWaterfall(one, stepS) {
  let entry = waterfalls.get(one.number);
  if (!entry) {
    const figure = make("figure"), canvas = make("canvas"), caption = make("figcaption"), axis = make("div", "", "axis");
    canvas.tabIndex = 0;
    canvas.setAttribute("role", "img");
    figure.append(caption, canvas, axis);
    element("waterfalls").append(figure);
    entry = { waterfall: new Waterfall(canvas, stepS), caption, axis, canvas };
    waterfalls.set(one.number, entry);
    canvas.addEventListener("wheel", (event) => { event.preventDefault(); scroll(Math.sign(event.deltaY) * 10); }, { passive: false });
  }
  entry.caption.textContent = `${one.flow} from ${one.node}: power by PRB, newest at the top`;
  entry.canvas.setAttribute("aria-label", entry.caption.textContent);
  if (one.prbs) {
    const mhz = (hz) => `${(hz / 1e6).toFixed(2)} MHz`, last = one.first_prb + one.prbs - 1;
    const parts = [`PRB ${one.first_prb}, ${mhz(one.low_hz)}`, entry.waterfall.range(), `PRB ${last}, ${mhz(one.high_hz)}`];
    entry.axis.replaceChildren(...parts.map((part) => make("span", part)));
  }
}

function each(action) { for (const { waterfall } of waterfalls.values()) action(waterfall); }

function scroll(rows) {
  setPaused(true);
  each((waterfall) => waterfall.scroll(rows));
}

function setPaused(value) {
  paused = value;
  each((waterfall) => { waterfall.paused = value; if (!value) waterfall.offset = 0; });
  element("pause").textContent = paused ? "Go on (space)" : "Pause (space)";
  element("pause").setAttribute("aria-pressed", String(paused));
}

function zoom(factor) { each((waterfall) => { waterfall.zoom = Math.max(1, Math.min(16, waterfall.zoom * factor)); }); }

element("pause").addEventListener("click", () => setPaused(!paused));
element("zoom-in").addEventListener("click", () => zoom(2));
element("zoom-out").addEventListener("click", () => zoom(0.5));
document.addEventListener("keydown", (event) => {
  if (event.target instanceof HTMLButtonElement && event.key === " ") return;
  const action = {
    " ": () => setPaused(!paused), "+": () => zoom(2), "-": () => zoom(0.5), ArrowDown: () => scroll(10), ArrowUp: () => scroll(-10),
    PageDown: () => scroll(100), PageUp: () => scroll(-100), Home: () => setPaused(false),
  }[event.key];
  if (action) { event.preventDefault(); action(); }
});

function draw() {
  for (const { waterfall, canvas } of waterfalls.values()) {
    const width = Math.max(1, Math.round(canvas.clientWidth)), height = Math.max(1, Math.round(canvas.clientHeight));
    if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
    waterfall.draw();
  }
  document.body.dataset.drawn = String(++drawn);
}
setInterval(() => { if (!document.hidden) draw(); }, 100);
