"""Tables, figures and sentences of the measurements on real servers: figures 8, 9, 11 and 12 of paper 004."""

from __future__ import annotations

from statistics import median

from whence.studies.base import Cell, Figure, Panel, Series, Table
from whence.studies.domains.fit import (
    LARGE_FROM,
    TIMES,
    Kind,
    crossing,
    fit,
    gains,
    growth,
    kinds,
    medians,
    ratios,
    rounds,
    slope,
)
from whence.studies.domains.live_claims import BUS, FLAT, WAY_BUS, WAY_FLAT
from whence.studies.estimate import Estimate
from whence.studies.results import Results

PARTS = {
    "live": "all servers run",
    "live-way": "the servers of the way run",
    "live-durable": "the servers of the way run, durable",
}
STAMP_WORDS = {"full": "matrix", "updates": "updates"}
HOW = (
    "Every server is a process with TCP connections to the servers of its domains. All systems stand side by "
    "side and take turns; shown are medians over the rounds. "
)


def figures(results: Results) -> list[Figure]:
    """As many as were measured."""
    if not results.select(part="live"):
        return []
    return [
        _turn_around(results),
        _one_to_all(results),
        _gain(results),
        *([_beyond(results)] if results.select(part="live-way") else []),
    ]


def _ratio_series(results: Results, label: str, kind: Kind, measure: str) -> Series:
    found = ratios(results, kind, measure)
    return Series(label, tuple(map(float, found)), tuple(found.values()))


def _fitted(results: Results, kind: Kind, power: int) -> Series | None:
    """What the paper says of the shape, drawn through our processor times."""
    values = growth(results, kind, "cpu_us")
    found = fit(values, power)
    if found is None:
        return None
    y = tuple(Estimate(found.at(nodes), None, 1) for nodes in values)
    return Series(f"a + b n{'²' if power == 2 else ''}", tuple(map(float, values)), y)


def _growth_panel(results: Results, title: str, kind: Kind, power: int) -> Panel:
    measured = [_ratio_series(results, words, kind, measure) for measure, words in TIMES.items()]
    fitted = _fitted(results, kind, power)
    smallest = next(iter(medians(results, kind, "cpu_us")), 0)
    series = tuple(one for one in (*measured, fitted) if one is not None)
    return Panel(title, "servers", f"time of a message, {smallest} servers = 1", series)


def _turn_around(results: Results) -> Figure:
    caption = (
        "A message from one server to another and back, one at a time; the two are no routers and as far "
        "apart as two can be. "
        + HOW
        + "Processor time is that of all servers on the way. The paper's curves are not in our copy; it says "
        "“quadratic” of figure 8 and “linear” of figure 11, which the fitted lines stand for."
    )
    panels = (
        _growth_panel(results, "without domains (figure 8)", FLAT, 2),
        _growth_panel(results, "bus of √n (figure 11)", BUS, 1),
    )
    return Figure("live-turn-around", "Turn-around time on real servers", caption, panels)


def _one_to_all(results: Results) -> Figure:
    caption = (
        "One server sends a message to each other one and waits for all answers; the time is divided by the "
        "number of messages. Here servers work at the same time, on as many processors as there are, so that "
        "processor time (of all servers) is more than wall time."
    )
    panels = (
        _growth_panel(results, "without domains (figure 9)", FLAT._replace(workload="broadcast"), 2),
        _growth_panel(results, "bus of √n", BUS._replace(workload="broadcast"), 1),
    )
    return Figure("live-broadcast", "One to all on real servers", caption, panels)


def _gain(results: Results) -> Figure:
    panels = []
    for workload, words in (("ping-pong", "there and back (figure 12)"), ("broadcast", "one to all")):
        series = []
        for kind in kinds(results, "live"):
            if kind.workload == workload:
                label = kind.organisation if kind.stamps == "full" else f"{kind.organisation}, updates"
                found = medians(results, kind, "cpu_us")
                y = tuple(Estimate(value / 1000, None, 1) for value in found.values())
                series.append(Series(label, tuple(map(float, found)), y))
        panels.append(Panel(words, "servers", "processor time of a message, ms", tuple(series), y_log=True))
    caption = (
        "With and without domains, absolute. A small system pays for the hops of the bus; in a large one the "
        "matrix of all servers costs more than three hops with small ones."
    )
    return Figure("live-gain", "What domains gain on real servers", caption, tuple(panels))


