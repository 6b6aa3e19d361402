"use strict";
// The page: what is shown, what is clicked, what is said about it. `graph.js` (a worker) knows the order of
// events, `paint.js` draws them.

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

// Words --------------------------------------------------------------------------------------------------------

const procOf = event => head.laneProc[view.graph.lane[event]];
const indexOf = event => event - view.graph.starts[view.graph.lane[event]];
const roleOf = event => head.kinds[view.graph.kind[event]][1];
const kindOf = event => head.kinds[view.graph.kind[event]][0];

function nameOf(msg) {
  if (msg < 0) return "";
  let low = 0, high = firsts.length - 1;
  while (low + 1 < high) { const middle = (low + high) >> 1; if (firsts[middle] <= msg) low = middle; else high = middle; }
  const number = view.graph.number[msg];
  return head.prefixes[low] + (number < 0 ? "" : number);
}
let firsts = [0];

function short(event) {
  const msg = nameOf(view.graph.msg[event]), detail = view.graph.detail[event];
  return msg || (detail >= 0 ? head.details[detail].slice(sharedPrefix, sharedPrefix + 24) : kindOf(event));
}

let sharedPrefix = 0;
function prefixOf(texts) {
  // What all texts begin with (a level, a date) tells nothing on the diagram.
  if (texts.length < 3) return 0;
  let size = texts[0].length;
  for (const text of texts) { while (!text.startsWith(texts[0].slice(0, size))) size--; }
  const word = texts[0].slice(0, size).lastIndexOf(" ") + 1;
  return word >= 6 && texts.every(text => text.length > word) ? word : 0;
}

function long(event) {
  const words = [head.lanes[view.graph.lane[event]], kindOf(event), nameOf(view.graph.msg[event])];
  const detail = view.graph.detail[event];
  if (detail >= 0) words.push((roleOf(event) === "send" ? "to " : roleOf(event) === "receive" ? "from " : "") + head.details[detail]);
  return words.filter(Boolean).join(" ");
}

function span(units, digits = 3) {
  const ns = units * head.unitNs, size = Math.abs(ns);
  if (size === 0) return "0";
  const [over, unit] = size < 1e3 ? [1, "ns"] : size < 1e6 ? [1e3, "µs"] : size < 1e9 ? [1e6, "ms"] : [1e9, "s"];
  return `${+(ns / over).toPrecision(Math.max(digits, Math.ceil(Math.log10(size / over + 1))))} ${unit}`;
}

function tick(value, step) {
  if (view.axisName === "logical") return (value || 0).toLocaleString("en");
  // One unit for the whole axis, and as many digits as tell neighbours apart.
  const far = Math.max(Math.abs(view.x0), Math.abs(view.x1)) * head.unitNs;
  const [over, unit] = far < 1e4 ? [1, "ns"] : far < 1e7 ? [1e3, "µs"] : far < 1e10 ? [1e6, "ms"] : [1e9, "s"];
  const digits = Math.max(0, Math.min(9, Math.ceil(-Math.log10(step * head.unitNs / over) - 1e-9)));
  return `${(value * head.unitNs / over || 0).toFixed(digits)} ${unit}`;
}

function absolute(units) {
  // A time of day where times count from 1970, otherwise just the count.
  const ns = (BigInt(head.timeBase) + BigInt(Math.round(units))) * BigInt(head.unitNs);
  if (ns < 10n ** 17n) return span(Number(ns) / head.unitNs, 6);
  return new Date(Number(ns / 1000000n)).toISOString().replace("T", " ").replace(/\.\d+Z/, "") + "." + String(ns % 1000000000n).padStart(9, "0");
}

function limits(event) {
  const found = head.corrections[procOf(event)];
  if (!found) return null;
  const [reading, , low, high] = found, at = view.graph.time[event] + Number(head.timeBase);
  let k = reading.findIndex(each => each >= at);
  if (k < 0) k = reading.length - 1;
  const time = view.graph.time[event];
  return [low[k] === null ? null : time + low[k], high[k] === null ? null : time + high[k]];
}

// Elements without markup in texts.
function make(tag, given = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name in made && name !== "role") made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children.filter(child => child !== null && child !== undefined));
  return made;
}

const say = text => { byId("say").textContent = text; };
const plural = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;

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

// Findings -----------------------------------------------------------------------------------------------------

