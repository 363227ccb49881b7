// The map: land, partitions over it, moves over those.
//
// Owns the canvas, its projection and its colours. Draws one frame on call; keeps no history.

import { areasOf, busyOf, cellsOf, densityOf } from "./history.js";

const LEFT = 56;
const BOTTOM = 20;
const FADING = [1, 0.45, 0.2]; // opacity by age in batches
const MOST_ARROWS = 12;
const LABELLED = 34; // a higher partition has room for two lines of text

// Okabe and Ito's colours, distinct for colour-blind people; then lighter, then darker.
const HUES = ["#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7", "#999999"];
const SHADES = [[0, 0], [255, 0.55], [0, 0.45]];
// Cividis: its lightness grows evenly, also for colour-blind people.
const SCALE = ["#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838"];

export function executorColour(executor) {
  const [towards, part] = SHADES[Math.floor(executor / HUES.length) % SHADES.length];
  return css(rgb(HUES[executor % HUES.length]).map((c) => c + (towards - c) * part));
}

// A colour for a number between 0 and 1.
export function scaleColour(value) {
  const place = Math.min(1, Math.max(0, value)) * (SCALE.length - 1);
  const i = Math.min(SCALE.length - 2, Math.floor(place));
  const [a, b] = [rgb(SCALE[i]), rgb(SCALE[i + 1])];
  return css(a.map((c, k) => c + (b[k] - c) * (place - i)));
}

// The values that colours stand for: of each partition, the ends of the scale, and a function
// that maps a value to a number between 0 and 1.
export function measure(frame, by) {
  const areas = areasOf(frame);
  const value = by === "busy" ? (p) => busyOf(frame, p) : (p) => densityOf(frame, p, areas);
  const values = new Map(frame.partitions.map((p) => [p.id, value(p)]));
  const positive = [...values.values()].filter((v) => v > 0);
  const high = Math.max(...positive, 0);
  if (by === "busy") {
    return { values, low: 0, high, part: (v) => (high ? v / high : 0) };
  }
  // Cities are thousands of times denser than deserts: only a logarithmic scale shows both.
  const low = Math.max(Math.min(...positive, high), high / 1e4);
  const span = Math.log(high / low) || 1;
  return { values, low, high, part: (v) => (v > low ? Math.log(v / low) / span : 0) };
}

export class MapDrawing {
  constructor(canvas) {
    this.canvas = canvas;
    this.land = { land: [], borders: [] };
    this.run = null;
  }

