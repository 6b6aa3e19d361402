"use strict";
// Drawing. `paint` puts what `view` describes on a context: a canvas, or an SvgContext with the same few verbs.

const TOP = 26, ARROWS_MAX = 20000, MOVING_MAX = 1200, MOVING_EVENTS = 300000, HEADS_MAX = 1500;
const DENSE = 0.22, TEXTS = 1 / 54;       // events per pixel in the fullest row: above it bins, below it texts
const CLASSES = ["plain", "past", "future", "other"];

function colours() {
  const style = getComputedStyle(document.documentElement), made = {};
  for (const name of ["page", "panel", "line", "lane", "ink", "soft", "faint", "event", "arrow", "past", "future", "other", "find", "mark", "hit", "band", "focus"]) {
    made[name] = style.getPropertyValue("--" + name).trim();
  }
  made.plain = made.event;
  return made;
}

// Which events of a lane can be seen: `up` and `down` are x itself unless a clock went backwards.
function bisect(values, low, high, wanted) {
  while (low < high) { const middle = (low + high) >> 1; if (values[middle] < wanted) low = middle + 1; else high = middle; }
  return low;
}

function visible(view, lane) {
  const { starts } = view.graph, { up, down } = view.axis;
  const low = starts[lane], high = starts[lane + 1];
  return [bisect(up, low, high, view.x0), bisect(down, low, high, view.x1 + 1e-9)];
}

function classOf(view, event) {
  if (!view.cones) return 0;
  const lane = view.graph.lane[event];
  if (event === view.selected) return 0;
  return event < view.cones.past[lane] ? 1 : event >= view.cones.future[lane] ? 2 : 3;
}

// A lane's visible events in runs of one class: the past is a prefix, the future a suffix.
function runs(view, lane, low, high) {
  if (!view.cones) return [[low, high, 0]];
  const past = Math.min(high, Math.max(low, view.cones.past[lane])), future = Math.max(past, Math.min(high, view.cones.future[lane]));
  return [[low, past, 1], [past, future, 3], [future, high, 2]].filter(([from, to]) => from < to);
}

function paint(view, c, width, height) {
  const shown = { width, height, colour: view.colour, rows: [], level: "marks", arrows: 0, bundled: 0 };
  c.clearRect(0, 0, width, height);
  c.fillStyle = view.colour.page;
  c.fillRect(0, 0, width, height);
  let fullest = 0;
  view.rows.forEach((row, at) => {
    const y = TOP + (at + 0.5) * view.rowHeight - view.scroll;
    if (y < TOP - view.rowHeight || y > height + view.rowHeight) return;
    const lanes = row.lanes.map(lane => [lane, ...visible(view, lane)]);
    fullest = Math.max(fullest, lanes.reduce((sum, [, low, high]) => sum + high - low, 0));
    shown.rows.push({ row, y, lanes });
  });
  const density = fullest / width;
  shown.level = density > DENSE ? "dense" : density > TEXTS ? "marks" : "texts";
  c.save(); c.beginPath(); c.rect(0, TOP, width, height - TOP); c.clip();
  for (const { y, lanes } of shown.rows) baseline(view, c, shown, y, lanes);
  if (shown.level === "dense") bins(view, c, shown);
  else { arrows(view, c, shown); marks(view, c, shown, density); if (shown.level === "texts") texts(view, c, shown); }
  overlays(view, c, shown);
  c.restore();
  axis(view, c, width);
  return shown;
}

const placeX = (view, shown, event) => (view.x[event] - view.x0) / (view.x1 - view.x0) * shown.width;
function placeY(view, event) {
  const at = view.rowOf[view.graph.lane[event]];
  return at < 0 ? null : TOP + (at + 0.5) * view.rowHeight - view.scroll;
}

function baseline(view, c, shown, y, lanes) {
  // Also without colour: the past is a thick line, the future a dashed one, the rest thin.
  c.lineWidth = 1; c.strokeStyle = shown.colour.lane; c.setLineDash([]);
  c.beginPath(); c.moveTo(0, y); c.lineTo(shown.width, y); c.stroke();
  if (!view.cones) return;
  for (const [lane] of lanes) {
    const { starts } = view.graph, past = view.cones.past[lane], future = view.cones.future[lane];
    const edge = event => Math.min(shown.width, Math.max(0, placeX(view, shown, event)));
    if (past > starts[lane]) {
      c.lineWidth = 3; c.strokeStyle = shown.colour.past;
      c.beginPath(); c.moveTo(edge(starts[lane]), y); c.lineTo(edge(past - 1), y); c.stroke();
    }
    if (future < starts[lane + 1]) {
      c.lineWidth = 3; c.strokeStyle = shown.colour.future; c.setLineDash([7, 4]);
      c.beginPath(); c.moveTo(edge(future), y); c.lineTo(edge(starts[lane + 1] - 1), y); c.stroke();
      c.setLineDash([]);
    }
  }
}

