"use strict";
// The page: what is shown, and what is clicked. `graph.js` (a worker) knows the order of events, `paint.js` draws
// them, `panel.js` says what there is to say, `save.js` exports. All but the worker are one script.

const byId = id => document.getElementById(id);
const stage = byId("stage"), canvas = byId("canvas"), overview = byId("overview"), panel = byId("panel");
const STRIP = 40, GUTTER = 148, SHOWN_MAX = 300;

let head = JSON.parse(byId("head").textContent);
let worker, painted = null, asked = 0, waiting = new Map();

const view = {
  graph: null, x: null, x0: 0, x1: 1, axisName: "logical", axis: null, axes: {}, rows: [], rowOf: null,
  rowHeight: 30, scroll: 0, selected: -1, second: -1, cones: null, path: null, order: "", finding: -1, step: 0, findings: [],
  bookmarks: [], hits: null, hit: -1, mask: null, packets: false, hover: -1, moving: false, colour: {}, font: "system-ui, sans-serif", sharp: 1,
  tab: "findings", query: "", filter: false, hidden: new Set(), sequence: [], open: new Set(), stuck: null, short, tick, limits,
};
const stats = { openMs: 0, inflateMs: 0, buildMs: 0, frames: [], clickMs: [] };

// The worker ---------------------------------------------------------------------------------------------------

function start() {
  worker = new Worker(URL.createObjectURL(new Blob([byId("graph").textContent], { type: "text/javascript" })));
  worker.onmessage = ({ data: { id, answer, problem } }) => {
    const { resolve, reject } = waiting.get(id);
    waiting.delete(id);
    if (problem) reject(new Error(problem)); else resolve(answer);
  };
}

function ask(what, given = {}) {
  return new Promise((resolve, reject) => {
    waiting.set(++asked, { resolve, reject });
    worker.postMessage({ id: asked, what, ...given });
  });
}

// Axes and rows ------------------------------------------------------------------------------------------------

async function useAxis(name, keep = false) {
  if (name !== "logical" && head.timeBase === null) name = "logical";
  const key = name === "logical" && view.packets && view.graph.packets ? "packets" : name;
  if (!view.axes[key]) {
    const x = key === "logical" ? view.graph.x : key === "raw" ? view.graph.time : await ask(key === "packets" ? "logical" : "corrected", { packets: true });
    view.axes[key] = monotone(x);
  }
  const middle = keep && view.selected >= 0 ? view.selected : -1;
  const share = (view.x1 - view.x0) / ((view.axis && view.axis.span) || 1);
  view.axisName = name;
  const same = view.axis === view.axes[key];
  view.axis = view.axes[key];
  view.x = view.axis.x;
  for (const button of document.querySelectorAll("[data-axis]")) {
    button.setAttribute("aria-pressed", String(button.dataset.axis === name));
    button.disabled = button.dataset.axis !== "logical" && head.timeBase === null;
  }
  if (!keep) fit();
  else if (!same) {
    const width = Math.max(share * view.axis.span, 1e-6);
    const centre = middle >= 0 ? view.x[middle] : view.axis.low + view.axis.span / 2;
    show(centre - width / 2, centre + width / 2);
  }
  drawOverview();
}

function monotone(x) {
  const { starts } = view.graph;
  let up = x, down = x, low = Infinity, high = -Infinity, sorted = true;
  for (let l = 0; l + 1 < starts.length; l++) {
    for (let e = starts[l]; e < starts[l + 1]; e++) {
      if (x[e] < low) low = x[e];
      if (x[e] > high) high = x[e];
      if (e > starts[l] && x[e] < x[e - 1]) sorted = false;
    }
  }
  if (!sorted) {
    up = x.slice(); down = x.slice();
    for (let l = 0; l + 1 < starts.length; l++) {
      for (let e = starts[l] + 1; e < starts[l + 1]; e++) up[e] = Math.max(up[e], up[e - 1]);
      for (let e = starts[l + 1] - 2; e >= starts[l]; e--) down[e] = Math.min(down[e], down[e + 1]);
    }
  }
  if (low > high) { low = 0; high = 1; }
  return { x, up, down, low, high, span: Math.max(high - low, 1) };
}