  // Draw a frame; `moves` and `loans` are those of the last batches, newest first; `picked` is an id.
  draw(run, frame, { by, labels, moves, loans, picked, overlay }) {
    this.run = run;
    const { canvas } = this;
    const context = this.#prepare();
    const colours = Object.fromEntries(
      ["sea", "land", "coast", "edge", "ink", "dim", "line", "panel", "move", "object", "accent"].map((name) => [
        name,
        getComputedStyle(canvas).getPropertyValue(`--${name}`).trim(),
      ]),
    );
    this.#axes(context, colours);
    context.save();
    context.beginPath();
    context.rect(LEFT, 0, this.width, this.height);
    context.clip();
    context.fillStyle = colours.sea;
    context.fillRect(LEFT, 0, this.width, this.height);
    this.#lines(context, this.land.land);
    context.fillStyle = colours.land;
    context.fill();
    if (frame) this.#partitions(context, frame, by, colours);
    context.lineWidth = 1.2;
    context.strokeStyle = colours.coast;
    this.#lines(context, this.land.land);
    context.stroke();
    context.setLineDash([3, 3]);
    this.#lines(context, this.land.borders);
    context.stroke();
    context.setLineDash([]);
    if (frame) {
      this.#edges(context, frame, colours);
      overlay(context, (x, y) => this.#project(x, y), this.turns(), colours);
      loans.forEach((some, age) => this.#loans(context, frame, some, age, colours));
      if (labels) this.#numbers(context, frame, moves[0] ?? [], colours);
      moves.forEach((some, age) => this.#moves(context, some, age, colours));
      const chosen = frame.partitions.find((p) => p.id === picked);
      if (chosen) outline(context, this.box(chosen.cells, 8), colours.ink, 3);
    }
    context.restore();
  }

  // Return the partition at a position on the canvas.
  at(frame, x, y) {
    return frame.partitions.find(({ cells }) => {
      const [left, top, width, height] = this.box(cells);
      return x >= left && x < left + width && y >= top && y < top + height;
    });
  }

  // Return the box of cells on the canvas: left, top, width, height; at least `least` wide and high.
  box(cells, least = 0) {
    const [columns, rows] = this.run.grid;
    const left = LEFT + (cells[0] / columns) * this.width;
    const right = LEFT + (cells[2] / columns) * this.width;
    const top = this.height * (1 - cells[3] / rows);
    const bottom = this.height * (1 - cells[1] / rows);
    const [wider, taller] = [Math.max(0, least - (right - left)), Math.max(0, least - (bottom - top))];
    return [left - wider / 2, top - taller / 2, right - left + wider, bottom - top + taller];
  }

  // What is added to longitudes: bounds and circles may go beyond 180 degrees.
  turns() {
    return this.isDegrees() ? [-360, 0, 360] : [0];
  }

  // Return the coordinates of a position on the canvas.
  placeOf(left, top) {
    const [x1, y1, x2, y2] = this.run.bounds;
    return [x1 + ((left - LEFT) / this.width) * (x2 - x1), y1 + (1 - top / this.height) * (y2 - y1)];
  }

  isDegrees() {
    const [x1, y1, x2, y2] = this.run.bounds;
    return x1 >= -360 && x2 <= 360 && y1 >= -90 && y2 <= 90;
  }

  #prepare() {
    const [x1, y1, x2, y2] = this.run.bounds;
    const whole = Math.max(240, this.canvas.clientWidth);
    this.width = whole - LEFT;
    // A degree of longitude is shorter away from the equator.
    const squeeze = this.isDegrees() ? Math.cos((((y1 + y2) / 2) * Math.PI) / 180) : 1;
    const shape = (y2 - y1) / ((x2 - x1) * Math.max(squeeze, 0.2));
    this.height = Math.round(this.width * Math.min(1, Math.max(0.3, shape)));
    return sized(this.canvas, whole, this.height + BOTTOM);
  }

  #project(x, y) {
    const [x1, y1, x2, y2] = this.run.bounds;
    return [
      LEFT + ((x - x1) / (x2 - x1)) * this.width,
      this.height * (1 - (y - y1) / (y2 - y1)),
    ];
  }

  #lines(context, lines) {
    context.beginPath();
    if (!this.isDegrees()) return;
    const [x1, , x2] = this.run.bounds;
    for (const { places, west, east } of lines) {
      // Bounds may go beyond 180 degrees.
      for (const turn of [-360, 0, 360]) {
        if (east + turn < x1 || west + turn > x2) continue;
        places.forEach(([x, y], i) => {
          const place = this.#project(x + turn, y);
          if (i) context.lineTo(...place);
          else context.moveTo(...place);
        });
      }
    }
  }

