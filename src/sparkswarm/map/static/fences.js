// Fences and objects: what the server reads from the checkpoint, drawn over the partitions.
//
// Owns their JSON. Strings from it are only ever set as textContent, by the page.

export class Fences {
  constructor() {
    this.batch = null;
    this.total = 0;
    this.list = [];
    this.density = null;
  }

  // Ask for what there is; return whether it changed.
  async load() {
    const response = await fetch("fences", { cache: "no-store" });
    if (!response.ok) return false;
    const found = await response.json();
    if (found.batch === this.batch) return false;
    [this.batch, this.total, this.density] = [found.batch, found.total, found.density];
    this.list = found.fences.map((fence) => ({ ...fence, box: boxOf(fence.rings) }));
    return true;
  }

  // Draw; `project` maps coordinates to the canvas, `turns` are what is added to longitudes.
  draw(context, project, turns, colours, { bounds, fences, objects, picked }) {
    if (objects && this.density) this.#density(context, project, colours, bounds);
    if (!fences) return;
    context.lineWidth = 1;
    for (const fence of this.list) {
      const chosen = fence.id === picked;
      context.beginPath();
      for (const turn of turns) {
        if (fence.box[0] + turn > bounds[2] || fence.box[2] + turn < bounds[0]) continue;
        for (const ring of fence.rings) {
          for (let i = 0; i < ring.length; i += 2) {
            const place = project(ring[i] + turn, ring[i + 1]);
            if (i) context.lineTo(...place);
            else context.moveTo(...place);
          }
        }
      }
      context.globalAlpha = chosen ? 0.35 : 0.12;
      context.fillStyle = colours.accent;
      context.fill("evenodd");
      context.globalAlpha = 1;
      context.lineWidth = chosen ? 2.5 : 1;
      context.strokeStyle = colours.accent;
      context.stroke();
    }
  }

  // Return the smallest fence that contains a place.
  at(x, y, turns) {
    const inside = ({ rings, box }) =>
      turns.some((turn) => within(box, x - turn, y) && odd(rings, x - turn, y));
    const found = this.list.filter(inside);
    return found.sort((a, b) => areaOf(a.box) - areaOf(b.box))[0];
  }

  #density(context, project, colours, [x1, y1, x2, y2]) {
    const { columns, rows, cells, counts } = this.density;
    const most = Math.log1p(Math.max(...counts, 1));
    const [wide, high] = [(x2 - x1) / columns, (y2 - y1) / rows];
    context.fillStyle = colours.object;
    cells.forEach((cell, i) => {
      const [column, row] = [Math.floor(cell / rows), cell % rows];
      const [left, top] = project(x1 + column * wide, y1 + (row + 1) * high);
      const [right, bottom] = project(x1 + (column + 1) * wide, y1 + row * high);
      context.globalAlpha = 0.25 + (0.65 * Math.log1p(counts[i])) / most;
      context.fillRect(left, top, Math.max(right - left, 2), Math.max(bottom - top, 2));
    });
    context.globalAlpha = 1;
  }
}

// Return the columns of a fence, which come as JSON, as text.
export function described(properties) {
  try {
    return Object.entries(JSON.parse(properties))
      .map(([name, value]) => `${name}: ${typeof value === "object" ? JSON.stringify(value) : value}`)
      .join(", ");
  } catch {
    return properties;
  }
}

// Return the object nearest to a place, or null.
export async function nearestObject(x, y) {
  const response = await fetch(`object?x=${x}&y=${y}`, { cache: "no-store" });
  return response.ok ? response.json() : null;
}

function boxOf(rings) {
  const box = [Infinity, Infinity, -Infinity, -Infinity];
  for (const ring of rings) {
    for (let i = 0; i < ring.length; i += 2) {
      box[0] = Math.min(box[0], ring[i]);
      box[1] = Math.min(box[1], ring[i + 1]);
      box[2] = Math.max(box[2], ring[i]);
      box[3] = Math.max(box[3], ring[i + 1]);
    }
  }
  return box;
}

function areaOf([x1, y1, x2, y2]) {
  return (x2 - x1) * (y2 - y1);
}

function within([x1, y1, x2, y2], x, y) {
  return x >= x1 && x <= x2 && y >= y1 && y <= y2;
}

// Whether a ray to the right crosses the edges of all rings an odd number of times.
function odd(rings, x, y) {
  let inside = false;
  for (const ring of rings) {
    for (let i = 0; i + 3 < ring.length; i += 2) {
      const [ax, ay, bx, by] = ring.slice(i, i + 4);
      if (ay > y !== by > y && x < ((bx - ax) * (y - ay)) / (by - ay) + ax) inside = !inside;
    }
  }
  return inside;
}
