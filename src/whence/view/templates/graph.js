"use strict";
// The worker: reads the columns of a page, and knows what happened before what.
// A lane's events are numbered in a row, so the past of an event is a prefix of each lane and its future a suffix.

const ROLE = { other: 0, begin: 1, send: 2, receive: 3, deliver: 4, drop: 5, crash: 6, restart: 7 };
let PACKET = 1;          // an edge's source: shown and followed only when packets are
const GAMMA = 0.99;      // how fast a clock that was moved ahead comes back (Rabenseifner's controlled logical clock)
const NONE = -1;

let g = null;            // the graph

// Reading ------------------------------------------------------------------------------------------------------

async function inflate(text) {
  const packed = Uint8Array.fromBase64 ? Uint8Array.fromBase64(text)
    : Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function unsigned(bytes, into) {
  // Multiplication, not shifts: numbers may have up to 53 bits.
  for (let at = 0, out = 0; at < bytes.length; out++) {
    let byte = bytes[at++];
    if (byte < 128) { into[out] = byte; continue; }
    let value = byte & 127, scale = 128;
    do { byte = bytes[at++]; value += (byte & 127) * scale; scale *= 128; } while (byte > 127);
    into[out] = value;
  }
  return into;
}

function count(bytes) {
  let found = 0;
  for (let at = 0; at < bytes.length; at++) if (bytes[at] < 128) found++;
  return found;
}

const signed = value => (value % 2 ? -(value + 1) / 2 : value / 2);

function read(head, bytes) {
  const columns = {};
  let at = 0;
  for (const [name, size] of head.columns) { columns[name] = bytes.subarray(at, at + size); at += size; }
  const n = head.starts[head.starts.length - 1];
  const starts = Int32Array.from(head.starts);
  const lane = new Int32Array(n);
  for (let l = 0; l + 1 < starts.length; l++) lane.fill(l, starts[l], starts[l + 1]);
  const kind = unsigned(columns.kind, new Uint8Array(n));
  const detail = unsigned(columns.detail, new Int32Array(n)).map(value => value - 1);
  const time = head.timeBase === null ? null : readTimes(columns.time, n, lane);
  const number = readNumbers(columns.number, head);
  const msg = readMessages(columns, head, n, lane);
  const roles = Uint8Array.from(head.kinds, ([, role]) => ROLE[role]);
  const packetKind = Uint8Array.from(head.kinds, ([, , packet]) => (packet ? 1 : 0));
  return { n, starts, lane, kind, detail, time, number, msg, roles, packetKind, ...readEdges(columns, head, n, lane) };
}

function readTimes(bytes, n, lane) {
  const time = unsigned(bytes, new Float64Array(n));
  for (let e = 0; e < n; e++) time[e] = signed(time[e]) + (e && lane[e] === lane[e - 1] ? time[e - 1] : 0);
  return time;
}

function readNumbers(bytes, head) {
  const number = unsigned(bytes, new Float64Array(count(bytes)));
  let at = 0;
  for (const size of head.numbered) {
    for (let k = 0, before = 0; k < size; k++, at++) before = number[at] = before + signed(number[at]);
  }
  return number;
}

function readMessages(columns, head, n, lane) {
  const prefix = unsigned(columns.prefix, new Int32Array(n));
  const step = unsigned(columns.rank, new Float64Array(count(columns.rank)));
  const first = new Int32Array(head.prefixes.length + 1);
  head.numbered.forEach((size, at) => { first[at + 1] = first[at] + size; });
  const last = new Int32Array(head.prefixes.length);
  const stamp = new Int32Array(head.prefixes.length).fill(NONE);
  const msg = new Int32Array(n).fill(NONE);
  for (let e = 0, at = 0; e < n; e++) {
    const p = prefix[e] - 1;
    if (p < 0) continue;
    if (stamp[p] !== lane[e]) { stamp[p] = lane[e]; last[p] = NONE; }
    last[p] += 1 + signed(step[at++]);
    msg[e] = first[p] + last[p];
  }
  return msg;
}

function readEdges(columns, head, n, lane) {
  const m = count(columns.edgeTo);
  const to = unsigned(columns.edgeTo, new Int32Array(m));
  const fromLane = unsigned(columns.edgeLane, new Int32Array(m));
  const from = unsigned(columns.edgeFrom, new Float64Array(m));
  const source = unsigned(columns.edgeSource, new Uint8Array(m));
  const last = new Map();
  for (let at = 0; at < m; at++) {
    if (at) to[at] += to[at - 1];
    const key = lane[to[at]] * head.lanes.length + fromLane[at];
    from[at] = signed(from[at]) + (last.get(key) || 0);
    last.set(key, from[at]);
  }
  return { edgeFrom: Int32Array.from(from), edgeTo: to, edgeSource: source };
}

// The graph ----------------------------------------------------------------------------------------------------

function link(graph, head) {
  // For each message the event that begins it; edges by their ends, both ways.
  const { n, msg, kind, roles } = graph;
  const begin = new Int32Array(graph.number.length).fill(NONE);
  for (let e = n - 1; e >= 0; e--) if (msg[e] >= 0 && roles[kind[e]] === ROLE.begin) begin[msg[e]] = e;
  for (const [message, event] of head.begins) begin[message] = event;
  const byMessage = head.sources.indexOf("message");
  let m = graph.edgeFrom.length;
  for (let e = 0; e < n; e++) if (cause(graph, begin, e) >= 0) m++;
  const from = new Int32Array(m), to = new Int32Array(m), source = new Uint8Array(m);
  from.set(graph.edgeFrom); to.set(graph.edgeTo); source.set(graph.edgeSource);
  for (let e = 0, at = graph.edgeFrom.length; e < n; e++) {
    const b = cause(graph, begin, e);
    if (b >= 0) { from[at] = b; source[at] = byMessage; to[at++] = e; }
  }
  graph.begin = begin;
  graph.ins = sorted(n, to, from, source);
  graph.outs = sorted(n, from, to, source);
  delete graph.edgeFrom; delete graph.edgeTo; delete graph.edgeSource;
}

function cause(graph, begin, e) {
  if (graph.msg[e] < 0 || graph.roles[graph.kind[e]] !== ROLE.deliver) return NONE;
  const b = begin[graph.msg[e]];
  return b === e ? NONE : b;
}

function sorted(n, key, value, source) {
  const start = new Int32Array(n + 1);
  for (let at = 0; at < key.length; at++) start[key[at] + 1]++;
  for (let e = 0; e < n; e++) start[e + 1] += start[e];
  const fill = start.slice(0, n), event = new Int32Array(key.length), by = new Uint8Array(key.length);
  for (let at = 0; at < key.length; at++) { const place = fill[key[at]]++; event[place] = value[at]; by[place] = source[at]; }
  return { start, event, by };
}

function walk(graph, visit) {
  // Every event after all that happened before it. Where all wait in a circle, the first goes on without its cause.
  const { starts, ins } = graph, lanes = starts.length - 1;
  const next = starts.slice(0, lanes), done = new Uint8Array(graph.n), waiters = new Map();
  let ready = [];
  for (let l = lanes - 1; l >= 0; l--) ready.push(l);
  const advance = (l, forced) => {
    while (next[l] < starts[l + 1]) {
      const e = next[l];
      if (!forced) {
        for (let at = ins.start[e]; at < ins.start[e + 1]; at++) {
          if (!done[ins.event[at]]) {
            const wait = waiters.get(ins.event[at]);
            if (wait) wait.push(l); else waiters.set(ins.event[at], [l]);
            return;
          }
        }
      }
      forced = false;
      done[e] = 1; next[l]++;
      visit(e, done);
      const wait = waiters.get(e);
      if (wait) { waiters.delete(e); ready.push(...wait); }
    }
  };
  for (;;) {
    while (ready.length) advance(ready.pop(), false);
    const stuck = next.findIndex((e, l) => e < starts[l + 1]);
    if (stuck < 0) return;
    advance(stuck, true);
  }
}

function logical(graph, packets) {
  // The longest path to each event: all arrows go to the right. Packets take no room while they are not shown.
  const x = new Float64Array(graph.n), { ins, lane, kind, packetKind } = graph;
  walk(graph, (e, done) => {
    let far = e && lane[e - 1] === lane[e] ? x[e - 1] : -1;
    for (let at = ins.start[e]; at < ins.start[e + 1]; at++) {
      if (done[ins.event[at]] && x[ins.event[at]] > far) far = x[ins.event[at]];
    }
    x[e] = far + (packets || !packetKind[kind[e]] ? 1 : 0);
  });
  return x;
}

function corrected(graph, head) {
  // Each clock moved by the middle of its interval; what still goes backwards is put right event by event.
  const { time, lane, ins } = graph, base = Number(head.timeBase);
  const x = new Float64Array(graph.n), moved = new Float64Array(graph.n);
  for (let e = 0; e < graph.n; e++) moved[e] = time[e] + between(head.corrections[head.laneProc[lane[e]]], time[e] + base);
  walk(graph, (e, done) => {
    let at = moved[e];
    if (e && lane[e - 1] === lane[e]) at = Math.max(at, x[e - 1] + GAMMA * Math.max(0, moved[e] - moved[e - 1]));
    for (let k = ins.start[e]; k < ins.start[e + 1]; k++) if (done[ins.event[k]]) at = Math.max(at, x[ins.event[k]]);
    x[e] = at;
  });
  return x;
}

function between(correction, reading) {
  if (!correction) return 0;
  const [at, add] = correction;
  let k = at.findIndex(each => each >= reading);
  if (k < 0) k = at.length - 1;
  if (k === 0) return add[0];
  const share = Math.min(1, (reading - at[k - 1]) / (at[k] - at[k - 1]));
  return add[k - 1] + share * (add[k] - add[k - 1]);
}

// Questions ----------------------------------------------------------------------------------------------------

function past(event, packets) {
  // How far the past reaches in each lane: its events up to, not including, reach[lane]. Each event is looked at once.
  const { starts, lane, ins } = g, reach = starts.slice(0, -1), done = starts.slice(0, -1);
  const waits = new Uint8Array(reach.length), todo = [lane[event]], none = packets ? -2 : PACKET;
  reach[lane[event]] = event + 1;
  while (todo.length) {
    const l = todo.pop();
    waits[l] = 0;
    let e = done[l];
    for (; e < reach[l]; e++) {
      for (let at = ins.start[e], end = ins.start[e + 1]; at < end; at++) {
        const c = ins.event[at], from = lane[c];
        if (c < reach[from] || ins.by[at] === none) continue;
        reach[from] = c + 1;
        if (!waits[from] && from !== l) { waits[from] = 1; todo.push(from); }
      }
    }
    done[l] = e;
  }
  return reach;
}

function future(event, packets) {
  // Where the future begins in each lane.
  const { starts, lane, outs } = g, reach = starts.slice(1), done = starts.slice(1);
  const waits = new Uint8Array(reach.length), todo = [lane[event]], none = packets ? -2 : PACKET;
  reach[lane[event]] = event;
  while (todo.length) {
    const l = todo.pop();
    waits[l] = 0;
    let e = done[l];
    while (e > reach[l]) {
      e--;
      for (let at = outs.start[e], end = outs.start[e + 1]; at < end; at++) {
        const c = outs.event[at], to = lane[c];
        if (c >= reach[to] || outs.by[at] === none) continue;
        reach[to] = c;
        if (!waits[to] && to !== l) { waits[to] = 1; todo.push(to); }
      }
    }
    done[l] = e;
  }
  return reach;
}

function warm() {
  // The first click must not wait for the compiler: ask from a few places before anybody does.
  for (let k = 1; k < 6; k++) { const e = Math.floor(k * (g.n - 1) / 6); if (e >= 0) { past(e, false); future(e, false); } }
}

function chain(a, b, packets) {
  // Events on a path from a to b with the fewest edges between lanes; null if there is none.
  const { starts, lane, outs } = g;
  if (lane[a] === lane[b]) return a <= b ? [a, b] : null;
  const reach = starts.slice(1);
  let front = [{ event: a, from: NONE, before: null }];
  while (front.length) {
    const found = [];
    for (const entry of front) {
      const l = lane[entry.event], end = reach[l];
      if (entry.event >= end) continue;
      reach[l] = entry.event;
      if (l === lane[b] && entry.event <= b) return steps(entry, b);
      for (let e = entry.event; e < end; e++) {
        for (let at = outs.start[e]; at < outs.start[e + 1]; at++) {
          const c = outs.event[at];
          if (c < reach[lane[c]] && (packets || outs.by[at] !== PACKET)) found.push({ event: c, from: e, before: entry });
        }
      }
    }
    // Of each lane the earliest: its suffix holds the others.
    const best = new Map();
    for (const entry of found) {
      const known = best.get(lane[entry.event]);
      if (!known || entry.event < known.event) best.set(lane[entry.event], entry);
    }
    front = [...best.values()];
  }
  return null;
}

function steps(entry, last) {
  const path = [last];
  for (; entry; entry = entry.before) {
    if (path[0] !== entry.event) path.unshift(entry.event);
    if (entry.from >= 0 && path[0] !== entry.from) path.unshift(entry.from);
  }
  return path;
}

function why(msg, proc, procOf) {
  // What a message waits for at a process: everything in its past that was not delivered there.
  const { n, lane, kind, roles, begin } = g;
  const delivered = new Uint8Array(begin.length), received = new Uint8Array(begin.length);
  for (let e = 0; e < n; e++) {
    if (g.msg[e] < 0 || procOf[lane[e]] !== proc) continue;
    const role = roles[kind[e]];
    if (role === ROLE.deliver || role === ROLE.begin || role === ROLE.drop) delivered[g.msg[e]] = 1;
    if (role === ROLE.receive) received[g.msg[e]] = 1;
  }
  if (begin[msg] < 0) return { began: false, received: !!received[msg], missing: [], total: 0 };
  const reach = past(begin[msg], false), missing = [];
  for (let l = 0; l < reach.length; l++) {
    for (let e = g.starts[l]; e < reach[l]; e++) {
      const m = g.msg[e];
      if (m >= 0 && m !== msg && begin[m] === e && !delivered[m]) missing.push(m);
    }
  }
  missing.sort((one, two) => g.x[begin[one]] - g.x[begin[two]]);
  const shown = missing.slice(0, 20).map(m => ({ msg: m, begin: begin[m], received: !!received[m], holders: holders(m, procOf) }));
  return { began: true, begin: begin[msg], received: !!received[msg], missing: shown, total: missing.length };
}

function holders(msg, procOf) {
  const found = new Set();
  const b = g.begin[msg];
  if (b >= 0) found.add(procOf[g.lane[b]]);
  for (let e = 0; e < g.n; e++) if (g.msg[e] === msg && g.roles[g.kind[e]] === ROLE.deliver) found.add(procOf[g.lane[e]]);
  return [...found];
}

function stuck(procOf) {
  // Messages that came to a process and were neither delivered nor dropped there.
  const { n, lane, kind, roles } = g, ended = new Set(), came = new Map();
  const width = g.begin.length;
  for (let e = 0; e < n; e++) {
    if (g.msg[e] < 0) continue;
    const role = roles[kind[e]], key = procOf[lane[e]] * width + g.msg[e];
    if (role === ROLE.deliver || role === ROLE.drop || role === ROLE.begin) ended.add(key);
    else if (role === ROLE.receive && !came.has(key)) came.set(key, e);
  }
  const found = [];
  for (const [key, e] of came) if (!ended.has(key)) found.push(e);
  return found.sort((one, two) => g.x[one] - g.x[two]).slice(0, 1000);
}

function search(ask, procOf) {
  // Events that match: kinds and processes as sets, message names and texts as tests on each distinct one.
  const { n, kind, lane, msg, detail } = g, found = [];
  const limit = 200000;
  let total = 0;
  for (let e = 0; e < n; e++) {
    if (ask.kinds && !ask.kinds[kind[e]]) continue;
    if (ask.procs && !ask.procs[procOf[lane[e]]]) continue;
    if (ask.msgs && (msg[e] < 0 || !ask.msgs[msg[e]])) continue;
    if (ask.texts && (detail[e] < 0 || !ask.texts[detail[e]])) continue;
    if (ask.words && !ask.words.some(word => (msg[e] >= 0 && word.msgs[msg[e]]) || (detail[e] >= 0 && word.texts[detail[e]])
      || word.kinds[kind[e]] || word.procs[procOf[lane[e]]])) continue;
    total++;
    if (found.length < limit) found.push(e);
  }
  return { found: Int32Array.from(found), total };
}

// Exports of some events ---------------------------------------------------------------------------------------

function clocks(events) {
  // Vector clocks of the chosen events: each knows what the chosen events in its past know.
  const chosen = new Uint8Array(g.n), out = [];
  for (const e of events) chosen[e] = 1;
  const known = Array.from({ length: g.starts.length - 1 }, () => new Map());
  const kept = new Map();     // of events that others follow from
  walk(g, (e, done) => {
    const l = g.lane[e], clock = known[l];
    for (let at = g.ins.start[e]; at < g.ins.start[e + 1]; at++) {
      const carried = done[g.ins.event[at]] && kept.get(g.ins.event[at]);
      if (carried) for (const [other, value] of carried) if (value > (clock.get(other) || 0)) clock.set(other, value);
    }
    if (chosen[e]) {
      clock.set(l, (clock.get(l) || 0) + 1);
      out.push({ event: e, clock: [...clock] });
    }
    if (g.outs.start[e + 1] > g.outs.start[e]) kept.set(e, new Map(clock));
  });
  return out;
}

// Talking to the page ------------------------------------------------------------------------------------------

const answers = {
  async open({ head, data }) {
    const began = performance.now();
    const bytes = await inflate(data);
    const inflated = performance.now();
    PACKET = head.sources.indexOf("packet");
    const graph = read(head, bytes);
    link(graph, head);
    graph.x = logical(graph, false);
    g = graph;
    g.head = { timeBase: head.timeBase, corrections: head.corrections, laneProc: head.laneProc };
    setTimeout(warm, 0);
    const inflateMs = inflated - began, buildMs = performance.now() - inflated;
    return { ...graph, head: undefined, packetSource: PACKET, inflateMs, buildMs };
  },
  corrected: () => corrected(g, g.head),
  logical: ({ packets }) => logical(g, packets),
  cones: ({ event, packets }) => ({ past: past(event, packets), future: future(event, packets) }),
  relation({ a, b, packets }) {
    const there = chain(a, b, packets);
    if (there) return { order: "before", path: there };
    const back = chain(b, a, packets);
    return { order: back ? "after" : "concurrent", path: back };
  },
  why: ({ msg, proc }) => why(msg, proc, g.head.laneProc),
  stuck: () => stuck(g.head.laneProc),
  search: ({ ask }) => search(ask, g.head.laneProc),
  clocks: ({ events }) => clocks(events),
};

onmessage = async ({ data: { id, what, ...given } }) => {
  try {
    postMessage({ id, answer: await answers[what](given) });
  } catch (problem) {
    postMessage({ id, problem: String(problem && problem.stack || problem) });
  }
};