// Many events: each row as one line of pixels, its darkness the count.
function bins(view, c, shown, thick = Math.max(2, Math.min(view.rowHeight - 3, 22))) {
  const scale = view.sharp, width = Math.max(1, Math.round(shown.width * scale)), height = shown.rows.length;
  if (!height) return;
  const image = new ImageData(width, height), pixels = new Uint32Array(image.data.buffer);
  const counts = new Uint32Array(width), kinds = new Uint8Array(width);
  // While it moves, of very many events every second, third ... one will do.
  const all = shown.rows.reduce((sum, { lanes }) => sum + lanes.reduce((some, [, low, high]) => some + high - low, 0), 0);
  const stride = view.moving ? Math.ceil(all / MOVING_EVENTS) : 1;
  const inks = CLASSES.map(name => rgb(shown.colour[name])), perX = width / (view.x1 - view.x0), { x, mask } = view;
  shown.rows.forEach(({ lanes }, at) => {
    counts.fill(0); kinds.fill(0);
    let most = 1;
    for (const [lane, low, high] of lanes) {
      for (const [from, to, kind] of runs(view, lane, low, high)) {
        const bit = 1 << kind;
        for (let e = from; e < to; e += stride) {
          if (mask && !mask[e]) continue;
          const px = (x[e] - view.x0) * perX | 0;
          if (px < 0 || px >= width) continue;
          kinds[px] |= bit;
          if (++counts[px] > most) most = counts[px];
        }
      }
    }
    const full = Math.log(1 + most);
    for (let px = 0; px < width; px++) {
      if (!counts[px]) continue;
      const kind = kinds[px], ink = inks[kind & 2 ? 1 : kind & 4 ? 2 : kind & 8 ? 3 : 0];
      const alpha = 60 + 195 * Math.log(1 + counts[px]) / full | 0;
      pixels[at * width + px] = (alpha << 24 | ink) >>> 0;
    }
  });
  c.strips(image, shown.rows.map(({ y }) => y - thick / 2), thick, shown.width);
}

function rgb(text) {
  const value = parseInt(text.slice(1), 16);
  return (value & 255) << 16 | (value & 0xff00) | value >> 16;
}

function arrows(view, c, shown) {
  const { ins, outs, lane, packetSource } = view.graph, batches = CLASSES.map(() => []), rest = new Map();
  const add = (from, to) => {
    const one = view.rowOf[lane[from]], two = view.rowOf[lane[to]];
    if (one < 0 || two < 0 || lane[from] === lane[to] || (view.mask && (!view.mask[from] || !view.mask[to]))) return;
    if (view.moving && shown.arrows >= MOVING_MAX) return;      // the rest when it comes to rest
    if (shown.arrows >= ARROWS_MAX) {
      const key = lane[from] * view.graph.starts.length + lane[to], known = rest.get(key);
      if (known) { known[0] += view.x[from]; known[1] += view.x[to]; known[2]++; } else rest.set(key, [view.x[from], view.x[to], 1, from, to]);
      shown.bundled++;
      return;
    }
    shown.arrows++;
    const a = classOf(view, from), b = classOf(view, to);
    // An arrow belongs to the past if it leads there, to the future if it comes from there.
    batches[!view.cones ? 0 : b === 1 || to === view.selected ? 1 : a === 2 || from === view.selected ? 2 : 3].push(from, to);
  };
  for (const { lanes } of shown.rows) {
    for (const [, low, high] of lanes) {
      for (let e = low; e < high; e++) {
        for (let at = ins.start[e]; at < ins.start[e + 1]; at++) if (view.packets || ins.by[at] !== packetSource) add(ins.event[at], e);
        for (let at = outs.start[e]; at < outs.start[e + 1]; at++) {
          const to = outs.event[at];
          if (view.x[to] > view.x1 && (view.packets || outs.by[at] !== packetSource)) add(e, to);
        }
      }
    }
  }
  batches.forEach((batch, kind) => lines(view, c, shown, batch, kind));
  c.strokeStyle = shown.colour.arrow; c.globalAlpha = 0.5;
  for (const [sum, end, count, from, to] of rest.values()) {
    c.lineWidth = 1 + Math.log2(count) / 2;
    c.beginPath();
    c.moveTo((sum / count - view.x0) / (view.x1 - view.x0) * shown.width, placeY(view, from));
    c.lineTo((end / count - view.x0) / (view.x1 - view.x0) * shown.width, placeY(view, to));
    c.stroke();
  }
  c.globalAlpha = 1;
}