function openFinding(at, step = 0) {
  view.finding = at; view.step = step; view.selected = view.second = -1; view.cones = view.path = null;
  if (at >= 0) { reveal(view.findings[at].steps.map(each => each.event), true); say(`${view.findings[at].kind}: ${view.findings[at].detail}`); }
  openTab("findings");
  changed();
}

function nextStep(by) {
  if (view.tab === "matches" && view.hits && view.hits.found.length) { nextHit(by); return; }
  const finding = view.findings[view.finding];
  if (!finding) { if (view.findings.length) openFinding(0); return; }
  const steps = finding.steps.length;
  view.step = (view.step + by + steps) % steps;
  reveal([finding.steps[view.step].event]);
  say(finding.steps[view.step].text);
  openTab("findings");
  changed();
}

async function tellWhy(msg, proc, into) {
  const { began, received, missing, total, begin } = await ask("why", { msg, proc });
  const name = nameOf(msg), where = head.procs[proc];
  const told = make("div", { className: "why" }, make("h2", {}, `Why ${name} waits at ${where}`));
  if (!began) told.append(make("p", {}, `Nobody is seen to have begun ${name}.`));
  else if (!total) {
    const came = received ? "It did come there, and everything in its past was delivered there: nothing that is logged holds it back." : view.graph.receives ? "It never came there. Everything in its past was delivered there." : "Everything in its past was delivered there; the log does not say whether it came.";
    told.append(make("p", {}, came), jump(begin, `where it began: ${long(begin)}`));
  } else {
    told.append(make("p", {}, `${plural(total, "message")} in its past ${total === 1 ? "was" : "were"} not delivered there. The earliest:`));
    for (const each of missing) {
      const can = each.holders.map(at => head.procs[at]).filter(holder => holder !== where);
      const came = each.received ? "came there, and waits itself" : view.graph.receives ? "never came there" : "not delivered there";
      told.append(jump(each.begin, nameOf(each.msg), `${came}; held by ${can.slice(0, 8).join(", ") || "nobody else"}${can.length > 8 ? ` and ${can.length - 8} more` : ""}`));
    }
  }
  into.querySelector(".why")?.remove();
  into.append(told);
}

const jump = (event, text, small) => make("button", { type: "button", className: "item", onclick: () => { select(event); reveal([event]); } }, text, small ? make("small", {}, small) : null);

// Search -------------------------------------------------------------------------------------------------------

function readQuery(text) {
  // kind: proc: msg: text: narrow down; a plain word may be any of them. /re/ is a pattern, otherwise a part of the text
  // (of a message: its whole name, or a part that ends in *).
  const asked = {}, test = (wanted, whole) => {
    const re = /^\/(.*)\/(i?)$/.exec(wanted);
    if (re) { const made = new RegExp(re[1], re[2]); return value => made.test(value); }
    const small = wanted.toLowerCase();
    if (whole && !wanted.endsWith("*")) return value => value.toLowerCase() === small;
    const part = small.replace(/\*$/, "");
    return value => value.toLowerCase().includes(part);
  };
  const names = () => Array.from({ length: view.graph.number.length }, (_, at) => nameOf(at));
  const flags = (values, check) => Uint8Array.from(values, value => (check(value) ? 1 : 0));
  for (const [, field, quoted, plain] of text.matchAll(/(?:(kind|proc|msg|text):)?(?:"([^"]*)"|(\S+))/g)) {
    const wanted = quoted ?? plain;
    if (field === "kind") asked.kinds = flags(head.kinds.map(([name]) => name), test(wanted, true));
    else if (field === "proc") asked.procs = flags(head.procs, test(wanted, true));
    else if (field === "msg") asked.msgs = flags(names(), test(wanted, true));
    else if (field === "text") asked.texts = flags(head.details, test(wanted));
    else (asked.words ||= []).push({ kinds: flags(head.kinds.map(([name]) => name), test(wanted, true)), procs: flags(head.procs, test(wanted, true)), msgs: flags(names(), test(wanted, true)), texts: flags(head.details, test(wanted)) });
  }
  return asked;
}

