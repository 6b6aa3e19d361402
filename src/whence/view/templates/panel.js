"use strict";
// What the page says: names and times in words, findings and their proofs, search, the panel on the right.

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
