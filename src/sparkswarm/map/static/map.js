// The page: polls the journal, follows the run or replays it, and shows a frame.
//
// Owns the controls and texts. Strings from the journal are only ever set as textContent.

import { arrow, degree, executorColour, landOf, MapDrawing, measure, scaleColour, short, sized } from "./drawing.js";
import { described, Fences, nearestObject } from "./fences.js";
import { areasOf, History, movesBetween } from "./history.js";
import { Timelines } from "./timelines.js";

const POLL = 1000; // milliseconds between two polls
const STEP = 250; // milliseconds that a replay shows each batch
const SILENT = 15; // a run seems over after this many seconds, and times a batch's length, without a batch
const MAX_DECISIONS = 100; // lines of the log
const MAX_MOVES = 12; // listed as text
const AGES = [0, 1, 2]; // of the batches whose moves and loans are drawn, fading
const CONTROLS = ["colour", "labels", "moves", "fences", "objects", "loans", "requests"];

const byId = (id) => document.getElementById(id);
const history = new History();
const drawing = new MapDrawing(byId("canvas"));
const fences = new Fences();
const timelines = new Timelines(byId("charts"), (index) => goTo(index));
const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "medium", hourCycle: "h23" });
const timeOf = (seconds) => clock.format(new Date(seconds * 1000));

let offset = 0; // bytes of the journal that were read
let connected = true; // whether the server answered the last poll
let serverNow = 0; // the server's time, in seconds
let following = true; // show the latest batch
let shownBatch = null;
let picked = null; // id of a partition
let pickedFence = null; // id of a fence
let playing = 0; // the timer of a replay
let logged = []; // the decisions shown
let pending = false;

// -- reading the journal --------------------------------------------------------------------

async function poll() {
  const before = connected;
  let [changed, more] = [false, false];
  try {
    const response = await fetch(`events?since=${offset}`, { cache: "no-store" });
    if (!response.ok) throw new Error(`the server answers ${response.status}`);
    const [start, stop, end] = ["Start", "Stop", "End"].map((name) =>
      Number(response.headers.get(`Journal-${name}`)),
    );
    // The journal was replaced by a shorter one.
    if (start < offset) history.clear();
    serverNow = Date.parse(response.headers.get("Date")) / 1000;
    changed = history.add(entriesOf(await response.text()));
    more = stop > start && stop < end;
    offset = stop;
    connected = true;
  } catch {
    connected = false;
  }
  if (changed) await loadFences();
  if (changed || connected !== before) show();
  else showState(history.frames[shownIndex()]);
  setTimeout(poll, more ? 0 : POLL);
}

// Fences and objects are those of the last commit, whichever batch is shown.
async function loadFences() {
  try {
    await fences.load();
  } catch {
    return; // the next batch asks again
  }
  byId("fences").parentElement.hidden = !fences.total;
  byId("objects").parentElement.hidden = !fences.density;
  document.body.dataset.fences = fences.list.length;
}

function entriesOf(text) {
  const entries = [];
  for (const line of text.split("\n")) {
    try {
      if (line) entries.push(JSON.parse(line));
    } catch {
      // A torn line, left by a killed process.
    }
  }
  return entries;
}

// -- which frame is shown -------------------------------------------------------------------

function shownIndex() {
  return following || shownBatch === null ? history.frames.length - 1 : history.indexOf(shownBatch);
}

function goTo(index) {
  const last = history.frames.length - 1;
  if (last < 0) return;
  const chosen = Math.min(last, Math.max(0, index));
  shownBatch = history.frames[chosen].batch;
  following = false;
  show();
}

function follow() {
  stop();
  following = true;
  show();
}

function stop() {
  clearInterval(playing);
  playing = 0;
}

function play() {
  if (playing) {
    stop();
    show();
    return;
  }
  goTo(shownIndex() >= history.frames.length - 1 ? 0 : shownIndex());
  playing = setInterval(() => {
    if (shownIndex() >= history.frames.length - 1) follow();
    else goTo(shownIndex() + 1);
  }, STEP);
  show();
}

// -- showing it -----------------------------------------------------------------------------

// Repaint once, in the next animation frame.
function show() {
  if (pending) return;
  pending = true;
  requestAnimationFrame(() => {
    pending = false;
    paint();
  });
}