function arrange() {
  // Rows in their order: a process, folded, or one row per lane of it.
  const lanesOf = head.procs.map(() => []);
  head.laneProc.forEach((proc, lane) => lanesOf[proc].push(lane));
  view.rows = [];
  for (const proc of view.sequence) {
    if (view.hidden.has(proc)) continue;
    const lanes = lanesOf[proc];
    if (view.open.has(proc) && lanes.length > 1) lanes.forEach((lane, at) => view.rows.push({ proc, lanes: [lane], name: at || head.lanes[lane] === head.procs[proc] ? head.lanes[lane] : `${head.procs[proc]} · ${head.lanes[lane]}`, inner: at > 0, first: at === 0 }));
    else view.rows.push({ proc, lanes, name: head.procs[proc], many: lanes.length > 1 });
  }
  view.rowOf = new Int32Array(head.lanes.length).fill(-1);
  view.rows.forEach((row, at) => row.lanes.forEach(lane => { view.rowOf[lane] = at; }));
  limitScroll();
  drawLabels();
}

function limitScroll() {
  const room = stage.clientHeight - STRIP - TOP;
  view.scroll = Math.max(0, Math.min(view.scroll, view.rows.length * view.rowHeight - room));
}

function drawLabels() {
  const box = byId("labels"), height = stage.clientHeight - STRIP;
  box.replaceChildren();
  view.rows.forEach((row, at) => {
    const top = TOP + at * view.rowHeight - view.scroll;
    if (top < TOP - view.rowHeight / 2 || top > height) return;
    const label = make("div", { tabIndex: 0, role: "group", "aria-label": `Row ${row.name}. Alt and up or down moves it, Delete hides it.`, className: "label" + (view.rowHeight < 13 ? " small" : "") + (row.inner ? " inner" : ""), title: row.name });
    label.style.top = top + "px"; label.style.height = view.rowHeight + "px"; label.dataset.row = at;
    const tail = row.inner && row.name.length > 18 ? "…" + row.name.slice(-14) : row.name;
    label.append(make("span", { className: "name" }, tail));
    if (row.many || row.first) {
      label.append(make("button", { type: "button", title: row.many ? "Unfold" : "Fold", "aria-label": `${row.many ? "Unfold" : "Fold"} ${head.procs[row.proc]}`, onclick: () => toggle(view.open, row.proc) }, row.many ? "▸" : "▾"));
    }
    if (view.rowHeight >= 13) label.append(make("button", { type: "button", className: "hide", title: "Hide", "aria-label": `Hide ${row.name}`, onclick: () => toggle(view.hidden, row.proc) }, "×"));
    box.append(label);
  });
  byId("hidden-rows").hidden = !view.hidden.size;
  byId("hidden-rows").replaceChildren(make("button", { type: "button", onclick: () => { view.hidden.clear(); arrange(); fitRows(); changed(true); } }, `${plural(view.hidden.size, "row")} hidden`));
}

function toggle(set, value) {
  if (!set.delete(value)) set.add(value);
  changed(true);
}

byId("labels").addEventListener("keydown", event => {
  const at = event.target.classList.contains("label") ? +event.target.dataset.row : -1;
  if (at < 0) return;
  const by = { ArrowUp: -1, ArrowDown: 1 }[event.key];
  if (event.altKey && by && view.rows[at + by]) {
    const { proc } = view.rows[at], to = view.sequence.indexOf(view.rows[at + by].proc);
    view.sequence = view.sequence.filter(each => each !== proc);
    view.sequence.splice(to, 0, proc);
    event.preventDefault();
    changed(true);
    byId("labels").querySelector(`[data-row="${view.rows.findIndex(row => row.proc === proc)}"]`)?.focus();
  } else if (event.key === "Delete") toggle(view.hidden, view.rows[at].proc);
});

byId("labels").addEventListener("pointerdown", event => {
  const label = event.target.closest(".label");
  if (!label || event.target.closest("button")) return;
  const from = view.rows[+label.dataset.row].proc;
  let to = from;
  label.classList.add("moving");
  const move = moved => {
    const at = Math.floor((moved.clientY - stage.getBoundingClientRect().top - TOP + view.scroll) / view.rowHeight);
    const row = view.rows[Math.max(0, Math.min(view.rows.length - 1, at))];
    to = row.proc;
    for (const each of byId("labels").children) each.classList.toggle("drop-before", view.rows[+each.dataset.row] === row && to !== from);
  };
  const end = () => {
    removeEventListener("pointermove", move);
    label.classList.remove("moving");
    if (to !== from) {
      const down = view.sequence.indexOf(to) > view.sequence.indexOf(from);
      view.sequence = view.sequence.filter(proc => proc !== from);
      view.sequence.splice(view.sequence.indexOf(to) + (down ? 1 : 0), 0, from);
      changed(true);
    }
  };
  addEventListener("pointermove", move);
  addEventListener("pointerup", end, { once: true });
});