function lines(view, c, shown, batch, kind) {
  if (!batch.length) return;
  const few = shown.arrows < 400, heads = shown.arrows < HEADS_MAX && view.rowHeight > 14;
  c.strokeStyle = kind === 0 ? shown.colour.arrow : shown.colour[CLASSES[kind]];
  c.fillStyle = c.strokeStyle;
  c.lineWidth = kind === 1 || kind === 2 ? 1.4 : few ? 1 : 0.7;
  c.globalAlpha = (kind === 3 ? 0.4 : few ? 0.9 : shown.arrows < 3000 ? 0.55 : 0.3) * (view.finding >= 0 && !few ? 0.6 : 1);
  c.setLineDash(kind === 2 ? [6, 3] : []);
  const ends = [];
  c.beginPath();
  for (let at = 0; at < batch.length; at += 2) {
    const x1 = placeX(view, shown, batch[at]), y1 = placeY(view, batch[at]);
    let x2 = placeX(view, shown, batch[at + 1]), y2 = placeY(view, batch[at + 1]);
    if (heads) {
      const length = Math.hypot(x2 - x1, y2 - y1) || 1, back = Math.min(6, length / 3);
      x2 -= (x2 - x1) / length * back; y2 -= (y2 - y1) / length * back;
      ends.push(x1, y1, x2, y2);
    }
    c.moveTo(x1, y1); c.lineTo(x2, y2);
  }
  c.stroke();
  c.setLineDash([]);
  if (ends.length) {
    c.beginPath();
    for (let at = 0; at < ends.length; at += 4) arrowHead(c, ends[at], ends[at + 1], ends[at + 2], ends[at + 3], 6);
    c.fill();
  }
  c.globalAlpha = 1;
}

function arrowHead(c, x1, y1, x2, y2, size) {
  const angle = Math.atan2(y2 - y1, x2 - x1), cos = Math.cos(angle), sin = Math.sin(angle);
  c.moveTo(x2, y2);
  c.lineTo(x2 - size * cos + size / 2.6 * sin, y2 - size * sin - size / 2.6 * cos);
  c.lineTo(x2 - size * cos - size / 2.6 * sin, y2 - size * sin + size / 2.6 * cos);
  c.lineTo(x2, y2);
}

// Shapes tell kinds apart without colour: begun filled, delivered open, sent and received triangles, dropped a cross.
function shape(c, role, x, y, r) {
  if (role === 2) { c.moveTo(x - r, y - r); c.lineTo(x + r, y); c.lineTo(x - r, y + r); c.lineTo(x - r, y - r); }
  else if (role === 3) { c.moveTo(x + r, y - r); c.lineTo(x - r, y); c.lineTo(x + r, y + r); c.lineTo(x + r, y - r); }
  else if (role === 5 || role === 6) { c.moveTo(x - r, y - r); c.lineTo(x + r, y + r); c.moveTo(x - r, y + r); c.lineTo(x + r, y - r); }
  else if (role === 7) { c.moveTo(x - r, y - r); c.lineTo(x + r, y - r); c.lineTo(x + r, y + r); c.lineTo(x - r, y + r); c.lineTo(x - r, y - r); }
  else if (role === 0) { c.moveTo(x, y - r); c.lineTo(x, y + r); }
  else { c.moveTo(x + r, y); c.arc(x, y, r, 0, 2 * Math.PI); }
}