function paint() {
  const index = shownIndex();
  const frame = history.frames[index];
  showState(frame);
  showPlayer(index, frame);
  keepView();
  const moves = AGES.filter((age) => index - age > 0)
    .map((age) => movesBetween(history.frames[index - age - 1], history.frames[index - age]));
  const loans = AGES.filter((age) => index - age >= 0).map((age) => history.frames[index - age].loans);
  if (history.run) {
    byId("canvas").hidden = false;
    const by = byId("colour").value;
    drawing.draw(history.run, frame, {
      by,
      labels: byId("labels").checked,
      moves: byId("moves").checked ? moves : [],
      loans: byId("loans").checked ? loans : [],
      picked,
      overlay: (context, project, turns, colours) =>
        fences.draw(context, project, turns, colours, {
          bounds: history.run.bounds,
          fences: byId("fences").checked,
          objects: byId("objects").checked,
          picked: pickedFence,
        }),
    });
    showLegend(frame, by);
  }
  timelines.draw(history.frames, index, timeOf);
  if (!frame) return;
  showExecutors(frame);
  showLog(frame, moves[0] ?? []);
  showPicked(frame);
  byId("canvas").setAttribute(
    "aria-label",
    `Map of ${frame.partitions.length} partitions and ${frame.executors} executors in batch ${frame.batch}`,
  );
  Object.assign(document.body.dataset, {
    batch: frame.batch,
    partitions: frame.partitions.length,
    moves: moves[0]?.length ?? 0,
  });
}

function showState(frame) {
  const last = history.frames.at(-1);
  let [state, text] = ["waiting", "waiting for the first batch"];
  if (last) {
    const patience = Math.max(SILENT, (SILENT * last.seconds) / last.count);
    const silence = Math.max(0, serverNow - last.time);
    [state, text] = silence < patience ? ["live", "live"] : ["over", `no batch for ${duration(silence)}: the run is over, or has no data`];
  }
  if (!connected) [state, text] = ["lost", "the map's server does not answer; batches that were read can be replayed"];
  setText("state", text);
  Object.assign(document.body.dataset, { state, frames: history.frames.length, following });

  const { run } = history;
  const still = run && run.rebalances === false;
  byId("note").hidden = !still;
  if (still) setText("note", `The policy of this run, ${run.policy}, does not rebalance: partitions stay where they are.`);
  if (!frame) return;
  const facts = [
    `policy ${run.policy}`,
    count(frame.executors, "executor"),
    count(frame.partitions.length, "partition"),
    `${short(frame.points)} points and ${short(frame.matches)} results in ${frame.seconds.toFixed(2)} s`,
  ];
  if (frame.unread !== null) facts.push(`${short(frame.unread)} rows to read`);
  if (frame.bad) facts.push(count(frame.bad, "bad row"));
  setText("facts", facts.join(" · "));
}

function showPlayer(index, frame) {
  const slider = byId("slider");
  const last = Math.max(0, history.frames.length - 1);
  slider.max = last;
  slider.value = Math.max(0, index);
  for (const id of ["slider", "first", "back", "forward", "play", "live"]) byId(id).disabled = !frame;
  setText("play", playing ? "pause" : "play");
  byId("live").setAttribute("aria-pressed", following);
  const first = frame && frame.count > 1 ? `batches to ${frame.batch}` : `batch ${frame?.batch}`;
  const text = frame ? `${first}, ${timeOf(frame.time)}` : "";
  setText("when", text);
  slider.setAttribute("aria-valuetext", text);
}

function showLegend(frame, by) {
  const strip = byId("scale");
  strip.hidden = by === "executor";
  let [low, high, text] = ["", "", "a colour and a number for each executor"];
  if (by !== "executor" && frame) {
    const scale = measure(frame, by);
    [low, high] = by === "busy" ? ["0", `${(1000 * scale.high).toFixed(0)} ms`] : [scale.low, scale.high].map((v) => v.toPrecision(2)).map(Number).map(short);
    text = "work of the partition's executor in this batch";
    if (by === "density") {
      text = frame.loads ? "points per cell, logarithmic" : "points per cell, mean of the executor's cells, logarithmic";
    }
    const context = sized(strip, 140, 12);
    for (let x = 0; x < 140; x++) {
      context.fillStyle = scaleColour(x / 139);
      context.fillRect(x, 0, 1, 12);
    }
  }
  if (frame?.partitions.some((p) => p.owners.length > 1)) text += "; ○ shared by several executors";
  if (byId("moves").checked) text += "; red: just moved";
  if (fences.density && byId("objects").checked) text += "; violet: objects";
  if (fences.total || fences.density) text += "; click for the details of a fence and an object";
  if (fences.total > fences.list.length) {
    text += `; the largest ${short(fences.list.length)} of ${short(fences.total)} fences`;
  }
  if (byId("loans").checked && frame?.loans.length) text += "; arrows: points lent to a partition's executor";
  setText("legend-low", low);
  setText("legend-high", high);
  setText("legend-text", text);
}