async function search(text, first = true) {
  view.query = text; view.hit = -1;
  byId("query").value = text;
  byId("query").classList.remove("wrong");
  if (!text.trim()) { view.hits = null; applyFilter(); openTab(view.tab === "matches" ? "findings" : view.tab); changed(); return; }
  let wanted;
  try { wanted = readQuery(text); } catch { byId("query").classList.add("wrong"); say("This is no pattern."); return; }
  view.hits = await ask("search", { ask: wanted });
  applyFilter();
  openTab("matches");
  say(plural(view.hits.total, "match").replace("matchs", "matches"));
  if (first && view.hits.found.length) nextHit(1); else changed();
}

function nextHit(by) {
  const found = view.hits.found;
  view.hit = (view.hit + by + found.length) % found.length;
  view.hover = found[view.hit];
  reveal([found[view.hit]]);
  openTab("matches");
}

function applyFilter() {
  view.mask = null;
  const packets = !view.packets && view.graph.packets;
  if (packets || (view.filter && view.hits)) {
    const { n, kind, packetKind } = view.graph;
    view.mask = new Uint8Array(n).fill(view.filter && view.hits ? 0 : 1);
    if (view.filter && view.hits) for (const e of view.hits.found) view.mask[e] = 1;
    if (packets) for (let e = 0; e < n; e++) if (packetKind[kind[e]]) view.mask[e] = 0;
  }
}

// The panel ----------------------------------------------------------------------------------------------------

function openTab(name) {
  view.tab = name;
  for (const button of document.querySelectorAll("[data-tab]")) {
    button.setAttribute("aria-selected", String(button.dataset.tab === name));
    button.tabIndex = button.dataset.tab === name ? 0 : -1;
  }
  panel.replaceChildren();
  ({ findings: drawFindings, event: drawEvent, matches: drawMatches, table: drawTable })[name]();
}

function drawFindings() {
  const box = document.createDocumentFragment();
  if (!view.findings.length) box.append(make("p", { className: "quiet" }, head.tone === "none" ? "This was not judged." : "Nothing was found."));
  view.findings.forEach((finding, at) => {
    const current = at === view.finding;
    box.append(make("button", { type: "button", className: "item", "aria-current": String(current), onclick: () => openFinding(current ? -1 : at) },
      make("span", { className: "badge " + (finding.broken ? "bad" : "warn") }, finding.kind), " " + finding.title, make("small", {}, finding.detail)));
    if (current) box.append(proof(finding));
  });
  if (view.graph && view.graph.receives) box.append(...waitingList());
  const facts = make("dl", { className: "facts" });
  const about = { events: view.graph ? view.graph.n.toLocaleString("en") : "", processes: head.procs.length.toLocaleString("en"), ...head.about };
  for (const [name, value] of Object.entries(about)) facts.append(make("dt", {}, name), make("dd", {}, value));
  box.append(make("h2", {}, "About"), facts);
  for (const note of head.notes) box.append(make("p", { className: "quiet" }, note));
  if (head.unjudged.length) {
    const list = make("details", {}, make("summary", {}, "What was not judged, and what would change that"));
    for (const each of head.unjudged) list.append(make("p", { className: "quiet" }, each));
    box.append(list);
  }
  panel.replaceChildren(box);
  panel.querySelector("[aria-current='step']")?.scrollIntoView({ block: "nearest" });
}

function proof(finding) {
  const list = make("ol", { className: "steps" });
  finding.steps.forEach((step, at) => {
    const click = () => { view.step = at; reveal([step.event]); drawFindings(); };
    list.append(make("li", {}, make("button", { type: "button", "aria-current": at === view.step ? "step" : "false", onclick: click }, step.text)));
  });
  const row = make("div", { className: "row" }), box = make("div", {}, list, row);
  const msg = view.names.get(finding.message), proc = head.procs.indexOf(finding.at);
  const own = new Set(finding.steps.filter(step => step.event >= 0).map(step => procOf(step.event)));
  if (proc >= 0) own.add(proc);
  if (own.size && own.size < head.procs.length) row.append(make("button", { type: "button", onclick: () => onlyRows(own) }, "Only its rows"));
  if (msg !== undefined && proc >= 0 && finding.wrong < 0) row.append(make("button", { type: "button", onclick: () => tellWhy(msg, proc, box) }, "Why?"));
  return box;
}

function onlyRows(procs) {
  view.hidden = new Set(head.procs.map((_, at) => at).filter(at => !procs.has(at)));
  arrange();
  fitRows();
  changed(true);
}