function marks(view, c, shown, density) {
  const { kind, roles } = view.graph, size = Math.min(6, Math.max(2, Math.min(view.rowHeight / 5, 0.3 / density)));
  const batches = new Map(), tiny = size < 3;
  if (tiny) bins(view, c, shown, 5);
  for (const { lanes } of shown.rows) {
    for (const [lane, low, high] of lanes) {
      for (const [from, to, kindOf] of runs(view, lane, low, high)) {
        for (let e = from; e < to; e++) {
          if ((view.mask && !view.mask[e]) || (tiny && roles[kind[e]] !== 1)) continue;
          const key = roles[kind[e]] * 4 + kindOf, batch = batches.get(key);
          if (batch) batch.push(e); else batches.set(key, [e]);
        }
      }
    }
  }
  for (const [key, batch] of [...batches].sort(([one], [two]) => one - two)) {
    const role = key >> 2, r = role === 0 ? size * 0.7 : role === 2 || role === 3 ? size * 0.7 : role === 6 ? size * 1.3 : size;
    c.beginPath();
    c.lineWidth = role === 6 ? 2.5 : 1.5;
    c.strokeStyle = c.fillStyle = shown.colour[CLASSES[key & 3]];
    for (const e of batch) {
      const x = placeX(view, shown, e), y = placeY(view, e);
      if (tiny) c.fillRect(x - 1, y - 4, 2, 8); else shape(c, role, x, y, r);
    }
    if (tiny) continue;
    if (role === 4) { c.fillStyle = shown.colour.page; c.fill(); c.stroke(); }
    else if (role === 1 || role === 2 || role === 7) c.fill();
    else if (role === 3) { c.fillStyle = shown.colour.page; c.fill(); c.stroke(); }
    else c.stroke();
  }
}

function texts(view, c, shown) {
  c.font = "11px " + view.font; c.textAlign = "center"; c.textBaseline = "bottom";
  for (const { y, lanes } of shown.rows) {
    if (view.rowHeight < 26) return;
    let free = -1e9;
    const events = [];
    for (const [, low, high] of lanes) for (let e = low; e < high; e++) if (!view.mask || view.mask[e]) events.push(e);
    if (lanes.length > 1) events.sort((one, two) => view.x[one] - view.x[two]);
    for (const e of events) {
      const text = view.short(e), x = placeX(view, shown, e), half = text.length * 3.1;
      if (!text || x - half < free) continue;
      c.fillStyle = view.cones && classOf(view, e) === 3 ? shown.colour.soft : shown.colour.ink;
      c.fillText(text, x, y - 10);
      free = x + half + 6;
    }
  }
}

// On top: what is selected, found, proved, marked.
function overlays(view, c, shown) {
  const { colour } = shown;
  for (const e of view.bookmarks) ring(view, c, shown, e, colour.mark, 9, [2, 2]);
  if (view.hits) hits(view, c, shown);
  for (const finding of view.findings) if (finding.wrong >= 0) badge(view, c, shown, finding.wrong, finding.broken);
  if (view.path) trail(view, c, shown, view.path, view.path.length, -1, colour.focus);
  const finding = view.findings[view.finding];
  if (finding) trail(view, c, shown, finding.steps.map(step => step.event), finding.chain || finding.steps.length, view.step, colour.find);
  if (view.hover >= 0) ring(view, c, shown, view.hover, colour.soft, 8, []);
  for (const e of [view.selected, view.second]) {
    if (e < 0) continue;
    band(view, c, shown, e);
    ring(view, c, shown, e, colour.ink, 10, []);
  }
}

function ring(view, c, shown, event, ink, r, dash) {
  const y = placeY(view, event);
  if (y === null) return;
  c.strokeStyle = ink; c.lineWidth = 2; c.setLineDash(dash);
  c.beginPath(); c.arc(placeX(view, shown, event), y, r, 0, 2 * Math.PI); c.stroke();
  c.setLineDash([]);
}

function badge(view, c, shown, event, broken) {
  // A finding is seen at any zoom: a small flag below its event.
  const y = placeY(view, event), x = placeX(view, shown, event);
  if (y === null || x < -8 || x > shown.width + 8) return;
  const low = y + Math.min(20, Math.max(7, view.rowHeight / 2.2));
  c.fillStyle = c.strokeStyle = shown.colour.find; c.lineWidth = 1.5;
  c.beginPath(); c.moveTo(x, y); c.lineTo(x, low); c.stroke();
  c.beginPath(); c.moveTo(x, low); c.lineTo(x + 9, low - 3.5); c.lineTo(x, low - 7); c.lineTo(x, low);
  if (broken) c.fill(); else c.stroke();
}