  #axes(context, colours) {
    const [x1, y1, x2, y2] = this.run.bounds;
    const degrees = this.isDegrees();
    context.fillStyle = colours.dim;
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    context.textAlign = "right";
    for (const y of ticks(y1, y2, this.height / 45, degrees)) {
      const place = Math.min(this.height - 6, Math.max(6, this.#project(x1, y)[1]));
      context.fillText(degrees ? degree(y, "N", "S") : short(y), LEFT - 5, place);
    }
    context.textAlign = "center";
    for (const x of ticks(x1, x2, this.width / 75, degrees)) {
      const place = Math.min(LEFT + this.width - 18, Math.max(LEFT + 14, this.#project(x, y1)[0]));
      context.fillText(degrees ? degree(x, "E", "W") : short(x), place, this.height + 11);
    }
  }

  #partitions(context, frame, by, colours) {
    const scale = by === "executor" ? null : measure(frame, by);
    for (const partition of frame.partitions) {
      const [left, top, width, height] = this.box(partition.cells);
      context.globalAlpha = scale ? 0.8 : 0.55;
      context.fillStyle = scale
        ? scaleColour(scale.part(scale.values.get(partition.id)))
        : executorColour(partition.owners[0]);
      context.fillRect(left, top, width, height);
      if (!scale && partition.owners.length > 1) stripes(context, [left, top, width, height], partition);
    }
    context.globalAlpha = 1;
    context.strokeStyle = colours.edge;
  }

  #edges(context, frame, colours) {
    context.lineWidth = 0.7;
    context.strokeStyle = colours.edge;
    for (const partition of frame.partitions) context.strokeRect(...this.box(partition.cells));
    for (const partition of frame.partitions) {
      if (partition.owners.length < 2) continue;
      // A shared cell may be smaller than a pixel: a ring marks it.
      const [left, top, width, height] = this.box(partition.cells);
      context.beginPath();
      context.arc(left + width / 2, top + height / 2, 5, 0, 2 * Math.PI);
      context.lineWidth = 3.5;
      context.strokeStyle = colours.panel;
      context.stroke();
      context.lineWidth = 1.8;
      context.strokeStyle = colours.ink;
      context.stroke();
    }
  }

  #numbers(context, frame, moves, colours) {
    const moved = new Set(moves.map(({ partition }) => partition.id));
    for (const partition of frame.partitions) {
      const text = partition.owners.join("+");
      const [left, top, width, height] = this.box(partition.cells);
      if (width < 9 + 7 * text.length || height < 15) continue;
      // No room for both: the move's label names the executor too.
      if (height <= LABELLED && moved.has(partition.id)) continue;
      label(context, text, left + width / 2, top + height / 2, colours.ink, colours.panel);
    }
  }

  // Arrows from the partitions whose points were lent to the nearest partition of the borrower.
  #loans(context, frame, loans, age, colours) {
    const largest = loans.slice(0, MOST_ARROWS);
    const most = largest[0]?.[3] ?? 1;
    const middle = ({ cells }) => {
      const [left, top, width, height] = this.box(cells);
      return [left + width / 2, top + height / 2];
    };
    for (const [, borrower, id, points] of largest) {
      const lent = frame.partitions.find((p) => p.id === id);
      const ends = frame.partitions.filter((p) => p.owners.includes(borrower)).map(middle);
      if (!lent || !ends.length) continue;
      const from = middle(lent);
      const far = ([x, y]) => Math.hypot(x - from[0], y - from[1]);
      const to = ends.reduce((best, end) => (far(end) < far(best) ? end : best));
      context.globalAlpha = FADING[age] * (0.35 + (0.65 * points) / most);
      bow(context, from, to, 1 + (2.5 * points) / most, colours.accent);
    }
    context.globalAlpha = 1;
  }

  #moves(context, moves, age, colours) {
    context.globalAlpha = FADING[age] ?? 0;
    for (const { partition } of moves) {
      outline(context, this.box(partition.cells, 8), colours.move, age ? 1.5 : 2.5);
    }
    if (age) return;
    // The largest are labelled; labels that would overlap are left out.
    const taken = [];
    for (const move of [...moves].sort((a, b) => cellsOf(b.partition) - cellsOf(a.partition))) {
      const [left, top, width, height] = this.box(move.partition.cells);
      // Below the number, or below the ring.
      const lower = height > LABELLED || move.partition.owners.length > 1 ? 14 : 0;
      const [x, y] = [left + width / 2, top + height / 2 + lower];
      if (taken.some(([u, v]) => Math.abs(u - x) < 52 && Math.abs(v - y) < 16)) continue;
      taken.push([x, y]);
      label(context, arrow(move), x, y, colours.move, colours.panel);
    }
  }
}