function fitRows() {
  view.rowHeight = Math.min(84, Math.max(6, (stage.clientHeight - STRIP - TOP - 8) / Math.max(1, view.rows.length)));
}

function waitingList() {
  if (view.stuck === null) {
    view.stuck = [];
    ask("stuck").then(found => { view.stuck = found; if (view.tab === "findings") drawFindings(); });
  }
  if (!view.stuck.length) return [];
  const made = [make("h2", {}, `Received and never delivered (${view.stuck.length}${view.stuck.length === 1000 ? " or more" : ""})`)];
  for (const e of view.stuck.slice(0, 30)) {
    const box = make("div", {});
    box.append(make("button", { type: "button", className: "item", onclick: () => { select(e); reveal([e]); } }, `${nameOf(view.graph.msg[e])} at ${head.procs[procOf(e)]}`));
    made.push(box);
  }
  return made;
}

function drawEvent() {
  const box = document.createDocumentFragment(), e = view.selected;
  if (e < 0) { box.append(make("p", { className: "quiet" }, "Click an event: its causal past turns blue, its future orange, and what is concurrent grey. Click a second one to see how the two are related.")); }
  else {
    if (view.second >= 0) {
      box.append(make("h2", {}, "How they are related"), make("p", {}, sentence()));
      if (view.path) {
        box.append(make("h2", {}, "The shortest chain"));
        const list = make("ol", { className: "steps" });
        for (const each of view.path) list.append(make("li", {}, make("button", { type: "button", onclick: () => reveal([each]) }, long(each))));
        box.append(list);
      }
      box.append(make("h2", {}, "The second event"), facts(view.second), make("h2", {}, "The first event"));
    }
    box.append(facts(e), actions(e));
  }
  if (view.bookmarks.length) {
    box.append(make("h2", {}, "Bookmarks"));
    for (const each of view.bookmarks) box.append(jump(each, long(each)));
  }
  panel.replaceChildren(box);
}

function facts(e) {
  const list = make("dl", { className: "facts" }), g = view.graph;
  const add = (name, value) => { if (value !== "" && value !== null) list.append(make("dt", {}, name), make("dd", {}, value)); };
  add("process", head.procs[procOf(e)]);
  if (head.lanes[g.lane[e]] !== head.procs[procOf(e)]) add("context", head.lanes[g.lane[e]]);
  add("place", `${indexOf(e).toLocaleString("en")} of ${(g.starts[g.lane[e] + 1] - g.starts[g.lane[e]]).toLocaleString("en")}`);
  add("kind", kindOf(e));
  add("message", nameOf(g.msg[e]));
  if (g.detail[e] >= 0) add(roleOf(e) === "send" ? "to" : roleOf(e) === "receive" ? "from" : "detail", head.details[g.detail[e]]);
  if (g.time) add("time", absolute(g.time[e]));
  const correction = g.time && limits(e);
  if (correction) {
    const [low, high] = correction.map(each => (each === null ? "?" : span(each - g.time[e], 6)));
    if (procOf(e) !== head.reference) add("its clock", `add ${low} to ${high} for ${head.procs[head.reference]}’s`);
  }
  if (e === view.selected && view.cones) {
    const { past, future, other } = sizes();
    add("past", `${plural(past, "event")}`); add("future", `${plural(future, "event")}`); add("concurrent", `${plural(other, "event")}`);
  }
  return list;
}

function actions(e) {
  const box = make("div", {}), row = make("div", { className: "row" }), g = view.graph, msg = g.msg[e];
  const add = (text, onclick) => row.append(make("button", { type: "button", onclick }, text));
  add(view.bookmarks.includes(e) ? "Remove bookmark" : "Bookmark", () => bookmark(e));
  if (msg >= 0) {
    add("All of this message", () => search(`msg:"${nameOf(msg)}"`, false));
    if (g.begin[msg] >= 0 && g.begin[msg] !== e) add("Where it began", () => { const to = g.begin[msg]; select(to); reveal([to]); });
    if (roleOf(e) === "receive") add("Why?", () => tellWhy(msg, procOf(e), box));
  }
  box.append(row);
  return box;
}

function bookmark(e) {
  view.bookmarks = view.bookmarks.includes(e) ? view.bookmarks.filter(each => each !== e) : [...view.bookmarks, e];
  openTab("event");
  changed();
}