// What is in sight ---------------------------------------------------------------------------------------------

function show(x0, x1) {
  const least = view.axisName === "logical" ? 2 : 1e-3, most = view.axis.span * 1.2;
  let width = Math.min(most, Math.max(least, x1 - x0));
  const centre = Math.min(view.axis.high + width * 0.45, Math.max(view.axis.low - width * 0.45, (x0 + x1) / 2));
  view.x0 = centre - width / 2; view.x1 = centre + width / 2;
  move();
  changed();
}

let restTimer = 0;
function move() {
  // A quick picture now, the whole one when nothing has moved for a moment.
  view.moving = true;
  clearTimeout(restTimer);
  restTimer = setTimeout(() => { view.moving = false; changed(); }, 120);
}

function fit() {
  const pad = Math.max(view.axis.span * 0.03, 0.6);
  show(view.axis.low - pad, view.axis.high + pad);
}

function zoom(factor, at = (view.x0 + view.x1) / 2) {
  show(at - (at - view.x0) * factor, at + (view.x1 - at) * factor);
}

function pan(share) { const by = (view.x1 - view.x0) * share; show(view.x0 + by, view.x1 + by); }

function reveal(events, tight = false) {
  // Bring events into view: shift if they fit, zoom if they do not.
  const there = events.filter(e => e >= 0);
  if (!there.length) return;
  for (const e of there) if (view.hidden.delete(procOf(e))) arrange();
  const xs = there.map(e => view.x[e]), low = Math.min(...xs), high = Math.max(...xs);
  const width = view.x1 - view.x0, need = Math.max((high - low) * 1.5, view.axisName === "logical" ? 8 : 1e-3);
  if (tight ? need < width * 0.25 || need > width : high - low > width * 0.9) show((low + high) / 2 - need / 2, (low + high) / 2 + need / 2);
  else if (low < view.x0 + width * 0.05 || high > view.x1 - width * 0.05) show((low + high - width) / 2, (low + high + width) / 2);
  const row = view.rowOf[view.graph.lane[there[there.length - 1]]], room = stage.clientHeight - STRIP - TOP;
  if (row * view.rowHeight < view.scroll || (row + 1) * view.rowHeight > view.scroll + room) view.scroll = (row + 0.5) * view.rowHeight - room / 2;
  changed(true);
}

let pending = 0;
function changed(rows = false) {
  if (rows) arrange();
  if (!pending) pending = requestAnimationFrame(() => { pending = 0; draw(); });
  remember();
}

function resize() {
  view.sharp = window.devicePixelRatio || 1;
  const width = Math.max(50, stage.clientWidth - GUTTER), height = Math.max(50, stage.clientHeight - STRIP);
  for (const [each, high] of [[canvas, height], [overview, STRIP]]) {
    each.style.width = width + "px"; each.style.height = high + "px";
    each.width = Math.round(width * view.sharp); each.height = Math.round(high * view.sharp);
    const c = canvasStrips(each.getContext("2d"));
    c.setTransform(view.sharp, 0, 0, view.sharp, 0, 0);
  }
  document.documentElement.classList.toggle("small", innerWidth < 1100);
  limitScroll();
  if (view.graph) { arrange(); drawOverview(); changed(); }
}

function draw() {
  const began = performance.now(), width = canvas.width / view.sharp, height = canvas.height / view.sharp;
  painted = paint(view, canvas.getContext("2d"), width, height);
  stats.frames.push(performance.now() - began);
  if (stats.frames.length > 600) stats.frames.shift();
  drawWindow();
  if (view.tab === "table") later(drawTable);
}

let tableTimer = 0;
function later(job) { clearTimeout(tableTimer); tableTimer = setTimeout(job, 120); }

