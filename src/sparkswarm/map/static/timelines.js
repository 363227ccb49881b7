// Timelines: small charts of one number each over all batches; the shown batch is marked.
//
// A click selects a batch.

import { short, sized, ticks } from "./drawing.js";

const LEFT = 46;
const RIGHT = 8;
const PAD = 6;
const HEIGHT = 92;
const AXIS = 30;
const LABEL = 86; // pixels from one label of the axis to the next

const MEASURES = [
  { name: "throughput", title: "Throughput, points per second", value: (f) => (f.seconds ? f.points / f.seconds : 0), show: (v) => short(Math.round(v)) },
  { name: "latency", title: "Latency, seconds per batch", realTime: "Latency, seconds for 99% of the points", value: (f) => f.latency ?? f.seconds / f.count, show: (v) => `${v.toFixed(v < 0.1 ? 3 : 2)} s` },
  { name: "lag", title: "Lag, seconds from the latest event to the clock", value: (f) => f.lag, show: duration, isKnown: (frames) => frames.some((f) => f.lag) },
  { name: "balance", title: "Balance, mean work / largest, 1 is perfect", value: (f) => f.balance, show: (v) => v.toFixed(2), most: 1 },
  { name: "queries", title: "Queries, operations per batch", value: (f) => f.operations / f.count, show: (v) => short(Math.round(v)) },
];

// A time in the largest unit of which there are at least two.
function duration(seconds) {
  const units = [[86400, "d"], [3600, "h"], [60, "min"]];
  const [size, unit] = units.find(([size]) => seconds >= 2 * size) ?? [1, "s"];
  return `${short(Math.round(seconds / size))} ${unit}`;
}

export class Timelines {
  constructor(parent, onPick) {
    this.charts = MEASURES.map((measure, i) => new Chart(parent, measure, i === MEASURES.length - 1, onPick));
  }

  draw(frames, index, clock) {
    for (const chart of this.charts) {
      chart.figure.hidden = chart.measure.isKnown?.(frames) === false;
      if (!chart.figure.hidden) chart.draw(frames, index, clock);
    }
  }
}

class Chart {
  constructor(parent, measure, hasAxis, onPick) {
    this.measure = measure;
    this.hasAxis = hasAxis;
    this.count = 0;
    this.figure = parent.appendChild(document.createElement("figure"));
    const caption = this.figure.appendChild(document.createElement("figcaption"));
    this.title = caption.appendChild(document.createElement("span"));
    this.title.textContent = measure.title;
    this.number = caption.appendChild(document.createElement("span"));
    this.number.dataset.measure = measure.name;
    this.canvas = this.figure.appendChild(document.createElement("canvas"));
    this.canvas.setAttribute("role", "img");
    const pick = (event) => {
      if (!this.count || !event.buttons) return;
      const part = (event.offsetX - LEFT) / (this.canvas.clientWidth - LEFT - RIGHT);
      onPick(Math.round(Math.min(1, Math.max(0, part)) * (this.count - 1)));
    };
    this.canvas.addEventListener("pointerdown", pick);
    this.canvas.addEventListener("pointermove", pick);
  }

  draw(frames, index, clock) {
    const { measure, canvas } = this;
    this.count = frames.length;
    const style = getComputedStyle(canvas);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    const height = HEIGHT + (this.hasAxis ? AXIS : 0);
    const context = sized(canvas, Math.max(200, canvas.clientWidth), height);
    const width = Math.max(200, canvas.clientWidth) - LEFT - RIGHT;
    const values = frames.map(measure.value);
    const now = values[index];
    // In Real-time Mode points do not wait for the end of a batch.
    this.title.textContent = (frames.some((f) => f.latency) && measure.realTime) || measure.title;
    this.number.textContent = now === undefined ? "–" : measure.show(now);
    canvas.setAttribute("aria-label", `${this.title.textContent}: ${this.number.textContent} in the batch shown, ${frames.length} shown in all`);

    const most = measure.most ?? top(values);
    const x = (i) => LEFT + (frames.length > 1 ? (i / (frames.length - 1)) * width : width / 2);
    const y = (v) => PAD + (HEIGHT - 2 * PAD) * (1 - Math.min(v, most) / most);
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    context.textAlign = "right";
    context.lineWidth = 1;
    for (const tick of ticks(0, most, 3)) {
      context.strokeStyle = colour("line");
      line(context, [[LEFT, y(tick)], [LEFT + width, y(tick)]]);
      context.fillStyle = colour("dim");
      context.fillText(compact(tick), LEFT - 5, y(tick));
    }
    if (!frames.length) return;
    context.strokeStyle = colour("curve");
    context.lineWidth = 1.5;
    line(context, values.map((v, i) => [x(i), y(v)]));
    context.fillStyle = colour("move");
    values.forEach((v, i) => {
      // Above the scale: one outlier must not flatten all other batches.
      if (v > most) triangle(context, x(i), PAD);
    });
    context.strokeStyle = colour("ink");
    context.lineWidth = 1;
    line(context, [[x(index), 0], [x(index), HEIGHT]]);
    context.fillStyle = colour("curve");
    context.beginPath();
    context.arc(x(index), y(now), 3.5, 0, 2 * Math.PI);
    context.fill();
    if (this.hasAxis) this.#axis(context, frames, x, width, colour("dim"), clock);
  }

  // Batch numbers and times; batches are evenly spaced, their times need not be.
  #axis(context, frames, x, width, colour, clock) {
    context.fillStyle = colour;
    const last = frames.length - 1;
    const step = Math.max(1, Math.ceil(last / Math.max(1, Math.floor(width / LABEL))));
    for (let i = 0; i <= last; i++) {
      const fits = i % step === 0 && x(last) - x(i) >= LABEL;
      if (i && i < last && !fits) continue;
      context.textAlign = i === 0 ? "left" : i === last ? "right" : "center";
      context.fillText(i ? String(frames[i].batch) : `batch ${frames[i].batch}`, x(i), HEIGHT + 8);
      context.fillText(clock(frames[i].time), x(i), HEIGHT + 22);
    }
  }
}

// The top of a scale: the maximum, without outliers.
function top(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const most = sorted.at(-1) ?? 0;
  const nearly = sorted[Math.floor(0.94 * (sorted.length - 1))] ?? 0;
  return (nearly && most > 3 * nearly ? 1.6 * nearly : 1.05 * most) || 1;
}

function compact(number) {
  return number.toLocaleString("en", { notation: "compact", maximumSignificantDigits: 3 });
}

function line(context, places) {
  context.beginPath();
  places.forEach(([x, y], i) => (i ? context.lineTo(x, y) : context.moveTo(x, y)));
  context.stroke();
}

function triangle(context, x, y) {
  context.beginPath();
  context.moveTo(x, y - 5);
  context.lineTo(x - 4, y + 2);
  context.lineTo(x + 4, y + 2);
  context.fill();
}