function showExecutors(frame) {
  const rows = byId("rows");
  while (rows.children.length > frame.executors) rows.lastChild.remove();
  while (rows.children.length < frame.executors) rows.append(executorRow(rows.children.length));
  const most = Math.max(...frame.busy, 1e-9);
  const areas = areasOf(frame);
  [...rows.children].forEach((row, m) => {
    const [, bar, busy, points, cells] = row.children;
    bar.firstChild.style.width = `${((100 * (frame.busy[m] ?? 0)) / most).toFixed(1)}%`;
    busy.textContent = (1000 * (frame.busy[m] ?? 0)).toFixed(0);
    points.textContent = short(frame.received[m] ?? 0);
    cells.textContent = short(Math.round(areas[m]));
  });
}

function executorRow(executor) {
  const row = document.createElement("tr");
  const name = row.appendChild(document.createElement("td"));
  const swatch = name.appendChild(document.createElement("span"));
  swatch.className = "swatch";
  swatch.style.background = executorColour(executor);
  name.append(String(executor));
  const bar = row.appendChild(document.createElement("td"));
  bar.className = "wide";
  bar.appendChild(document.createElement("div")).className = "bar";
  for (let i = 0; i < 3; i++) row.append(document.createElement("td"));
  return row;
}

function showLog(frame, moves) {
  const listed = moves.slice(0, MAX_MOVES).map((move) => `p${move.partition.id} ${arrow(move)}`);
  if (moves.length > listed.length) listed.push(`${moves.length - listed.length} more`);
  const loans = frame.loans.slice(0, MAX_MOVES).map(([lender, borrower, partition, points]) => `${lender} → ${borrower}: ${short(points)} of p${partition}`);
  if (frame.loans.length > loans.length) loans.push(`${frame.loans.length - loans.length} more`);
  const share = frame.points ? ((100 * frame.lent) / frame.points).toFixed(1) : 0;
  setText("lent", loans.length ? `Lent in batch ${frame.batch}, ${share}% of the points, by executors above the mean: ${loans.join(", ")}` : "Nothing lent in this batch.");
  const hosts = frame.hosts.map((host) => `${host.host} ${host.at_home} of ${host.tasks} tasks at home, ${short(host.mapped_bytes)} bytes mapped, ${short(host.fetched_bytes)} fetched`);
  setText("hosts", hosts.length ? `Hosts in batch ${frame.batch}: ${hosts.join("; ")}` : "");
  setText("moved", listed.length ? `Moved before batch ${frame.batch}: ${listed.join(", ")}` : "Nothing moved before this batch.");
  byId("moved").classList.toggle("some", listed.length > 0);
  const wanted = byId("requests").checked ? () => true : ({ kind }) => kind !== "ask";
  const lines = history.decisionsUpTo(frame.batch, wanted, MAX_DECISIONS);
  // Unchanged lines stay in place: someone may be selecting text.
  if (lines.length === logged.length && lines.every((line, i) => line === logged[i])) return;
  logged = lines;
  byId("decisions").replaceChildren(...lines.map(decisionLine));
}

function decisionLine({ round, what, reason }) {
  const line = document.createElement("li");
  for (const [name, text] of [["round", `round ${round}`], ["what", what], ["reason", reason]]) {
    const part = line.appendChild(document.createElement("span"));
    part.className = name;
    part.textContent = text;
  }
  return line;
}

function showPicked(frame) {
  const partition = frame.partitions.find((p) => p.id === picked);
  if (!partition) {
    setText("picked", "Point at a partition, or focus the map and press the arrow keys.");
    return;
  }
  const [c1, r1, c2, r2] = partition.cells;
  const { bounds, grid } = history.run;
  const x = (column) => bounds[0] + ((bounds[2] - bounds[0]) * column) / grid[0];
  const y = (row) => bounds[1] + ((bounds[3] - bounds[1]) * row) / grid[1];
  const [onX, onY] = drawing.isDegrees() ? [(v) => degree(v, "E", "W"), (v) => degree(v, "N", "S")] : [short, short];
  const tickets = partition.tickets?.join(", ");
  const who = tickets ? `executors ${partition.owners.join(", ")} with ${tickets} tickets` : `executor ${partition.owners[0]}`;
  const cells = `${c2 - c1} × ${r2 - r1} cells`;
  setText("picked", `p${partition.id}: ${who}; ${cells}, ${onX(x(c1))} to ${onX(x(c2))}, ${onY(y(r1))} to ${onY(y(r2))}`);
}

