// A waterfall on a canvas: the newest row at the top, five minutes kept, gaps drawn as what they are.

const LOST = 2, BEHIND = 3; // as the rows say; and what this page was not sent
const KEPT_S = 300;
const LOWEST_DB = -30.5, STEPS_PER_DB = 2;   // of a level: twinlink/slots.py
const FIT = 0.125;                       // of the way to new limits, at each drawing: a picture that does not flicker
const MIN_PART = 1 / 32;                 // of the carrier, that is seen at least
// Cividis: even in lightness, and the same to eyes that do not tell red from green.
const STOPS = [[0, 32, 76], [0, 42, 102], [54, 69, 108], [99, 96, 110], [138, 125, 118], [181, 157, 110], [226, 193, 89],
               [255, 233, 69]];

const pixel = ([red, green, blue]) => (0xff000000 | (blue << 16) | (green << 8) | red) >>> 0;   // RGBA, little-endian
const scale = (dim) => Uint32Array.from({ length: 256 }, (_, level) => {
  const place = (level / 255) * (STOPS.length - 1), low = Math.min(Math.floor(place), STOPS.length - 2);
  return pixel(STOPS[low].map((value, channel) => Math.round(dim * (value + (place - low) * (STOPS[low + 1][channel] - value)))));
});
const FULL = scale(1), DIMMED = scale(0.8), EMPTY = pixel([24, 24, 24]);
const PATTERNS = {                       // told apart by their stripes as well
  [LOST]: { every: 8, wide: 3, on: pixel([255, 255, 255]), off: pixel([200, 40, 120]) },
  [BEHIND]: { every: 8, wide: 2, on: pixel([150, 150, 150]), off: pixel([70, 70, 70]) },
};

export const decibels = (level) => level / STEPS_PER_DB + LOWEST_DB;

export class Waterfall {
  // isOfClasses: its levels are classes, 0 to 2; a picture of them has a scale that is fixed.
  // rows: newest last, {step, state, levels}. behind: rows that this page was not sent, of those kept. low, high: the
  // part of the carrier that is seen, from 0 to 1.
  constructor(canvas, stepS, isOfClasses) {
    Object.assign(this, { canvas, stepS, kept: Math.round(KEPT_S / stepS), rows: [], offset: 0, zoom: 2, paused: false, behind: 0 });
    [this.least, this.most, this.low, this.high] = [0, isOfClasses ? 2 : 255, 0, 1];
    this.isOfClasses = isOfClasses;
  }

  add(row) {
    const last = this.rows.at(-1);
    if (last && row.step <= last.step) {
      if (last.step - row.step < this.kept / 2) return;     // it is here already
      this.rows.length = this.behind = this.offset = 0;     // the other side has begun anew
    } else if (last) {
      const first = Math.max(last.step + 1, row.step - this.kept);
      for (let step = first; step < row.step; step++) this.push({ step, state: BEHIND, levels: new Uint8Array() });
    }
    this.push(row);
  }

  push(row) {
    this.rows.push(row);
    this.behind += row.state === BEHIND;
    if (this.paused) this.offset++;      // what is looked at stays in place
    if (this.rows.length > this.kept) this.behind -= this.rows.shift().state === BEHIND;
    this.offset = Math.min(this.offset, this.rows.length);
  }

  get seen() { return Math.ceil(this.canvas.height / this.zoom); }

  // The step of the row at the top.
  get topStep() { return this.rows[this.rows.length - 1 - this.offset]?.step ?? 0; }

  scroll(rows) { this.offset = Math.max(0, Math.min(this.rows.length - this.seen, this.offset + rows)); }

  magnify(factor) { this.zoom = Math.max(1, Math.min(16, this.zoom * factor)); }

  // See this part of the carrier, from 0 to 1.
  look(low, high) {
    const part = Math.max(MIN_PART, Math.min(1, high - low));
    this.low = Math.max(0, Math.min(1 - part, (low + high - part) / 2));
    this.high = this.low + part;
  }

  narrow(factor) {
    const middle = (this.low + this.high) / 2, half = (this.high - this.low) * factor / 2;
    this.look(middle - half, middle + half);
  }

  shift(part) {
    const by = (this.high - this.low) * part;
    this.look(this.low + by, this.high + by);
  }

  // What is at a place of the picture, given from 0 to 1: {part of the carrier, seconds ago, level or null}.
  at(x, y) {
    const part = this.low + x * (this.high - this.low), back = this.offset + Math.floor(y * this.canvas.height / this.zoom);
    const row = this.rows[this.rows.length - 1 - back];
    return { part, agoS: back * this.stepS, level: row?.levels.length ? row.levels[Math.floor(part * row.levels.length)] : null };
  }

  // The scale reaches from the least to the greatest level that is seen.
  fit(rows) {
    if (this.isOfClasses) return;
    let least = 255, most = 0;
    for (const { levels } of rows) {
      for (let at = Math.floor(this.low * levels.length); at < this.high * levels.length; at++) {
        if (levels[at] < least) least = levels[at];
        if (levels[at] > most) most = levels[at];
      }
    }
    if (most > least) {
      this.least += (least - this.least) * FIT;
      this.most += (most - this.most) * FIT;
    }
  }

  draw() {
    const { width, height } = this.canvas, context = this.canvas.getContext("2d");
    const end = this.rows.length - this.offset, rows = this.rows.slice(Math.max(0, end - this.seen), end);
    this.fit(rows);
    const image = context.createImageData(width, height), pixels = new Uint32Array(image.data.buffer).fill(EMPTY);
    const factor = 255 / Math.max(1, this.most - this.least), line = new Uint32Array(width);
    const colours = new Uint8Array(256).map((_, level) => Math.max(0, Math.min(255, (level - this.least) * factor)));
    const parts = Float64Array.from({ length: width }, (_, x) => this.low + ((x + 0.5) / width) * (this.high - this.low));
    let held = null;                     // where nothing came, the last record is shown dimmed
    rows.forEach((row, place) => {
      const top = (rows.length - 1 - place) * this.zoom, pattern = PATTERNS[row.state];
      if (row.levels.length) held = row.levels;
      for (let y = top; y < Math.min(height, top + this.zoom); y++) {
        if (pattern) {
          for (let x = 0; x < width; x++) line[x] = (x + y) % pattern.every < pattern.wide ? pattern.on : pattern.off;
        } else if (held && y === top) {
          const shades = row.levels.length ? FULL : DIMMED;
          for (let x = 0; x < width; x++) line[x] = shades[colours[held[Math.floor(parts[x] * held.length)]]];
        }
        if (pattern || held) pixels.set(line, y * width);
      }
      if (pattern) held = null;          // what came before a loss says nothing of what is after it
    });
    context.putImageData(image, 0, 0);
  }
}