function hits(view, c, shown) {
  c.fillStyle = shown.colour.hit;
  c.beginPath();
  let drawn = 0;
  for (const e of view.hits.found) {
    const x = placeX(view, shown, e);
    if (x < 0 || x > shown.width) continue;
    const y = placeY(view, e);
    if (y === null || ++drawn > 4000) continue;
    c.moveTo(x - 3.5, y + 13); c.lineTo(x + 3.5, y + 13); c.lineTo(x, y + 8); c.lineTo(x - 3.5, y + 13);
  }
  c.fill();
}

function trail(view, c, shown, events, chain, step, ink) {
  // A proof: the chain as a thick line with arrow heads, then what the process did, each step numbered.
  const there = events.map(e => (e < 0 || placeY(view, e) === null ? null : [placeX(view, shown, e), placeY(view, e)]));
  c.strokeStyle = c.fillStyle = ink; c.lineWidth = 3;
  for (let at = 0; at + 1 < there.length; at++) {
    if (!there[at] || !there[at + 1] || at + 1 === chain) continue;
    const [x1, y1] = there[at], [x2, y2] = there[at + 1];
    c.setLineDash(at + 1 > chain ? [3, 4] : []);
    c.beginPath(); c.moveTo(x1, y1); c.lineTo(x2, y2); c.stroke();
    c.setLineDash([]);
    if (y1 !== y2) {
      const length = Math.hypot(x2 - x1, y2 - y1) || 1;
      c.beginPath(); arrowHead(c, x1, y1, x2 - (x2 - x1) / length * 9, y2 - (y2 - y1) / length * 9, 11); c.fill();
    }
  }
  c.font = "bold 10px " + view.font; c.textAlign = "center"; c.textBaseline = "middle";
  const apart = spread(there);
  there.forEach((place, at) => {
    if (!place) return;
    const [x, y] = apart[at];
    c.beginPath(); c.arc(x, y, at === step ? 11 : 8.5, 0, 2 * Math.PI);
    c.fillStyle = at === step ? ink : shown.colour.page; c.strokeStyle = ink; c.lineWidth = 2;
    c.fill(); c.stroke();
    c.fillStyle = at === step ? shown.colour.page : ink;
    c.fillText(String(at + 1), x, y + 0.5);
  });
}

function spread(there) {
  // Numbers that would lie on each other stand side by side.
  const placed = [];
  return there.map(place => {
    if (!place) return null;
    let [x, y] = place;
    while (placed.some(([a, b]) => Math.abs(a - x) < 17 && Math.abs(b - y) < 17)) x += 18;
    placed.push([x, y]);
    return [x, y];
  });
}

function band(view, c, shown, event) {
  // Where the event may lie on the reference clock, by the messages alone.
  const limits = view.axisName === "corrected" && view.limits(event), y = placeY(view, event);
  if (!limits || y === null) return;
  const at = value => Math.min(shown.width, Math.max(0, (value - view.x0) / (view.x1 - view.x0) * shown.width));
  const low = limits[0] === null ? 0 : at(limits[0]), high = limits[1] === null ? shown.width : at(limits[1]);
  c.fillStyle = shown.colour.band;
  c.fillRect(low, y - view.rowHeight / 2 + 1, Math.max(1, high - low), view.rowHeight - 2);
}

function axis(view, c, width) {
  c.fillStyle = view.colour.page; c.fillRect(0, 0, width, TOP);
  c.font = "11px " + view.font; c.textAlign = "center"; c.textBaseline = "middle"; c.lineWidth = 1;
  const step = nice((view.x1 - view.x0) / Math.max(2, width / 110), view.axisName === "logical");
  c.strokeStyle = view.colour.line; c.fillStyle = view.colour.soft;
  c.beginPath();
  for (let k = Math.max(view.axisName === "logical" ? 0 : -1e9, Math.ceil(view.x0 / step)); k * step <= view.x1; k++) {
    const x = (k * step - view.x0) / (view.x1 - view.x0) * width;
    c.moveTo(x, TOP - 5); c.lineTo(x, TOP);
    if (x > 24 && x < width - 24) c.fillText(view.tick(k * step, step), x, 10);
  }
  c.moveTo(0, TOP - 0.5); c.lineTo(width, TOP - 0.5);
  c.stroke();
}

function nice(step, whole) {
  const power = 10 ** Math.floor(Math.log10(step)), share = step / power;
  const made = (share > 5 ? 10 : share > 2 ? 5 : share > 1 ? 2 : 1) * power;
  return whole ? Math.max(1, made) : made;
}