// Decode the file's deltas to lines of longitudes and latitudes. A line that crosses 180 degrees
// continues beyond it, so that it does not cross the whole map.
export function landOf({ scale, land, borders }) {
  const lines = (steps) => {
    const places = [];
    let [x, y] = [0, 0];
    for (let i = 0; i < steps.length; i += 2) {
      let dx = steps[i] * scale;
      // Near a pole, lines follow the edge of the map.
      if (i && Math.abs(y) < 89) dx -= 360 * Math.round(dx / 360);
      [x, y] = [x + dx, y + steps[i + 1] * scale];
      places.push([x, y]);
    }
    const all = places.map(([longitude]) => longitude);
    return { places, west: Math.min(...all), east: Math.max(...all) };
  };
  return { land: land.map(lines), borders: borders.map(lines) };
}

// A move as text: 3→5, or +5 and -3 where others keep serving the partition.
export function arrow({ from, to }) {
  if (!from.length) return `+${to.join("+")}`;
  return to.length ? `${from.join("+")}→${to.join("+")}` : `-${from.join("-")}`;
}

// Size a canvas for the screen's pixel ratio; return a context in CSS pixels.
export function sized(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

// Return about `count` round numbers between two others; of degrees, fractions of a circle.
export function ticks(low, high, count, degrees = false) {
  const rough = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const round = degrees && rough > 10 ? [15, 30, 45, 60, 90, 180] : [1, 2, 5, 10].map((n) => n * power);
  const step = round.find((n) => n >= rough) ?? round.at(-1);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) {
    found.push(i * step + 0); // not -0
  }
  return found;
}

export function short(number) {
  return Number(number.toPrecision(6)).toLocaleString("en", { maximumSignificantDigits: 6 });
}

export function degree(value, positive, negative) {
  const number = Number(Math.abs(value).toFixed(4));
  return `${number}°${number === 0 ? "" : value > 0 ? positive : negative}`;
}

function stripes(context, [left, top, width, height], { owners, tickets }) {
  context.save();
  context.beginPath();
  context.rect(left, top, width, height);
  context.clip();
  const all = tickets.reduce((sum, n) => sum + n, 0);
  const period = 8 * owners.length;
  context.globalAlpha = 1;
  for (let start = left - height; start < left + width; start += period) {
    let x = start;
    owners.forEach((owner, i) => {
      const next = x + (period * tickets[i]) / all;
      context.fillStyle = executorColour(owner);
      context.beginPath();
      context.moveTo(x, top + height);
      context.lineTo(next, top + height);
      context.lineTo(next + height, top);
      context.lineTo(x + height, top);
      context.fill();
      x = next;
    });
  }
  context.restore();
}

// An arrow that bends, so that one in the other direction does not cover it.
function bow(context, [x1, y1], [x2, y2], width, colour) {
  const length = Math.hypot(x2 - x1, y2 - y1);
  if (length < 6) return;
  const [cx, cy] = [(x1 + x2) / 2 - (y2 - y1) / 6, (y1 + y2) / 2 + (x2 - x1) / 6];
  const angle = Math.atan2(y2 - cy, x2 - cx);
  const head = Math.min(length / 2, 5 + 2 * width);
  context.strokeStyle = context.fillStyle = colour;
  context.lineWidth = width;
  context.beginPath();
  context.moveTo(x1, y1);
  context.quadraticCurveTo(cx, cy, x2 - head * Math.cos(angle), y2 - head * Math.sin(angle));
  context.stroke();
  context.beginPath();
  context.moveTo(x2, y2);
  for (const side of [-0.45, 0.45]) {
    context.lineTo(x2 - head * Math.cos(angle + side), y2 - head * Math.sin(angle + side));
  }
  context.fill();
}

function outline(context, box, colour, width) {
  context.lineWidth = width;
  context.strokeStyle = colour;
  context.strokeRect(...box);
}

function label(context, text, x, y, colour, halo) {
  context.font = "600 12px system-ui, sans-serif";
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.lineWidth = 3;
  context.lineJoin = "round";
  context.strokeStyle = halo;
  context.strokeText(text, x, y);
  context.fillStyle = colour;
  context.fillText(text, x, y);
}

function rgb(hex) {
  return [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
}

function css(colour) {
  return `rgb(${colour.map(Math.round).join(" ")})`;
}