// Sets a text only if it differs, so that screen readers announce changes only.
function setText(id, text) {
  const element = byId(id);
  if (element.textContent !== text) element.textContent = text;
}

function count(number, what) {
  return `${short(number)} ${what}${number === 1 ? "" : "s"}`;
}

function duration(seconds) {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} minutes`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} hours` : `${Math.round(seconds / 86400)} days`;
}

// -- controls -------------------------------------------------------------------------------

// The URL keeps what is shown: a link or a reload shows the same. What is usual is left out.
function keepView() {
  const view = new URLSearchParams();
  for (const id of CONTROLS) {
    const control = byId(id);
    if (control.type === "checkbox") {
      if (control.checked !== control.defaultChecked) view.set(id, Number(control.checked));
    } else if (control.selectedIndex > 0) view.set(id, control.value);
  }
  if (!following && shownBatch !== null) view.set("batch", shownBatch);
  const hash = view.size ? `#${view}` : "";
  if (hash !== location.hash) window.history.replaceState(null, "", hash || location.pathname);
}

function readView() {
  const view = new URLSearchParams(location.hash.slice(1));
  for (const id of CONTROLS) {
    const control = byId(id);
    const value = view.get(id);
    if (control.type === "checkbox") control.checked = value === null ? control.defaultChecked : value === "1";
    else control.selectedIndex = Math.max(0, [...control.options].findIndex((option) => option.value === value));
  }
  const batch = view.get("batch");
  following = !/^-?\d+$/.test(batch ?? "");
  if (!following) shownBatch = Number(batch);
}

readView();
window.addEventListener("hashchange", () => {
  stop();
  readView();
  show();
});
for (const id of CONTROLS) byId(id).addEventListener("change", show);
const step = (wanted) => () => {
  stop();
  goTo(wanted());
};
byId("slider").addEventListener("input", step(() => Number(byId("slider").value)));
byId("first").addEventListener("click", step(() => 0));
byId("back").addEventListener("click", step(() => shownIndex() - 1));
byId("forward").addEventListener("click", step(() => shownIndex() + 1));
byId("play").addEventListener("click", play);
byId("live").addEventListener("click", follow);

byId("canvas").addEventListener("pointermove", (event) => {
  const frame = history.frames[shownIndex()];
  if (frame) pick(drawing.at(frame, event.offsetX, event.offsetY)?.id ?? null);
});
byId("canvas").addEventListener("pointerleave", () => pick(null));
byId("canvas").addEventListener("keydown", (event) => {
  const direction = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  const ids = history.frames[shownIndex()]?.partitions.map((p) => p.id);
  if (!direction || !ids) return;
  event.preventDefault();
  const place = ids.indexOf(picked);
  pick(ids[place < 0 ? 0 : (place + direction + ids.length) % ids.length]);
});

byId("canvas").addEventListener("click", async (event) => {
  if (!history.run || !(fences.total || fences.density)) return;
  const [x, y] = drawing.placeOf(event.offsetX, event.offsetY);
  const fence = byId("fences").checked ? fences.at(x, y, drawing.turns()) : undefined;
  pickedFence = fence?.id ?? null;
  show();
  const parts = [];
  if (fence) {
    parts.push(`fence ${fence.id}`);
    if (fence.inside !== null) parts.push(`${count(fence.inside, "object")} inside`);
    if (fence.properties) parts.push(described(fence.properties));
  }
  const object = fences.density ? await nearestObject(x, y).catch(() => null) : null;
  if (object) {
    const stays = Object.entries(object.fences).map(([id, since]) => `${id} since ${since}`);
    parts.push(`nearest object ${object.object} at ${short(object.x)}, ${short(object.y)}, ${object.time}`);
    parts.push(stays.length ? `in ${stays.join(", ")}` : "in no fence");
  }
  byId("details").hidden = !parts.length;
  setText("details", parts.join("; "));
});

function pick(id) {
  if (id === picked) return;
  picked = id;
  show();
}

new ResizeObserver(show).observe(byId("map"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);

fetch("land.json")
  .then((response) => response.json())
  .then((land) => {
    drawing.land = landOf(land);
    show();
  })
  .catch(() => {}); // the map works without land
poll();
