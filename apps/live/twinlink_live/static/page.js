import { Marks } from "./marks.js";
import { Strip } from "./strip.js";
import { showTables } from "./tables.js";
import { connect } from "./twinlink/index.js";
import { Waterfall, decibels } from "./waterfall.js";

const DRAW_MS = 100;
const CLASSES = ["free", "used", "interfered"];
const element = (id) => document.getElementById(id);
const make = (tag, content = "", className = "") => Object.assign(document.createElement(tag), { textContent: content, className });

const figures = new Map();               // of waterfalls, by number
const strips = new Map();                // by what they say of themselves
let paused = false, drawn = 0, state = { blocks: [], interference: [] };

const place = location.host + location.pathname.replace(/\/$/, "");   // the path has the token, where there is one
connect(`ws://${place}`, {
  node: `browser-${Math.random().toString(36).slice(2, 8)}`,
  flows: ["live-state", "live-rows"],
  message: ({ flow, payload }) => {
    if (flow === "live-state") showState(JSON.parse(new TextDecoder().decode(payload)));
    else takeRows(payload);
  },
  state: (isUp) => {
    element("link").textContent = isUp ? "connected" : "not connected: does the program still run?";
    document.body.classList.toggle("down", !isUp);
  },
});

function takeRows(payload) {
  const view = new DataView(payload.buffer, payload.byteOffset, payload.byteLength);
  for (let at = 0; at + 8 <= view.byteLength; ) {
    const step = view.getUint32(at), figure = figures.get(view.getUint8(at + 4)), octets = view.getUint16(at + 6);
    figure?.waterfall.add({ step, state: view.getUint8(at + 5), levels: payload.slice(at + 8, at + 8 + octets) });
    at += 8 + octets;
  }
}

function showState(given) {
  state = given;
  for (const one of state.waterfalls) showWaterfall(one);
  for (const one of state.strips) showStrip(one);
  drop(figures, state.waterfalls.map((one) => one.number));
  drop(strips, state.strips.map(says));
  element("empty").hidden = figures.size > 0;
  for (const id of ["legend", "prbs", "time"]) element(id).hidden = !figures.size;
  element("blocks-panel").hidden = !state.blocks.length;
  showTables(state);
  const behind = Math.max(0, ...[...figures.values()].map(({ waterfall }) => waterfall.behind));
  element("behind").textContent = behind ? `This browser was too slow for ${Number((behind * state.step_s).toPrecision(3))} s of rows.` : "";
}

function drop(shown, named) {            // what the program shows no more
  for (const [key, { box }] of shown) if (!named.includes(key)) { box.remove(); shown.delete(key); }
}

const SAYS = { sent: "as sent by", received: "from", made: "as analysed by" };
const says = ({ direction, flow, node }) => `${flow}, ${SAYS[direction]} ${node}`;

function showWaterfall(one) {
  let figure = figures.get(one.number);
  if (figure && figure.says !== says(one)) { figure.box.remove(); figure = null; }
  if (!figure) {
    const box = make("figure"), caption = make("figcaption"), plot = make("div", "", "plot");
    const data = make("canvas", "", "data"), marks = make("canvas", "", "marks"), bar = make("span", "", "bar");
    const title = make("b"), note = make("span"), least = make("span"), most = make("span");
    data.tabIndex = 0;
    data.setAttribute("role", "img");
    bar.append(least, make("i"), most);
    bar.hidden = one.direction === "made";
    if (bar.hidden) element("classes").hidden = false;
    caption.append(title, note, bar);
    plot.append(data, marks);
    box.append(caption, plot);
    element("waterfalls").append(box);
    const waterfall = new Waterfall(data, state.step_s, one.direction === "made");
    figure = { says: says(one), box, waterfall, data, title, note, least, most, marks: new Marks(marks, waterfall), before: { passed: one.passed, decoded: one.decoded } };
    figures.set(one.number, figure);
    watchPointer(figure);
  }
  figure.axis = one;
  figure.title.textContent = `${says(one)}: ${one.direction === "made" ? "use" : "power"} by PRB`;
  const { before } = figure, passed = one.passed - before.passed, decoded = one.decoded - before.decoded;
  if (passed > 0) figure.sampled = decoded < passed ? `; from the newest ${Math.round((100 * decoded) / passed)} % of its records` : "";
  figure.before = { passed: one.passed, decoded: one.decoded };
  figure.note.textContent = `greatest in ${1000 * state.step_s} ms, newest at the top${figure.sampled ?? ""}`;
  figure.least.textContent = `${decibels(figure.waterfall.least).toFixed(0)}`;
  figure.most.textContent = `${decibels(figure.waterfall.most).toFixed(0)} dB re 1 LSB²`;
  figure.data.setAttribute("aria-label", `${figure.title.textContent}, ${figure.note.textContent}`);
}