def _beyond(results: Results) -> Figure:
    caption = (
        "As figure 12, but only the servers that a message passes are processes; all others are members that "
        "never come. So there may be more of them than a machine can run, and the part that grows shows "
        "itself also on the bus."
    )
    panels = (
        _growth_panel(results, "without domains", WAY_FLAT, 2),
        _growth_panel(results, "bus of √n", WAY_BUS, 1),
    )
    return Figure("live-beyond", "Beyond 150 servers", caption, panels)


# Tables


def tables(results: Results) -> list[Table]:
    """Every size of every curve, and how each grows."""
    found = kinds(results, *PARTS)
    if not found:
        return []
    made = [_growth(results, found)]
    for part, words in PARTS.items():
        chosen = [kind for kind in found if kind.part == part]
        if chosen:
            made.append(_times(results, part, words, chosen))
    return made


def _times(results: Results, part: str, words: str, chosen: list[Kind]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for kind in chosen:
        wall, cpu = (rounds(results, kind, measure) for measure in ("wall_us", "cpu_us"))
        wall_ratio, cpu_ratio = (ratios(results, kind, measure) for measure in ("wall_us", "cpu_us"))
        hops = medians(results, kind, "live_hops")
        for nodes, values in wall.items():
            found = list(values.values())
            rows.append((
                kind.workload, kind.organisation, STAMP_WORDS[kind.stamps], nodes, len(found),
                round(hops[nodes]) if nodes in hops else None,
                median(found), f"{min(found):,.0f} to {max(found):,.0f}", wall_ratio[nodes].mean,
                median(cpu[nodes].values()), cpu_ratio[nodes].mean,
            ))  # fmt: skip
    columns = (
        *(
            "workload",
            "domains",
            "stamps",
            "servers",
            "rounds",
            "hops",
            "wall, µs",
            "from round to round, µs",
        ),
        *("wall, ratio", "processor, µs", "processor, ratio"),
    )
    note = (
        "Of a message there and back; hops one way. In a broadcast of all messages, divided by their number. "
        "Ratios to the smallest system of the same round, then the median. Local: to an agent on the same "
        "server, which needs no clock; what grows there is the list of links that is looked through."
    )
    return Table(part, f"Measured times: {words}", columns, tuple(rows), note)


def _growth(results: Results, found: list[Kind]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for kind in found:
        if kind.workload == "local":
            continue
        cpu, wall = (growth(results, kind, measure) for measure in ("cpu_us", "wall_us"))
        shares = [made.share if (made := fit(cpu, power)) is not None else None for power in (1, 2)]
        rows.append((
            PARTS[kind.part], kind.workload, kind.organisation, STAMP_WORDS[kind.stamps],
            f"{min(cpu)} to {max(cpu)}", slope(cpu), slope(wall), *shares,
        ))  # fmt: skip
    columns = (
        *("which", "workload", "domains", "stamps", "servers", "processor, slope", "wall, slope"),
        *("R² of a + b n", "R² of a + b n²"),
    )
    note = (
        f"Slopes on logarithmic axes over {LARGE_FROM} servers and more; R² of processor time over all. A "
        "constant part keeps every slope below that of the clock's work."
    )
    return Table("live-growth", "How measured times grow", columns, tuple(rows), note)


def finding(results: Results) -> str:
    """The measured gain in one sentence; empty if nothing large was measured."""
    flat, bus = growth(results, FLAT, "cpu_us"), growth(results, BUS, "cpu_us")
    slopes = slope(flat), slope(bus)
    if slopes[0] is None or slopes[1] is None:
        return ""
    most = max(flat)
    gained = gains(results, FLAT, BUS, "cpu_us")
    where = crossing(gained)
    from_on = f"the bus is faster from {where:.0f} servers on" if where else "the curves do not cross"
    return (
        f"On real servers a message there and back takes {flat[most]:.1f} times as long in a system of "
        f"{most} as in one of {min(flat)} without domains and {bus[most]:.1f} times on the bus (processor "
        f"time; log-log slopes {slopes[0]:.2f} and {slopes[1]:.2f} from {LARGE_FROM} servers on); {from_on}, "
        f"{gained[most]:.1f} times as fast with {most}."
    )
