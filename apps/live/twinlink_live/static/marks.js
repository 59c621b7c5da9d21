// The axes of a waterfall, and over it blocks and interference; drawn for the screen's own pixels.

const LEFT = 44, TOP = 14, FOOT = 34;    // of the plot, around the picture: page.css
const APART = 46;                        // px between two ticks at least
const HALO = "#101010", MARK = "#ffffff";
const STANDS = new Set(["installed", "on air"]);

// The context of a canvas, cleared, whose unit is a CSS pixel whatever the screen's are.
export function fresh(canvas) {
  const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight, context = canvas.getContext("2d");
  const [real, tall] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== real || canvas.height !== tall) Object.assign(canvas, { width: real, height: tall });
  const style = getComputedStyle(canvas);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = "11px system-ui, sans-serif";
  return { context, width, height, ink: style.color, faint: style.getPropertyValue("--faint"), line: style.getPropertyValue("--line") };
}

// A distance of 1, 2 or 5 times a power of ten, of at least this.
export function nice(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= least * 0.999);
}

export class Marks {
  constructor(canvas, waterfall) { Object.assign(this, { canvas, waterfall }); }

  // one: the axis, as the state says it. blocks, interference: likewise.
  draw(one, blocks, interference) {
    const { context, width, height, faint, line } = fresh(this.canvas), { waterfall } = this;
    const plot = { left: LEFT, top: TOP, width: width - LEFT, height: height - TOP - FOOT };
    if (!one.prbs || plot.width < 1) return;
    const x = (prb) => plot.left + (((prb - one.first_prb) / one.prbs - waterfall.low) / (waterfall.high - waterfall.low)) * plot.width;
    const y = (step) => plot.top + (waterfall.topStep + 1 - step) * waterfall.zoom;
    context.fillStyle = faint;
    context.strokeStyle = line;
    this.drawTime(context, plot);
    this.drawPrbs(context, plot, one, x);
    context.save();
    context.beginPath();
    context.rect(plot.left, 0, plot.width, plot.top + plot.height);
    context.clip();
    for (const { ranges, steps } of interference) this.drawFound(context, plot, ranges, y(steps[0]), steps[1] === null ? plot.top : y(steps[1]), x, steps[1] === null);
    for (const block of blocks.slice().reverse()) this.drawBlock(context, plot, block, x, y);
    context.restore();
  }

  drawTime(context, plot) {
    const { stepS, zoom, offset } = this.waterfall, perPx = stepS / zoom, every = nice(APART * perPx);
    context.textAlign = "right";
    context.textBaseline = "middle";
    const first = Math.ceil((offset * stepS) / every - 1e-9) * every;
    for (let ago = first; (ago - offset * stepS) / perPx <= plot.height; ago += every) {
      const at = plot.top + (ago - offset * stepS) / perPx;
      context.fillRect(plot.left - 4, at, 4, 1);
      context.fillText(ago < every / 2 ? "now" : `−${Number(ago.toFixed(2))} s`, plot.left - 7, at);
    }
  }

  drawPrbs(context, plot, one, x) {
    const perPx = (one.prbs * (this.waterfall.high - this.waterfall.low)) / plot.width, every = Math.max(1, nice(APART * perPx));
    const foot = plot.top + plot.height, hz = (one.high_hz - one.low_hz) / one.prbs, second = APART * 1.7;
    context.textBaseline = "top";
    context.textAlign = "right";
    context.fillText("PRB", plot.left - 7, foot + 5);
    context.fillText("MHz", plot.left - 7, foot + 20);
    context.textAlign = "center";
    let free = plot.left;                // where the next frequency may begin
    for (let prb = Math.ceil(one.first_prb / every) * every; prb <= one.first_prb + one.prbs; prb += every) {
      const at = x(prb);
      if (at < plot.left - 1 || at > plot.left + plot.width + 1) continue;
      context.fillRect(Math.min(at, plot.left + plot.width - 1), foot, 1, 4);
      if (at > plot.left + plot.width - 8) continue;
      context.fillText(String(prb), Math.max(at, plot.left + 4), foot + 5);
      if (at + 25 > plot.left + plot.width || at < free) continue;
      context.fillText(((one.low_hz + (prb - one.first_prb) * hz) / 1e6).toFixed(2), Math.max(at, plot.left + 23), foot + 20);
      free = at + second;
    }
  }

  drawBlock(context, plot, { ranges, state, steps }, x, y) {
    const [asked, installed, , ended] = steps, top = ended === null ? plot.top : y(ended);
    const middle = installed === null ? top : y(installed), foot = y(asked);
    if (top > plot.top + plot.height || foot < plot.top - 1) return;
    for (const [first, last] of ranges) {
      const left = x(first) + 1, wide = Math.max(2, x(last + 1) - x(first) - 2);
      if (foot - middle > 2) outline(context, left, middle, wide, foot - middle, [4, 3]);
      if (installed !== null && middle - top > 2) outline(context, left, top, wide, middle - top, []);
      if (ended !== null) continue;      // it stands, or is asked: on the edge, too
      context.fillStyle = context.strokeStyle = getComputedStyle(this.canvas).color;
      context.lineWidth = 1.5;
      context.setLineDash(STANDS.has(state) ? [] : [4, 3]);
      if (STANDS.has(state)) context.fillRect(left, 8, wide, 5);
      else context.strokeRect(left, 8.5, wide, 4);
    }
  }

  drawFound(context, plot, ranges, foot, top, x, isNow) {
    if (top > plot.top + plot.height || foot < plot.top) return;
    for (const [first, last] of ranges) {
      for (const at of [x(first), x(last + 1)]) {
        stroke(context, [2, 4], () => { context.moveTo(at, top); context.lineTo(at, foot); });
      }
      if (!isNow) continue;
      const middle = (x(first) + x(last + 1)) / 2;
      context.fillStyle = getComputedStyle(this.canvas).color;
      context.beginPath();
      context.moveTo(middle - 5, 0);
      context.lineTo(middle + 5, 0);
      context.lineTo(middle, 7);
      context.fill();
    }
  }
}

function stroke(context, dash, trace) {
  for (const [style, width] of [[HALO, 4], [MARK, 2]]) {
    context.setLineDash(style === HALO ? [] : dash);
    context.strokeStyle = style;
    context.lineWidth = width;
    context.globalAlpha = style === HALO ? 0.45 : 1;
    context.beginPath();
    trace();
    context.stroke();
  }
  context.globalAlpha = 1;
}

function outline(context, left, top, wide, tall, dash) { stroke(context, dash, () => context.rect(left, top, wide, tall)); }