function showStrip(one) {
  const key = says(one);
  let strip = strips.get(key);
  if (!strip) {
    const box = make("figure"), caption = make("figcaption"), plot = make("div", "", "strip"), canvas = make("canvas");
    caption.append(make("b", says(one)), make("span", "newest in each 50 ms"));
    plot.append(canvas);
    box.append(caption, plot);
    element("strips").append(box);
    strip = Object.assign(new Strip(canvas, state.step_s), { box });
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `${says(one)}: numbers of the last minute`);
    strips.set(key, strip);
  }
  strip.add(one.names, one.values, state.step);
}

// Controls

function each(action) { for (const { waterfall } of figures.values()) action(waterfall); }

function setPaused(value) {
  paused = value;
  each((waterfall) => { waterfall.paused = value; if (!value) waterfall.offset = 0; });
  for (const strip of strips.values()) strip.to = value ? (strip.to ?? strip.step) : null;
  element("pause").textContent = paused ? "Go on" : "Pause";
  element("pause").setAttribute("aria-pressed", String(paused));
}

function scroll(rows) {
  setPaused(true);
  each((waterfall) => waterfall.scroll(rows));
  for (const strip of strips.values()) strip.scroll(rows);
}

const actions = {
  taller: () => each((one) => one.magnify(2)), lower: () => each((one) => one.magnify(0.5)), newest: () => setPaused(false),
  narrower: () => each((one) => one.narrow(0.5)), wider: () => each((one) => one.narrow(2)), whole: () => each((one) => one.look(0, 1)),
  left: () => each((one) => one.shift(-0.25)), right: () => each((one) => one.shift(0.25)), pause: () => setPaused(!paused),
};
const keys = {
  " ": actions.pause, "+": actions.taller, "=": actions.taller, "-": actions.lower, i: actions.narrower, o: actions.wider, 0: actions.whole,
  ArrowLeft: actions.left, ArrowRight: actions.right, ArrowDown: () => scroll(10), ArrowUp: () => scroll(-10),
  PageDown: () => scroll(100), PageUp: () => scroll(-100), Home: actions.newest,
};
element("pause").addEventListener("click", actions.pause);
for (const button of document.querySelectorAll("[data-do]")) button.addEventListener("click", actions[button.dataset.do]);
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target instanceof HTMLButtonElement && event.key === " ") return;
  const action = keys[event.key];
  if (action && (figures.size || strips.size)) { event.preventDefault(); action(); }
});

function watchPointer(figure) {
  const { data, waterfall } = figure;
  const where = (event) => [event.offsetX / data.clientWidth, event.offsetY / data.clientHeight];
  let from = null;
  data.addEventListener("wheel", (event) => { event.preventDefault(); scroll(Math.sign(event.deltaY) * 10); }, { passive: false });
  data.addEventListener("pointerdown", (event) => { from = waterfall.at(...where(event)).part; });
  data.addEventListener("pointerup", (event) => {
    const to = waterfall.at(...where(event)).part;
    if (from !== null && Math.abs(to - from) > 0.02 * (waterfall.high - waterfall.low)) each((one) => one.look(Math.min(from, to), Math.max(from, to)));
    from = null;
  });
  data.addEventListener("dblclick", actions.whole);
  data.addEventListener("pointerleave", () => { element("cursor").textContent = ""; from = null; });
  data.addEventListener("pointermove", (event) => {
    const { part, agoS, level } = waterfall.at(...where(event)), { axis } = figure;
    if (!axis.prbs) return;
    const mhz = (axis.low_hz + part * (axis.high_hz - axis.low_hz)) / 1e6, prb = axis.first_prb + Math.floor(part * axis.prbs);
    element("cursor").textContent = `PRB ${prb} · ${mhz.toFixed(2)} MHz · −${agoS.toFixed(2)} s · ${level === null ? "no record" : waterfall.isOfClasses ? CLASSES[level] : `${decibels(level).toFixed(1)} dB`}`;
  });
}

function draw() {
  for (const { waterfall, data, marks, axis } of figures.values()) {
    const width = Math.max(1, Math.round(data.clientWidth)), height = Math.max(1, Math.round(data.clientHeight));
    if (data.width !== width || data.height !== height) Object.assign(data, { width, height });
    waterfall.draw();
    marks.draw(axis, state.blocks, state.interference);
  }
  for (const strip of strips.values()) strip.draw();
  document.body.dataset.drawn = String(++drawn);
}
setInterval(() => { if (!document.hidden) draw(); }, DRAW_MS);
