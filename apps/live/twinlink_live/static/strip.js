// Numbers over the last minute as lines on a canvas; where values are missing, the line is broken.

import { fresh, nice } from "./marks.js";

const SEEN_S = 60, KEPT_S = 300;
const LEFT = 52, RIGHT = 112, TOP = 6, FOOT = 18;
const DASHES = [[], [7, 3], [2, 3], [9, 3, 2, 3]];      // lines are told apart by these as well
const COLOURS = ["#2f78c4", "#c98a00", "#b0478f", "#3d8f6b"];
const BROKEN = 3;                        // times the usual distance between two values
const short = new Intl.NumberFormat("en", { maximumSignificantDigits: 3, notation: "compact" });

export class Strip {
  // values: [step, number or null, ...], the newest last. to: the step at the right edge; null: the newest.
  constructor(canvas, stepS) { Object.assign(this, { canvas, stepS, names: [], values: [], to: null }); }

  add(names, values, step) {
    if (names.join() !== this.names.join() || (this.values.length && step < this.values.at(-1)[0])) this.values = [];
    this.names = names;
    const last = this.values.at(-1)?.[0] ?? -1;
    this.values.push(...values.filter((one) => one[0] > last));
    while (this.values.length && this.values[0][0] < step - KEPT_S / this.stepS) this.values.shift();
    this.step = step;
  }

  scroll(steps) { this.to = Math.min(this.step, Math.max(this.values[0]?.[0] ?? 0, this.to - steps)); }

  draw() {
    const { context, width, height, ink, faint, line } = fresh(this.canvas), to = this.to ?? this.step, from = to - SEEN_S / this.stepS;
    const seen = this.values.filter((one) => one[0] >= from && one[0] <= to), numbers = seen.flatMap((one) => one.slice(1)).filter((one) => one !== null);
    const wide = width - LEFT - RIGHT, tall = height - TOP - FOOT;
    if (!numbers.length || wide < 1) return;
    let low = Math.min(...numbers), high = Math.max(...numbers);
    if (high === low) [low, high] = [low - (Math.abs(low) || 1) * 0.1, high + (Math.abs(high) || 1) * 0.1];
    const every = nice((high - low) / 4), x = (step) => LEFT + ((step - from) / (to - from)) * wide;
    const y = (value) => TOP + tall * (1 - (value - low) / (high - low));
    context.strokeStyle = line;
    context.fillStyle = faint;
    context.textBaseline = "middle";
    context.textAlign = "right";
    for (let at = Math.ceil(low / every) * every; at <= high + every * 1e-6; at += every) {
      context.fillRect(LEFT, y(at), wide, 0.5);
      context.fillText(short.format(Math.abs(at) < every * 1e-6 ? 0 : at), LEFT - 6, y(at));
    }
    context.textBaseline = "bottom";
    context.textAlign = "center";
    for (let ago = 0; ago < SEEN_S; ago += wide < 260 ? 30 : 15) {
      const back = ago + (this.step - to) * this.stepS;
      context.fillText(back ? `−${Number(back.toFixed(1))} s` : "now", x(to - ago / this.stepS), height);
    }
    const gaps = seen.slice(1).map((one, at) => one[0] - seen[at][0]).sort((a, b) => a - b), usual = gaps[gaps.length >> 1] ?? 1;
    this.names.forEach((name, place) => {
      context.strokeStyle = COLOURS[place];
      context.lineWidth = 1.6;
      context.setLineDash(DASHES[place]);
      context.beginPath();
      let before = null;
      for (const one of seen) {
        const value = one[place + 1], joins = before !== null && one[0] - before <= BROKEN * usual;
        if (value !== null) (joins ? context.lineTo : context.moveTo).call(context, x(one[0]), y(value));
        before = value === null ? null : one[0];
      }
      context.stroke();
    });
    context.setLineDash([]);
    this.drawNames(context, seen.at(-1), width, tall, ink);
  }

  // At the right, with the newest value, in the order of the lines.
  drawNames(context, newest, width, tall, ink) {
    context.textAlign = "left";
    context.textBaseline = "middle";
    const left = width - RIGHT + 8, step = Math.min(20, tall / this.names.length);
    this.names.forEach((name, place) => {
      const at = TOP + step * (place + 0.5), value = newest[place + 1];
      context.strokeStyle = COLOURS[place];
      context.setLineDash(DASHES[place]);
      context.lineWidth = 2;
      context.beginPath();
      context.moveTo(left, at);
      context.lineTo(left + 18, at);
      context.stroke();
      context.fillStyle = ink;
      context.fillText(`${name} ${value === null ? "–" : short.format(value)}`, left + 23, at);
    });
    context.setLineDash([]);
  }
}