let overviewImage = null;
function drawOverview() {
  const width = overview.width / view.sharp;
  const counts = new Uint32Array(Math.ceil(width)), per = (width - 1) / view.axis.span;
  for (let e = 0; e < view.graph.n; e++) counts[(view.x[e] - view.axis.low) * per | 0]++;
  overviewImage = { counts, most: counts.reduce((one, two) => Math.max(one, two), 1) };
  drawWindow();
}

function drawWindow() {
  // The whole run in small, and which part of it is in sight.
  if (!overviewImage) return;
  const c = overview.getContext("2d"), width = overview.width / view.sharp, { counts, most } = overviewImage;
  c.fillStyle = view.colour.page; c.fillRect(0, 0, width, STRIP);
  c.fillStyle = view.colour.faint;
  for (let px = 0; px < counts.length; px++) if (counts[px]) { const high = 3 + 25 * Math.log(1 + counts[px]) / Math.log(1 + most); c.fillRect(px, STRIP - 4 - high, 1, high); }
  const at = value => (value - view.axis.low) / view.axis.span * width;
  c.fillStyle = view.colour.find;
  for (const finding of view.findings) if (finding.wrong >= 0) c.fillRect(at(view.x[finding.wrong]) - 1, 3, 2, STRIP - 7);
  const left = Math.max(0, at(view.x0)), right = Math.min(width, at(view.x1));
  c.strokeStyle = view.colour.focus; c.lineWidth = 2;
  c.beginPath(); c.rect(left + 1, 2, Math.max(4, right - left - 2), STRIP - 4); c.stroke();
}

// Selecting ----------------------------------------------------------------------------------------------------

function nearest(px, py, reach = 14) {
  const at = Math.floor((py - TOP + view.scroll) / view.rowHeight), row = view.rows[at];
  if (!row || py < TOP || !painted) return -1;
  const wanted = view.x0 + px / painted.width * (view.x1 - view.x0);
  let best = -1, far = reach / painted.width * (view.x1 - view.x0);
  for (const lane of row.lanes) {
    const low = view.graph.starts[lane], high = view.graph.starts[lane + 1];
    const middle = bisect(view.axis.up, low, high, wanted);
    for (let e = Math.max(low, middle - 40); e < Math.min(high, middle + 40); e++) {
      if (view.mask && !view.mask[e]) continue;
      const away = Math.abs(view.x[e] - wanted);
      if (away <= far) { far = away; best = e; }
    }
  }
  return best;
}

async function select(event, second = false) {
  const began = performance.now();
  if (event < 0) { view.selected = view.second = -1; view.cones = view.path = null; }
  else if (second && view.selected >= 0 && event !== view.selected) {
    view.second = event;
    const relation = await ask("relation", { a: view.selected, b: event, packets: view.packets });
    view.order = relation.order; view.path = relation.path;
  } else {
    view.selected = event; view.second = -1; view.path = null;
    view.cones = await ask("cones", { event, packets: view.packets });
  }
  move();
  draw();
  stats.clickMs.push(performance.now() - began);
  if (event >= 0) { openTab("event"); say(describe(event)); } else if (view.tab === "event") openTab("event");
  remember();
}

function describe(event) {
  if (view.second >= 0) return sentence();
  const { past, future, other } = sizes();
  return `${long(event)}. ${past.toLocaleString("en")} events before it, ${future.toLocaleString("en")} after it, ${other.toLocaleString("en")} concurrent.`;
}

function sizes() {
  const { starts } = view.graph;
  let past = -1, future = -1;
  for (let l = 0; l + 1 < starts.length; l++) { past += view.cones.past[l] - starts[l]; future += starts[l + 1] - view.cones.future[l]; }
  return { past, future, other: view.graph.n - past - future - 1 };
}

function sentence() {
  const one = long(view.selected), two = long(view.second);
  if (view.order === "concurrent") return `${one} and ${two} are concurrent: neither can have known of the other.`;
  return view.order === "before" ? `${one} happened before ${two}.` : `${two} happened before ${one}.`;
}

function stepRow(by) {
  if (view.selected < 0) return;
  const lane = view.graph.lane[view.selected], rows = view.rows, at = view.rowOf[lane] + by;
  if (at < 0 || at >= rows.length) return;
  let best = -1;
  for (const other of rows[at].lanes) {
    const low = view.graph.starts[other], high = view.graph.starts[other + 1];
    if (low === high) continue;
    const e = Math.min(high - 1, bisect(view.axis.up, low, high, view.x[view.selected]));
    for (const each of [e - 1, e]) if (each >= low && (best < 0 || Math.abs(view.x[each] - view.x[view.selected]) < Math.abs(view.x[best] - view.x[view.selected]))) best = each;
  }
  if (best >= 0) { select(best); reveal([best]); }
}