// A canvas context, with strips of pixels stretched to rows.
function canvasStrips(c) {
  const buffer = document.createElement("canvas");
  c.strips = (image, tops, thick, width) => {
    buffer.width = image.width; buffer.height = image.height;
    buffer.getContext("2d").putImageData(image, 0, 0);
    c.imageSmoothingEnabled = false;
    tops.forEach((top, at) => c.drawImage(buffer, 0, at, image.width, 1, 0, top, width, thick));
  };
  return c;
}

// The same verbs, written down as SVG.
class SvgContext {
  constructor(width, height) {
    this.parts = []; this.path = ""; this.width = width; this.height = height;
    this.globalAlpha = 1; this.lineWidth = 1; this.fillStyle = this.strokeStyle = "#000"; this.font = "11px sans-serif";
    this.textAlign = "left"; this.textBaseline = "alphabetic"; this.dash = []; this.clips = 0; this.shift = [0, 0];
  }
  n(value) { return Math.round(value * 100) / 100; }
  at(x, y) { return `${this.n(x + this.shift[0])} ${this.n(y + this.shift[1])}`; }
  escape(text) { return String(text).replace(/[&<>"]/g, sign => `&#${sign.charCodeAt(0)};`); }
  clearRect() {}
  save() {}
  restore() { if (this.clips) { this.parts.push("</g>"); this.clips--; } }
  clip() {
    const id = "clip" + this.parts.length;
    this.parts.push(`<clipPath id="${id}"><path d="${this.path}"/></clipPath><g clip-path="url(#${id})">`);
    this.clips++;
  }
  translate(x, y) { this.shift = [this.shift[0] + x, this.shift[1] + y]; }
  setLineDash(dash) { this.dash = dash; }
  beginPath() { this.path = ""; }
  moveTo(x, y) { this.path += `M${this.at(x, y)}`; }
  lineTo(x, y) { this.path += `L${this.at(x, y)}`; }
  rect(x, y, w, h) { this.path += `M${this.at(x, y)}h${this.n(w)}v${this.n(h)}h${this.n(-w)}z`; }
  arc(x, y, r) { this.path += `M${this.at(x + r, y)}A${r} ${r} 0 1 1 ${this.at(x - r, y)}A${r} ${r} 0 1 1 ${this.at(x + r, y)}`; }
  put(tag) { this.parts.push(tag.replace("/>", `${this.globalAlpha < 1 ? ` opacity="${this.globalAlpha}"` : ""}/>`)); }
  fill() { if (this.path) this.put(`<path d="${this.path}" fill="${this.fillStyle}"/>`); }
  stroke() {
    const dash = this.dash.length ? ` stroke-dasharray="${this.dash}"` : "";
    if (this.path) this.put(`<path d="${this.path}" fill="none" stroke="${this.strokeStyle}" stroke-width="${this.lineWidth}"${dash}/>`);
  }
  fillRect(x, y, w, h) { const [a, b] = this.shift; this.put(`<rect x="${this.n(x + a)}" y="${this.n(y + b)}" width="${this.n(w)}" height="${this.n(h)}" fill="${this.fillStyle}"/>`); }
  fillText(text, x, y) {
    const [weight, size] = this.font.startsWith("bold") ? [' font-weight="bold"', parseFloat(this.font.slice(5))] : ["", parseFloat(this.font)];
    const anchor = { center: "middle", right: "end" }[this.textAlign] || "start";
    const down = this.textBaseline === "middle" ? size * 0.35 : this.textBaseline === "bottom" ? -size * 0.2 : 0;
    this.parts.push(`<text x="${this.n(x + this.shift[0])}" y="${this.n(y + this.shift[1] + down)}" font-family="sans-serif" font-size="${size}"${weight} text-anchor="${anchor}" fill="${this.fillStyle}">${this.escape(text)}</text>`);
  }
  strips(image, tops, thick, width) {
    const one = document.createElement("canvas");
    one.width = image.width; one.height = 1;
    tops.forEach((top, at) => {
      one.getContext("2d").putImageData(image, 0, -at);
      const [a, b] = this.shift;
      this.parts.push(`<image x="${a}" y="${this.n(top + b)}" width="${width}" height="${thick}" preserveAspectRatio="none" image-rendering="pixelated" href="${one.toDataURL()}"/>`);
    });
  }
  text() {
    while (this.clips) this.restore();
    return `<svg xmlns="http://www.w3.org/2000/svg" width="${this.width}" height="${this.height}" viewBox="0 0 ${this.width} ${this.height}">${this.parts.join("")}</svg>`;
  }
}
