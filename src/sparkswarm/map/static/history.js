// The run as the page remembers it: a frame for each batch, made from the journal's entries.
//
// Owns what is kept and for how long. Memory is bounded however long the page stays open: when
// there are too many frames, neighbours in the older half become one, so that the past gets
// coarser as it gets longer. Knows nothing of what is drawn.

export const MOST_FRAMES = 2000;
export const MOST_DECISIONS = 1000;
const LONGEST_TEXT = 1000;

export class History {
  constructor() {
    this.clear();
  }

  clear() {
    this.run = null; // the last start entry
    this.frames = [];
    this.decisions = [];
    this.plan = { version: null, executors: 0, partitions: [] };
  }

  // Take in entries; return whether there was anything new.
  add(entries) {
    for (const entry of entries) {
      try {
        this.#addOne(entry);
      } catch (error) {
        // One odd line must not hide all that come after it.
        console.warn("an entry that makes no sense", entry, error);
      }
    }
    return entries.length > 0;
  }

  #addOne(entry) {
    if (entry.entry === "start") this.run = entry;
    else if (entry.entry === "plan") this.plan = nextPlan(this.plan, entry);
    else if (entry.entry === "batch") this.#addBatch(entry);
    else if (entry.entry === "decision") this.#addDecision(entry);
  }

  // Return the place of the last frame that is not after a batch.
  indexOf(batch) {
    let low = 0;
    let high = this.frames.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.frames[middle].batch <= batch) low = middle;
      else high = middle - 1;
    }
    return high < 0 ? -1 : low;
  }

  // Return the last decisions up to a batch that are wanted, the newest first.
  decisionsUpTo(batch, wanted, most) {
    const found = [];
    for (let i = this.decisions.length - 1; i >= 0 && found.length < most; i--) {
      const decision = this.decisions[i];
      if (decision.batch <= batch && wanted(decision)) found.push(decision);
    }
    return found;
  }

  #addBatch(entry) {
    // A batch that runs again after a failure replaces what was known of it.
    while (this.frames.length && this.frames.at(-1).batch >= entry.batch) this.frames.pop();
    while (this.decisions.length && this.decisions.at(-1).batch >= entry.batch) this.decisions.pop();
    this.frames.push({
      batch: entry.batch,
      count: 1,
      time: entry.time,
      seconds: entry.seconds,
      points: entry.points,
      matches: entry.matches,
      operations: entry.operations,
      balance: entry.balance,
      busy: entry.busy,
      received: entry.received,
      bad: entry.quarantined.reduce((sum, [, , count]) => sum + count, 0),
      loads: entry.loads?.length ? new Map(entry.loads) : null,
      executors: this.plan.executors,
      partitions: this.plan.partitions,
    });
    if (this.frames.length > MOST_FRAMES) thin(this.frames);
  }

  #addDecision(entry) {
    const { batch, round, kind } = entry;
    const cut = (text) => (text.length > LONGEST_TEXT ? text.slice(0, LONGEST_TEXT) + " …" : text);
    this.decisions.push({ batch, round, kind, what: cut(entry.what), reason: cut(entry.reason) });
    if (this.decisions.length > 2 * MOST_DECISIONS) {
      this.decisions = this.decisions.slice(-MOST_DECISIONS);
    }
  }
}

function nextPlan(plan, entry) {
  const retired = new Set(entry.retired);
  const kept = entry.whole ? [] : plan.partitions.filter((p) => !retired.has(p.id));
  const partitions = [...kept, ...entry.created].sort((a, b) => a.id - b.id);
  return { version: entry.version, executors: entry.executors, partitions };
}

// Make one frame of two neighbours in the older half, those that stand for the fewest batches.
// Frames share the partitions of their plans, so a frame costs little more than its numbers.
function thin(frames) {
  let least = 0;
  for (let i = 1; i < frames.length >> 1; i++) {
    const counts = frames[i].count + frames[i + 1].count;
    if (counts < frames[least].count + frames[least + 1].count) least = i;
  }
  frames.splice(least, 2, together(frames[least], frames[least + 1]));
}

// Sums where a batch has sums, means where it has rates; the plan is the later one's.
function together(a, b) {
  const both = { ...b, count: a.count + b.count };
  for (const name of ["seconds", "points", "matches", "operations", "bad"]) {
    both[name] = a[name] + b[name];
  }
  both.balance = (a.balance * a.count + b.balance * b.count) / both.count;
  return both;
}

// The moves between two frames: new partitions whose cells others served before. `from` are
// the executors that no longer serve them, `to` those that begin to.
export function movesBetween(before, after) {
  if (!before || before.partitions === after.partitions) return [];
  const known = new Set(before.partitions.map((p) => p.id));
  const still = new Set(after.partitions.map((p) => p.id));
  const retired = before.partitions.filter((p) => !still.has(p.id));
  const moves = [];
  for (const partition of after.partitions) {
    if (known.has(partition.id)) continue;
    const parents = retired.filter((old) => overlap(old.cells, partition.cells));
    const owners = new Set(parents.flatMap((old) => old.owners));
    const from = [...owners].filter((owner) => !partition.owners.includes(owner));
    const to = partition.owners.filter((owner) => !owners.has(owner));
    if (from.length || to.length) moves.push({ partition, from, to });
  }
  return moves;
}

function overlap(a, b) {
  return a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3];
}

// -- what colours mean ----------------------------------------------------------------------

// Work of a partition's executor, in seconds a batch; of several, by their tickets.
export function busyOf(frame, partition) {
  return weighted(partition, (owner) => frame.busy[owner] ?? 0);
}

// Points in each cell. Where the journal has no counts by partition, its executor's mean.
export function densityOf(frame, partition, areas) {
  const area = cellsOf(partition);
  if (frame.loads) return (frame.loads.get(partition.id) ?? 0) / area;
  return weighted(partition, (owner) => (frame.received[owner] ?? 0) / (areas[owner] || 1));
}

// Cells that each executor serves; of shared ones, its part.
export function areasOf(frame) {
  const areas = new Array(frame.executors).fill(0);
  for (const partition of frame.partitions) {
    const tickets = partition.tickets ?? [1];
    const all = tickets.reduce((sum, n) => sum + n, 0);
    partition.owners.forEach((owner, i) => {
      areas[owner] += (cellsOf(partition) * tickets[i]) / all;
    });
  }
  return areas;
}

export function cellsOf({ cells }) {
  return (cells[2] - cells[0]) * (cells[3] - cells[1]);
}

function weighted(partition, value) {
  const tickets = partition.tickets ?? [1];
  const all = tickets.reduce((sum, n) => sum + n, 0);
  return partition.owners.reduce((sum, owner, i) => sum + value(owner) * tickets[i], 0) / all;
}