function stepEvent(by) {
  if (view.selected < 0) return;
  const lane = view.graph.lane[view.selected], to = view.selected + by;
  if (to >= view.graph.starts[lane] && to < view.graph.starts[lane + 1]) { select(to); reveal([to]); }
}

// The address holds what is shown ------------------------------------------------------------------------------

const mark = event => `${view.graph.lane[event]}.${indexOf(event)}`;
function unmark(text) {
  const [lane, at] = text.split(".").map(Number), { starts } = view.graph;
  return lane >= 0 && lane + 1 < starts.length && at >= 0 && starts[lane] + at < starts[lane + 1] ? starts[lane] + at : -1;
}

let rememberTimer = 0;
function remember() { clearTimeout(rememberTimer); rememberTimer = setTimeout(() => { const to = address(); if (to !== location.hash) history.replaceState(null, "", to); }, 150); }

function address() {
  const parts = new URLSearchParams();
  parts.set("axis", view.axisName);
  parts.set("x", [view.x0, view.x1].map(each => +each.toPrecision(9)).join(","));
  if (view.selected >= 0) parts.set("sel", [view.selected, view.second].filter(each => each >= 0).map(mark).join(","));
  if (view.finding >= 0) parts.set("find", `${view.finding + 1}.${view.step + 1}`);
  if (view.query) parts.set("q", view.query);
  if (view.filter) parts.set("only", "1");
  if (view.packets) parts.set("packets", "1");
  if (view.hidden.size) parts.set("hide", [...view.hidden].join(","));
  if (head.lanes.length > head.procs.length) parts.set("open", [...view.open].join(","));
  if (view.sequence.some((proc, at) => proc !== at)) parts.set("rows", view.sequence.join(","));
  if (view.bookmarks.length) parts.set("marks", view.bookmarks.map(mark).join(","));
  parts.set("h", String(Math.round(view.rowHeight)));
  if (view.scroll) parts.set("y", String(Math.round(view.scroll)));
  parts.set("tab", view.tab);
  if (chosenTheme) parts.set("theme", chosenTheme);
  return "#" + parts.toString();
}

async function restore(hash) {
  const parts = new URLSearchParams(hash.slice(1)), numbers = name => (parts.get(name) || "").split(",").filter(Boolean).map(Number);
  view.selected = view.second = view.finding = view.hit = -1; view.cones = view.path = view.hits = null; view.query = "";
  const known = list => list.filter(proc => Number.isInteger(proc) && proc >= 0 && proc < head.procs.length);
  if (["dark", "light"].includes(parts.get("theme"))) useTheme(parts.get("theme"));
  view.hidden = new Set(known(numbers("hide")));
  if (parts.has("open")) view.open = new Set(known(numbers("open")));
  const rows = [...new Set(known(numbers("rows")))];
  view.sequence = [...rows, ...head.procs.map((_, at) => at).filter(at => !rows.includes(at))];
  view.bookmarks = (parts.get("marks") || "").split(",").filter(Boolean).map(unmark).filter(e => e >= 0);
  view.packets = parts.get("packets") === "1";
  view.filter = parts.get("only") === "1";
  byId("packets").checked = view.packets; byId("filter").checked = view.filter;
  applyFilter();
  if (numbers("h")[0] > 0) view.rowHeight = Math.min(120, Math.max(5, numbers("h")[0]));
  arrange();
  await useAxis(parts.get("axis") || "logical");
  if (parts.get("q")) await search(parts.get("q"), false);
  const [finding, step] = (parts.get("find") || "").split(".").map(Number);
  if (finding >= 1 && finding <= view.findings.length) openFinding(finding - 1, Math.max(0, (step || 1) - 1));
  const [one, two] = (parts.get("sel") || "").split(",").filter(Boolean).map(unmark);
  if (one >= 0) await select(one);
  if (two >= 0) await select(two, true);
  const [x0, x1] = numbers("x");
  if (x1 > x0) show(x0, x1);
  view.scroll = numbers("y")[0] || 0;
  openTab(["findings", "event", "matches", "table"].includes(parts.get("tab")) ? parts.get("tab") : view.tab);
  changed(true);
}