function drawMatches() {
  const box = document.createDocumentFragment();
  if (!view.hits) {
    box.append(make("p", { className: "quiet" }, "Type / and search: "), make("p", {}, make("code", {}, "kind:deliver msg:a:1 proc:x text:/re/")),
      make("p", { className: "quiet" }, "A word alone may be a kind, a process, a message or a part of a text. End it with * for a part of a name."));
  } else {
    box.append(make("p", { className: "quiet" }, view.hits.total === 1 ? "1 match" : `${view.hits.total.toLocaleString("en")} matches`));
    const from = Math.max(0, view.hit - SHOWN_MAX / 2);
    for (let at = from; at < Math.min(view.hits.found.length, from + SHOWN_MAX); at++) {
      const e = view.hits.found[at];
      box.append(make("button", { type: "button", className: "item", "aria-current": String(at === view.hit), onclick: () => { view.hit = at; select(e); reveal([e]); } }, long(e)));
    }
  }
  panel.replaceChildren(box);
  panel.querySelector("[aria-current='true']")?.scrollIntoView({ block: "nearest" });
}

function inSight(limit) {
  const found = [];
  for (const { lanes } of painted ? painted.rows : []) {
    for (const [, low, high] of lanes) for (let e = low; e < high && found.length <= limit; e++) if ((!view.mask || view.mask[e]) && view.x[e] >= view.x0 && view.x[e] <= view.x1) found.push(e);
  }
  return found;
}

function drawTable() {
  if (view.tab !== "table" || !view.graph) return;
  const events = inSight(SHOWN_MAX).slice(0, SHOWN_MAX).sort((one, two) => view.x[one] - view.x[two]);
  const table = make("table", {}, make("caption", {}, `What is in sight${events.length === SHOWN_MAX ? `, the first ${SHOWN_MAX}` : ""}, from left to right. Zoom to see others.`));
  const headings = make("tr", {});
  for (const name of ["process", "event", "message or text", view.axisName === "logical" ? "place" : "time"]) headings.append(make("th", { scope: "col" }, name));
  const body = make("tbody", {});
  for (const e of events) {
    const open = () => { select(e).then(() => openTab("table")); };
    body.append(make("tr", { tabIndex: 0, "aria-selected": String(e === view.selected), onclick: open, onkeydown: key => { if (key.key === "Enter") open(); } },
      make("td", {}, head.procs[procOf(e)]), make("td", {}, kindOf(e) + (view.findings.some(finding => finding.wrong === e) ? " (finding)" : "")), make("td", {}, nameOf(view.graph.msg[e]) || head.details[view.graph.detail[e]] || ""),
      make("td", { className: "number" }, view.axisName === "logical" ? String(view.x[e]) : span(view.x[e], 6))));
  }
  table.append(make("thead", {}, headings), body);
  panel.replaceChildren(table);
}

function drawLegend() {
  const used = new Set(view.graph.kindsUsed), box = byId("legend");
  box.replaceChildren();
  const seen = new Set();
  head.kinds.forEach(([name, role, packet], at) => {
    if (!used.has(at) || (packet && !view.packets) || (seen.has(role) && role === "other")) return;
    seen.add(role);
    const c = new SvgContext(20, 12);
    c.fillStyle = c.strokeStyle = "currentColor"; c.lineWidth = 1.5;
    c.beginPath(); shape(c, ROLES.indexOf(role), 10, 6, 4);
    if (["begin", "send", "restart"].includes(role)) c.fill(); else c.stroke();
    const drawn = new DOMParser().parseFromString(c.text(), "image/svg+xml").documentElement;
    box.append(make("span", {}, drawn, role === "other" ? "other" : name));
  });
}
const ROLES = ["other", "begin", "send", "receive", "deliver", "drop", "crash", "restart"];

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

// Theme and exports --------------------------------------------------------------------------------------------

let chosenTheme = "";
const prefersDark = matchMedia("(prefers-color-scheme: dark)");
function useTheme(name) {
  chosenTheme = name;
  document.documentElement.classList.toggle("dark", name ? name === "dark" : prefersDark.matches);
  view.colour = colours();
  if (view.graph) changed();
}
prefersDark.addEventListener("change", () => { if (!chosenTheme) useTheme(""); });

