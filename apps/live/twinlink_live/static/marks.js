// The axes of a waterfall, and over it blocks and interference; drawn for the screen's own pixels.

const LEFT = 44, TOP = 14, FOOT = 34;    // of the plot, around the picture: page.css
const APART = 46;                        // px between two ticks at least
const HALO = "#101010", MARK = "#ffffff";

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
    const { context, width, height, ink, faint, line } = fresh(this.canvas), { waterfall } = this;
    const plot = { left: LEFT, top: TOP, width: width - LEFT, height: height - TOP - FOOT };
    if (!one.prbs || plot.width < 1) return;
    const x = (prb) => plot.left + (((prb - one.first_prb) / one.prbs - waterfall.low) / (waterfall.high - waterfall.low)) * plot.width;
    const y = (step) => plot.top + (waterfall.topStep + 1 - step) * waterfall.zoom;
    context.fillStyle = faint;
    context.strokeStyle = line;
    this.drawTime(context, plot);
    this.drawPrbs(context, plot, one, x);
    const now = waterfall.topStep, isAt = (first, end) => first !== null && first <= now && (end === null || end > now);
    within(context, [plot.left, plot.top, plot.width, plot.height], () => {
      for (const { ranges, steps } of interference) drawFound(context, ranges, y(steps[0]), steps[1] === null ? plot.top : y(steps[1]), x);
      for (const block of blocks.slice().reverse()) drawBlock(context, plot, block, x, y);
    });
    within(context, [plot.left, 0, plot.width, plot.top], () => {   // the edge, which says what holds in the newest row that is seen
      context.fillStyle = context.strokeStyle = ink;
      for (const { ranges, steps } of interference) if (isAt(...steps)) drawArrows(context, ranges, x);
      for (const { ranges, steps } of blocks) if (isAt(steps[0], steps[3])) drawBars(context, ranges, isAt(steps[1], steps[3]), x);
    });
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
}

function within(context, box, draw) {
  context.save();
  context.beginPath();
  context.rect(...box);
  context.clip();
  draw();
  context.restore();
}

function drawBlock(context, plot, { ranges, steps }, x, y) {
  const [asked, installed, , ended] = steps, top = ended === null ? plot.top - 4 : y(ended);
  const middle = installed === null ? top : y(installed), foot = y(asked);
  for (const [first, last] of ranges) {
    const left = x(first) + 1, wide = Math.max(2, x(last + 1) - x(first) - 2);
    if (foot - middle > 2) stroke(context, [4, 3], () => context.rect(left, middle, wide, foot - middle));
    if (installed !== null && middle - top > 2) stroke(context, [], () => context.rect(left, top, wide, middle - top));
  }
}

function drawFound(context, ranges, foot, top, x) {
  for (const at of ranges.flatMap(([first, last]) => [x(first), x(last + 1)])) {
    stroke(context, [2, 4], () => { context.moveTo(at, top); context.lineTo(at, foot); });
  }
}

function drawBars(context, ranges, stands, x) {
  context.lineWidth = 1.5;
  context.setLineDash([4, 3]);
  for (const [first, last] of ranges) {
    const left = x(first) + 1, wide = Math.max(2, x(last + 1) - x(first) - 2);
    if (stands) context.fillRect(left, 8, wide, 5);
    else context.strokeRect(left, 8.5, wide, 4);
  }
}

function drawArrows(context, ranges, x) {
  for (const [first, last] of ranges) {
    const middle = (x(first) + x(last + 1)) / 2;
    context.beginPath();
    context.moveTo(middle - 5, 0);
    context.lineTo(middle + 5, 0);
    context.lineTo(middle, 7);
    context.fill();
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