// Theme --------------------------------------------------------------------------------------------------------

let chosenTheme = "";
const prefersDark = matchMedia("(prefers-color-scheme: dark)");
function useTheme(name) {
  chosenTheme = name;
  document.documentElement.classList.toggle("dark", name ? name === "dark" : prefersDark.matches);
  view.colour = colours();
  if (view.graph) changed();
}
prefersDark.addEventListener("change", () => { if (!chosenTheme) useTheme(""); });

// Mouse and keys -----------------------------------------------------------------------------------------------

let clicks = 0;
canvas.addEventListener("pointerdown", event => {
  if (event.button !== 0 || !view.graph) return;
  const from = [event.clientX, event.clientY, view.x0, view.x1, view.scroll];
  let moved = false;
  canvas.setPointerCapture(event.pointerId);
  byId("hover").hidden = true;
  const move = now => {
    const dx = now.clientX - from[0], dy = now.clientY - from[1];
    if (!moved && Math.hypot(dx, dy) < 4) return;
    moved = true;
    const by = dx / painted.width * (from[3] - from[2]), scroll = view.scroll;
    view.scroll = from[4] - dy; limitScroll();
    show(from[2] - by, from[3] - by);
    if (scroll !== view.scroll) drawLabels();
  };
  const end = now => {
    canvas.removeEventListener("pointermove", move);
    canvas.removeEventListener("pointerup", end);
    if (moved) return;
    const found = nearest(now.offsetX, now.offsetY);
    // A first click selects, a second one compares, a third one begins anew.
    if (found < 0) { clicks = 0; select(-1); } else {
      const second = now.shiftKey || (clicks % 2 === 1 && view.selected >= 0 && view.second < 0);
      clicks = second ? 0 : 1;
      select(found, second);
    }
  };
  canvas.addEventListener("pointermove", move);
  canvas.addEventListener("pointerup", end);
});

canvas.addEventListener("pointermove", event => {
  if (event.buttons || !view.graph) return;
  const found = nearest(event.offsetX, event.offsetY), box = byId("hover");
  if (found !== view.hover) { view.hover = found; changed(); }
  box.hidden = found < 0;
  if (found >= 0) {
    box.textContent = long(found) + (view.graph.time ? `\n${absolute(view.graph.time[found])}` : "");
    const left = Math.min(GUTTER + event.offsetX + 14, stage.clientWidth - box.offsetWidth - 8);
    box.style.left = left + "px";
    box.style.top = (event.offsetY + 18 + box.offsetHeight > stage.clientHeight - STRIP ? event.offsetY - box.offsetHeight - 10 : event.offsetY + 18) + "px";
  }
});
canvas.addEventListener("pointerleave", () => { byId("hover").hidden = true; if (view.hover >= 0) { view.hover = -1; changed(); } });

stage.addEventListener("wheel", event => {
  if (!view.graph) return;
  event.preventDefault();
  const overLabels = event.clientX - stage.getBoundingClientRect().left < GUTTER, by = event.deltaMode ? event.deltaY * 16 : event.deltaY;
  if (overLabels) { view.scroll += by; limitScroll(); changed(true); }
  else if (event.altKey) thicker(by < 0 ? 1.15 : 1 / 1.15);
  else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(by)) pan((event.deltaX || by) / painted.width);
  else zoom(Math.exp(Math.max(-120, Math.min(120, by)) / 260), view.x0 + event.offsetX / painted.width * (view.x1 - view.x0));
}, { passive: false });

overview.addEventListener("pointerdown", event => {
  overview.setPointerCapture(event.pointerId);
  const move = now => {
    if (!(now.buttons & 1)) { overview.removeEventListener("pointermove", move); return; }
    const centre = view.axis.low + now.offsetX / (overview.width / view.sharp) * view.axis.span, half = (view.x1 - view.x0) / 2;
    show(centre - half, centre + half);
  };
  overview.addEventListener("pointermove", move);
  move(event);
});

function thicker(factor) {
  const room = stage.clientHeight - STRIP - TOP, centre = (view.scroll + room / 2) / view.rowHeight;
  view.rowHeight = Math.min(120, Math.max(5, view.rowHeight * factor));
  view.scroll = centre * view.rowHeight - room / 2;
  changed(true);
}