function picture(c, width, height) {
  // With the names of rows, which the page itself has beside the canvas.
  c.fillStyle = view.colour.page; c.fillRect(0, 0, width + GUTTER, height);
  c.font = "12px " + view.font; c.textAlign = "left"; c.textBaseline = "middle"; c.fillStyle = view.colour.ink;
  view.rows.forEach((row, at) => {
    const y = TOP + (at + 0.5) * view.rowHeight - view.scroll;
    if (y > TOP && y < height && view.rowHeight >= 8) c.fillText(row.name.slice(0, 20), 10, y);
  });
  c.translate(GUTTER, 0);
  paint(view, c, width, height);
}

async function exported(what) {
  const { width, height } = painted;
  if (what === "svg") { const c = new SvgContext(width + GUTTER, height); picture(c, width, height); return new Blob([c.text()], { type: "image/svg+xml" }); }
  if (what === "png") {
    const made = make("canvas", { width: Math.round((width + GUTTER) * view.sharp), height: Math.round(height * view.sharp) });
    const c = canvasStrips(made.getContext("2d"));
    c.scale(view.sharp, view.sharp);
    picture(c, width, height);
    return new Promise(resolve => made.toBlob(resolve, "image/png"));
  }
  const events = inSight(Infinity);
  if (what === "perfetto") return new Blob([JSON.stringify(perfetto(events))], { type: "application/json" });
  return new Blob([await shiviz(events)], { type: "text/plain" });
}

function perfetto(events) {
  // Chrome's JSON trace format: instants on a thread per lane, and a flow for every edge inside the window.
  const us = e => (view.graph.time ? view.graph.time[e] * head.unitNs / 1000 : view.graph.x[e]), chosen = new Set(events), made = [];
  head.procs.forEach((name, pid) => made.push({ ph: "M", name: "process_name", pid: pid + 1, tid: 0, args: { name } }));
  head.lanes.forEach((name, lane) => made.push({ ph: "M", name: "thread_name", pid: head.laneProc[lane] + 1, tid: lane + 1, args: { name } }));
  const at = e => ({ pid: procOf(e) + 1, tid: view.graph.lane[e] + 1, ts: us(e) });
  let flow = 0;
  for (const e of events) {
    made.push({ ph: "X", name: [kindOf(e), nameOf(view.graph.msg[e])].filter(Boolean).join(" "), cat: kindOf(e), dur: 1, ...at(e), args: { place: indexOf(e), message: nameOf(view.graph.msg[e]), detail: view.graph.detail[e] < 0 ? "" : head.details[view.graph.detail[e]] } });
    const { ins } = view.graph;
    for (let k = ins.start[e]; k < ins.start[e + 1]; k++) {
      const from = ins.event[k];
      if (!chosen.has(from) || (!view.packets && ins.by[k] === view.graph.packetSource)) continue;
      made.push({ ph: "s", id: ++flow, name: "message", cat: head.sources[ins.by[k]], ...at(from) });
      made.push({ ph: "f", bp: "e", id: flow, name: "message", cat: head.sources[ins.by[k]], ...at(e) });
    }
  }
  return { displayTimeUnit: "ms", traceEvents: made, otherData: { title: head.title, verdict: head.verdict } };
}

async function shiviz(events) {
  // ShiViz's default pattern on the first line; clocks count the events of this window alone.
  const host = lane => head.lanes[lane].replace(/\s+/g, "_") || "_";
  const lines = ["(?<event>.*)\\n(?<host>\\S*) (?<clock>{.*})", ""];
  for (const { event, clock } of await ask("clocks", { events })) {
    const text = [kindOf(event), nameOf(view.graph.msg[event]), view.graph.detail[event] < 0 ? "" : head.details[view.graph.detail[event]]].filter(Boolean).join(" ").replace(/\s+/g, " ");
    lines.push(text, `${host(view.graph.lane[event])} ${JSON.stringify(Object.fromEntries(clock.map(([lane, value]) => [host(lane), value])))}`);
  }
  return lines.join("\n") + "\n";
}

async function save(what) {
  const name = `${head.title.replace(/[^\w.-]+/g, "-")}.${{ png: "png", svg: "svg", perfetto: "perfetto.json", shiviz: "shiviz.log" }[what]}`;
  const url = URL.createObjectURL(await exported(what)), link = make("a", { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
  say(`Saved ${name}`);
}

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
