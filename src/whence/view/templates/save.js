"use strict";
// What is in sight, for elsewhere: pictures, Perfetto, ShiViz.

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