const KEYS = {
  h: () => pan(-0.2), l: () => pan(0.2), j: () => { view.scroll += view.rowHeight; changed(true); }, k: () => { view.scroll -= view.rowHeight; changed(true); },
  "+": () => zoom(1 / 1.4), "=": () => zoom(1 / 1.4), "-": () => zoom(1.4), 0: fit, "[": () => thicker(1 / 1.2), "]": () => thicker(1.2),
  n: () => nextStep(1), p: () => nextStep(-1), f: () => { if (view.findings.length) openFinding((view.finding + 1) % view.findings.length); },
  "/": () => { byId("query").focus(); byId("query").select(); }, "?": () => byId("keys").showModal(), t: () => flip(), b: () => { if (view.selected >= 0) bookmark(view.selected); },
  ArrowRight: () => stepEvent(1), ArrowLeft: () => stepEvent(-1), ArrowDown: () => stepRow(1), ArrowUp: () => stepRow(-1),
  Escape: () => { view.finding = -1; select(-1); if (view.hits) search(""); },
};
addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || !view.graph || byId("keys").open) return;
  if (event.target.closest("input")) { if (event.key === "Escape") { event.target.blur(); canvas.focus(); } return; }
  if (event.key.startsWith("Arrow") && event.target.closest("aside, header")) return;
  const run = KEYS[event.key];
  if (run) { event.preventDefault(); run(); }
});
const flip = () => { useTheme(document.documentElement.classList.contains("dark") ? "light" : "dark"); remember(); };

byId("search").addEventListener("submit", event => {
  event.preventDefault();
  canvas.focus();      // so that n and p step through what is found
  const text = byId("query").value;
  if (text === view.query && view.hits && view.hits.found.length) nextHit(1); else search(text);
});
byId("query").addEventListener("search", () => { if (!byId("query").value && view.query) search(""); });
byId("filter").addEventListener("change", event => { view.filter = event.target.checked; applyFilter(); changed(); });
byId("packets").addEventListener("change", event => { view.packets = event.target.checked; applyFilter(); drawLegend(); useAxis(view.axisName, true).then(() => (view.selected >= 0 ? select(view.selected) : changed())); });
byId("theme").addEventListener("click", flip);
byId("help").addEventListener("click", () => byId("keys").showModal());
byId("export").addEventListener("click", () => openMenu(byId("export-menu").hidden));
byId("export-menu").addEventListener("click", event => { const what = event.target.dataset.export; if (what) { openMenu(false); save(what); } });
function openMenu(open) { if (open) requestAnimationFrame(() => byId("export-menu").firstElementChild.focus()); byId("export-menu").hidden = !open; byId("export").setAttribute("aria-expanded", String(open)); }
addEventListener("pointerdown", event => { if (!event.target.closest(".menu")) openMenu(false); });
for (const button of document.querySelectorAll("[data-axis]")) button.addEventListener("click", () => useAxis(button.dataset.axis, true).then(() => changed()));
for (const button of document.querySelectorAll("[data-tab]")) button.addEventListener("click", () => openTab(button.dataset.tab));
document.querySelector(".tabs").addEventListener("keydown", event => {
  const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key], all = [...document.querySelectorAll("[data-tab]")];
  if (!by) return;
  const next = all[(all.indexOf(event.target) + by + all.length) % all.length];
  next.focus();
  openTab(next.dataset.tab);
});
byId("export-menu").addEventListener("keydown", event => { if (event.key === "Escape") { event.stopPropagation(); openMenu(false); byId("export").focus(); } });
addEventListener("resize", resize);
addEventListener("hashchange", () => { if (location.hash !== address()) restore(location.hash); });

// Opening ------------------------------------------------------------------------------------------------------

