// The history of a run: a frame for each batch, made from the journal's entries.
//
// Memory is bounded however long the page stays open: when there are too many frames, two
// neighbours in the older half are merged, so that the past gets coarser. Draws nothing.

export const MAX_FRAMES = 2000;
export const MAX_DECISIONS = 1000;
const MAX_TEXT = 1000;
const SUMS = ["seconds", "points", "matches", "operations", "bad"]; // fields that add up over batches

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

  // Add entries; return whether there were any.
  add(entries) {
    for (const entry of entries) {
      try {
        this.#addOne(entry);
      } catch (error) {
        // One bad entry must not hide those after it.
        console.warn("skipped an invalid entry", entry, error);
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

  // Return the index of the last frame up to a batch.
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

  // Return the last `most` decisions up to a batch that are wanted, newest first.
  decisionsUpTo(batch, wanted, most) {
    const found = [];
    for (let i = this.decisions.length - 1; i >= 0 && found.length < most; i--) {
      const decision = this.decisions[i];
      if (decision.batch <= batch && wanted(decision)) found.push(decision);
    }
    return found;
  }

  #addBatch(entry) {
    // A batch that runs again after a failure replaces its earlier frame and decisions.
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
      lag: entry.lag ?? 0,
      latency: entry.latency ?? null,
      busy: entry.busy,
      received: entry.received,
      lent: entry.lent ?? 0,
      loans: entry.loans ?? [],
      hosts: entry.hosts ?? [],
      unread: entry.unread ?? null,
      bad: entry.quarantined.reduce((sum, [, , count]) => sum + count, 0),
      loads: entry.loads?.length ? new Map(entry.loads) : null,
      executors: this.plan.executors,
      partitions: this.plan.partitions,
    });
    if (this.frames.length > MAX_FRAMES) thin(this.frames);
  }

  #addDecision(entry) {
    const { batch, round, kind } = entry;
    const cut = (text) => (text.length > MAX_TEXT ? text.slice(0, MAX_TEXT) + " …" : text);
    this.decisions.push({ batch, round, kind, what: cut(entry.what), reason: cut(entry.reason) });
    if (this.decisions.length > 2 * MAX_DECISIONS) {
      this.decisions = this.decisions.slice(-MAX_DECISIONS);
    }
  }
}

function nextPlan(plan, entry) {
  const retired = new Set(entry.retired);
  const kept = entry.whole ? [] : plan.partitions.filter((p) => !retired.has(p.id));
  const partitions = [...kept, ...entry.created].sort((a, b) => a.id - b.id);
  return { version: entry.version, executors: entry.executors, partitions };
}

// Merge the two neighbours in the older half that stand for the fewest batches. Frames share the
// partitions of their plans, so a frame costs little more than its numbers.
function thin(frames) {
  let least = 0;
  for (let i = 1; i < frames.length >> 1; i++) {
    const counts = frames[i].count + frames[i + 1].count;
    if (counts < frames[least].count + frames[least + 1].count) least = i;
  }
  frames.splice(least, 2, merged(frames[least], frames[least + 1]));
}

// Merge two frames: sums, a mean of the balance, and the plan of the later one.
function merged(a, b) {
  const both = { ...b, count: a.count + b.count };
  for (const name of SUMS) both[name] = a[name] + b[name];
  both.balance = (a.balance * a.count + b.balance * b.count) / both.count;
  return both;
}

// The moves between two frames: new partitions whose cells other executors served before. `from`
// are the executors that no longer serve them, `to` those that begin to.
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

// -- values of partitions -------------------------------------------------------------------

// Seconds of work of a partition's executor; of several executors, weighted by their tickets.
export function busyOf(frame, partition) {
  return weighted(partition, (owner) => frame.busy[owner] ?? 0);
}

// Points per cell. Without counts by partition in the journal, the mean of its executor.
export function densityOf(frame, partition, areas) {
  const area = cellsOf(partition);
  if (frame.loads) return (frame.loads.get(partition.id) ?? 0) / area;
  return weighted(partition, (owner) => (frame.received[owner] ?? 0) / (areas[owner] || 1));
}

// Cells that each executor serves; of shared cells, its fraction.
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
