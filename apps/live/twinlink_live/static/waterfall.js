// A waterfall on a canvas: the newest row at the top, five minutes kept, gaps drawn as what they are.

const LOST = 2, BEHIND = 3; // as the rows say; and what this page was not sent
const KEPT_S = 300;
const LOWEST_DB = -30.5, STEPS_PER_DB = 2;   // of a level: twinlink/slots.py
const FIT = 0.125;                       // of the way to new limits, at each drawing: a picture that does not flicker
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

export class Waterfall {
  // rows: newest last, {step, state, levels}. behind: rows that this page was not sent, of those kept.
  constructor(canvas, stepS) {
    Object.assign(this, { canvas, kept: Math.round(KEPT_S / stepS), rows: [], offset: 0, zoom: 2, paused: false, behind: 0 });
    [this.least, this.most] = [0, 255];
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

  scroll(rows) {
    const seen = Math.ceil(this.canvas.height / this.zoom);
    this.offset = Math.max(0, Math.min(this.rows.length - seen, this.offset + rows));
  }

  range() {
    const db = (level) => (level / STEPS_PER_DB + LOWEST_DB).toFixed(0);
    return `${db(this.least)} to ${db(this.most)} dB`;
  }

  // The scale reaches from the least to the greatest level that is seen.
  fit(rows) {
    let least = 255, most = 0;
    for (const { levels } of rows) {
      for (const level of levels) {
        if (level < least) least = level;
        if (level > most) most = level;
      }
    }
    if (most > least) {
      this.least += (least - this.least) * FIT;
      this.most += (most - this.most) * FIT;
    }
  }

  draw() {
    const { width, height } = this.canvas, context = this.canvas.getContext("2d");
    const end = this.rows.length - this.offset, seen = Math.ceil(height / this.zoom);
    const rows = this.rows.slice(Math.max(0, end - seen), end);
    this.fit(rows);
    const image = context.createImageData(width, height), pixels = new Uint32Array(image.data.buffer).fill(EMPTY);
    const factor = 255 / Math.max(1, this.most - this.least), line = new Uint32Array(width);
    const colours = new Uint8Array(256).map((_, level) => Math.max(0, Math.min(255, (level - this.least) * factor)));
    let held = null;                     // where nothing came, the last record is shown dimmed
    rows.forEach((row, place) => {
      const top = (rows.length - 1 - place) * this.zoom, pattern = PATTERNS[row.state];
      if (row.levels.length) held = row.levels;
      for (let y = top; y < Math.min(height, top + this.zoom); y++) {
        if (pattern) {
          for (let x = 0; x < width; x++) line[x] = (x + y) % pattern.every < pattern.wide ? pattern.on : pattern.off;
        } else if (held && y === top) {
          const shades = row.levels.length ? FULL : DIMMED, columns = held.length / width;
          for (let x = 0; x < width; x++) line[x] = shades[colours[held[Math.floor(x * columns)]]];
        }
        if (pattern || held) pixels.set(line, y * width);
      }
      if (pattern) held = null;          // what came before a loss says nothing of what is after it
    });
    context.putImageData(image, 0, 0);
  }
}