async function load(data) {
  view.graph = await ask("open", { head, data });
  const { graph } = view, used = new Set(graph.kind);
  graph.kindsUsed = [...used].sort((one, two) => one - two);
  graph.receives = graph.kindsUsed.some(at => head.kinds[at][1] === "receive");
  graph.packets = graph.kindsUsed.some(at => graph.packetKind[at]);
  stats.inflateMs = graph.inflateMs; stats.buildMs = graph.buildMs;
  firsts = [0];
  for (const size of head.numbered) firsts.push(firsts[firsts.length - 1] + size);
  sharedPrefix = prefixOf(head.details);
  view.findings = head.findings; view.axes = {}; view.axis = null; view.stuck = null;
  view.names = new Map();
  for (const finding of head.findings) if (finding.message) view.names.set(finding.message, undefined);
  if (view.names.size) for (let m = 0; m < graph.number.length; m++) { const name = nameOf(m); if (view.names.has(name)) view.names.set(name, m); }
  byId("packets-box").hidden = !graph.packets;
  byId("title").textContent = head.title; byId("title").title = head.title;
  byId("verdict").textContent = byId("verdict").title = head.verdict;
  byId("verdict").className = "badge " + head.tone;
  document.querySelector("[data-tab=findings]").textContent = `Findings${head.findings.length ? ` (${head.findings.length})` : ""}`;
}

async function main() {
  useTheme("");
  view.font = getComputedStyle(document.body).fontFamily;
  start();
  resize();
  await load(byId("data").textContent);
  byId("data").remove();
  if (head.lanes.length <= 40) head.procs.forEach((_, proc) => view.open.add(proc));
  view.sequence = head.procs.map((_, at) => at);
  arrange();
  fitRows();
  await restore(location.hash || (head.focus ? `#find=${head.focus}.1` : ""));
  drawLegend();
  byId("busy").hidden = true;
  draw();
  await new Promise(resolve => requestAnimationFrame(() => setTimeout(resolve)));
  stats.openMs = performance.now();
  if (head.live) follow();
}

async function follow() {
  // From a running node: ask for what is new, and keep what is shown.
  byId("live").hidden = false;
  for (;;) {
    await new Promise(resolve => setTimeout(resolve, 1000));
    try {
      const got = await fetch(`data?since=${encodeURIComponent(head.live)}`);
      if (got.status === 204) { liveBadge("live"); continue; }
      const fresh = await got.json(), atEnd = view.x1 >= view.axis.high, width = view.x1 - view.x0, whole = width >= view.axis.span;
      const keep = [view.selected, view.second, ...view.bookmarks].map(e => (e < 0 ? "" : mark(e)));
      const name = view.axisName, [low, high] = [view.x0, view.x1];
      head = fresh.head;
      await load(fresh.data);
      [view.selected, view.second] = keep.slice(0, 2).map(text => (text ? unmark(text) : -1));
      view.bookmarks = keep.slice(2).map(unmark).filter(e => e >= 0);
      view.sequence = [...view.sequence.filter(at => at < head.procs.length), ...head.procs.map((_, at) => at).filter(at => !view.sequence.includes(at))];
      view.cones = view.path = null; view.hits = null;
      applyFilter(); arrange();
      await useAxis(name);
      if (!whole) { if (atEnd) show(view.axis.high + width * 0.03 - width, view.axis.high + width * 0.03); else show(low, high); }
      if (view.selected >= 0) view.cones = await ask("cones", { event: view.selected, packets: view.packets });
      if (view.query) await search(view.query, false);
      drawLegend(); openTab(view.tab); changed(true);
      liveBadge("live");
    } catch (problem) { liveBadge("not connected"); }
  }
}
function liveBadge(text) { byId("live").textContent = text; byId("live").className = "badge " + (text === "live" ? "good" : "warn"); }

// For tests and for measuring: what the page knows of itself.
window.whence = {
  view, stats, exported, address, select,
  ready: main().catch(problem => { byId("busy").textContent = `This page cannot be shown: ${problem.message}`; byId("busy").hidden = false; throw problem; }),
  place(event) { const box = canvas.getBoundingClientRect(); return [box.left + placeX(view, painted, event), box.top + placeY(view, event)]; },
  event: unmark, long, level: () => painted.level, arrows: () => painted.arrows,
  async measurePan(frames = 60, share = 0.01) {
    const times = [];
    let last = 0, way = 1;
    for (let at = 0; at < frames; at++) {
      if (view.x1 > view.axis.high || view.x0 < view.axis.low) way = view.x1 > view.axis.high ? -1 : 1;
      pan(share * way);
      const now = await new Promise(resolve => requestAnimationFrame(resolve));
      if (last) times.push(now - last);
      last = now;
    }
    times.sort((one, two) => one - two);
    const total = times.reduce((sum, each) => sum + each, 0);
    return { fps: 1000 * times.length / total, medianMs: times[times.length >> 1], worstMs: times[times.length - 1], level: painted.level };
  },
};
