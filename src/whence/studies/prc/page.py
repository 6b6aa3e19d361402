"""The page of the PRC study: sentences, tables, figures."""

from __future__ import annotations

from collections.abc import Callable

from whence.studies.base import Cell, Figure, Panel, Series, Table
from whence.studies.claims import printed
from whence.studies.estimate import Estimate, estimate
from whence.studies.prc import measures as m
from whence.studies.prc.claims import CLAIMS
from whence.studies.prc.measures import BASELINES, FLOODING, FRONTIER, GROWTH, HOUR, OPENING
from whence.studies.results import Results, farthest

_PRINTED = printed(CLAIMS)


def _view(nodes: int) -> float | None:
    """The size of a view that the paper prints for such a group."""
    return _PRINTED.get(f"003-view-{nodes}")


# Sentences that hold the measured numbers


def findings(results: Results) -> list[str]:
    """The sentences at the top of the page."""
    return [*_hour(results), _views(results), _table_1(results), *_frontier(results), _judged(results)]


def _sizes(results: Results) -> list[int]:
    return sorted({int(row.labels["nodes"]) for row in results.select(part=HOUR)})


def _mean(results: Results, measure: str, nodes: int) -> float:
    found = results.estimate(measure, part=HOUR, nodes=nodes)
    if found is None:
        raise ValueError(f"no hour of {nodes} processes has {measure}")
    return found.mean


def _hour(results: Results) -> list[str]:
    largest = _sizes(results)[-1]
    off = farthest(results.column("law_off_percent", part=HOUR), 0)
    space = ", ".join(
        f"{_mean(results, 'space_late', nodes):,.0f} entries with {nodes:,} processes"
        for nodes in _sizes(results)
    )
    left = sum(results.column("left", part=HOUR))
    early, late = (_mean(results, f"control_{when}", largest) for when in ("early", "late"))
    return [
        "In every minute with broadcasts, E is rate x delay x safe degree, "
        f"at most {abs(off or 0):.2f} % off.",
        f"At 2.5 s a process holds {space}; when the hour is over, {left:.0f} entries are left in all.",
        f"With {largest:,} processes, control traffic falls from {early:.2f} to {late:.2f} messages per "
        f"process and second as the delay grows to 2.5 s ({100 * (1 - late / early):.0f} % less), and is "
        "0 once nobody shuffles.",
    ]


def _views(results: Results) -> str:
    found = [
        f"{_mean(results, 'degree', nodes):.1f} with {nodes:,} processes"
        + (f" (paper: {view:g})" if (view := _view(nodes)) is not None else "")
        for nodes in _sizes(results)
    ]
    return f"Safe links of a process: {', '.join(found)}."


def _table_1(results: Results) -> str:
    def exponent(measure: str, protocol: str, axis: str) -> str:
        return f"{m.power(m.along(results, measure, protocol, axis))[1]:.2f}"

    return (
        "Table 1 holds as exponents: with the group, a message of vector grows by "
        f"{exponent('numbers_per_message', 'vector', 'nodes')} and of link memory by "
        f"{exponent('numbers_per_message', 'link_memory', 'nodes')}; memory grows by "
        f"{exponent('space', 'reliable', 'nodes')} for reliable, "
        f"{exponent('space', 'vector', 'nodes')} for vector, "
        f"{exponent('space', 'preventive', 'nodes')} for preventive and "
        f"{exponent('space', 'link_memory', 'nodes')} for link memory, whose own terms are the degree "
        f"({exponent('space', 'link_memory', 'degree')}) and what is in transit "
        f"({exponent('space', 'link_memory', 'delay_ms')})."
    )


def _frontier(results: Results) -> list[str]:
    sentences = []
    for nodes in m.sizes(results, "prc")[-3:]:
        rates = [f"{m.even_rate(results, protocol, nodes):,.0f} ({protocol})" for protocol in FLOODING]
        sentences.append(
            f"At 300 ms and {nodes:,} processes, PRC remembers less than the others up to "
            f"{' and '.join(rates)} broadcasts per second of the whole group."
        )
    nodes = m.sizes(results, "vector")[-1]
    cheap = m.even_rate_bytes(results, "vector", nodes)
    words = "at no rate" if cheap is None else f"from {cheap:.2g} broadcasts per second on"
    return [*sentences, f"In a group of {nodes}, PRC sends fewer bytes of control than vector {words}."]


def _judged(results: Results) -> str:
    rows = [row for row in results.rows if row.judged]
    kept = sum(row.ok for row in rows)
    moving = sum(row.labels["part"] == OPENING for row in rows)
    return (
        f"The verifier judged {len(rows)} recorded runs, {moving} with changing links: "
        f"{kept} kept every promise."
    )


# Tables


HOUR_NOTE = (
    "Per process. At 1 ms: minutes 5 to 15. At 2.5 s: minutes 41 to 50. End: from minute 52 on. Off: in the "
    "minute in which E is farthest from rate x delay x safe degree."
)
TABLE_1_NOTE = (
    "Exponents of y = factor x^exponent, fitted along one axis while the others stand still: 0 is "
    "constant, 1 linear. The time of a delivery is counted in entries that it reads or writes; nothing "
    "ever waits for vector (W = 0), for flooding over FIFO links brings first copies in causal order. Our "
    "vector sends what changed since the sender's last message: with everybody broadcasting, about half of "
    "all entries."
)
LINKS_NOTE = (
    "For both directions of a link, every hop counted. Bytes: all packets that are no messages, and "
    "buffers, over the links that were opened. A barrier's new neighbour is told all that was delivered, "
    "of each source the newest: few packets, but as large as the group."
)
FRONTIER_NOTE = (
    "At 300 ms, in broadcasts per second of the whole group. Memory: up to this rate PRC holds less than "
    "the other. In transit: that rate with vector x delay. Where it says straight line, the entries of "
    "vector and barrier are those of smaller groups, extended; PRC's own line is extended where the rate "
    "is above the largest measured. Bytes: from this rate on PRC sends fewer bytes of control, opening "
    "links included; the links of vector and barrier are static, which is to their advantage."
)


def tables(results: Results) -> list[Table]:
    """All tables but the headline."""
    return [degrees(results), table_1(results), links(results), frontier(results), costs(results)]


def hours(results: Results) -> Table:
    """The hour in numbers: the headline."""
    rows: list[tuple[Cell, ...]] = []
    for nodes in _sizes(results):
        cells = [
            results.estimate(name, part=HOUR, nodes=nodes)
            for name in (
                "degree", "law_off_percent", "space_early", "space_bound", "space_late", "space_end",
                "control_early", "control_late", "control_end",
            )
        ]  # fmt: skip
        rows.append((nodes, _view(nodes), *cells))
    columns = (
        "processes", "view, paper", "view", "E off by, %", "space, 1 ms", "space, 300 ms", "space, 2.5 s",
        "space, end", "control/s, 1 ms", "control/s, 2.5 s", "control/s, end",
    )  # fmt: skip
    return Table("hour", "The paper's hour", columns, tuple(rows), HOUR_NOTE)


def degrees(results: Results) -> Table:
    """What stands behind Figure 5b: the safe degree, and the buffers of links that are being opened."""
    names = ("degree", "degree_late", "buffers_per_view", "hops_per_link")
    rows = tuple(
        (nodes, _view(nodes), *(results.estimate(name, part=HOUR, nodes=nodes) for name in names))
        for nodes in _sizes(results)
    )
    columns = (
        "processes", "view, paper", "safe degree, 1 ms", "at 2.5 s", "buffers per link", "hops per link",
    )  # fmt: skip
    note = "Buffers per link, at 2.5 s: entries in buffers of a process over its safe degree."
    return Table("figure-5b", "Views and buffers", columns, rows, note)


def table_1(results: Results) -> Table:
    """Growth of each cost along each axis."""
    measures = {
        "numbers_per_message": "on a message",
        "work_per_delivery": "to deliver",
        "space": "memory",
    }
    rows: list[tuple[Cell, ...]] = []
    base = m.crossing(results)
    for protocol in BASELINES:
        for measure, words in measures.items():
            at_base = results.estimate(measure, **{**base, "protocol": protocol})
            fits = []
            for axis in m.AXES:
                points = m.along(results, measure, protocol, axis)
                fits.append(round(m.power(points)[1], 2) if len(points) > 1 else None)
            rows.append((protocol, words, at_base, *fits))
    heads = tuple(f"against {words}" for words in m.AXES.values())
    place = f"{base['nodes']} processes, {base['degree']} links, {base['delay_ms']} ms"
    columns = ("protocol", "cost", f"at {place}", *heads)
    return Table("table-1", "Table 1, measured", columns, tuple(rows), TABLE_1_NOTE)


def links(results: Results) -> Table:
    """What a new link costs."""
    rows: list[tuple[Cell, ...]] = []
    for protocol in ("reliable", "vector"):
        hops = results.estimate("hops_per_link", part=GROWTH, protocol=protocol)
        rows.append((protocol, "any", "any", hops, 0))
    for nodes in m.sizes(results, "barrier"):
        hops, size = (
            results.estimate(name, part=FRONTIER, protocol="barrier", nodes=nodes)
            for name in ("hops_per_link", "bytes_per_link")
        )
        rows.append(("barrier", nodes, "any", hops, size))
    for row in results.select(part=OPENING):
        made = (row.measure("hops_per_link"), row.measure("bytes_per_link"))
        rows.append((str(row.labels["protocol"]), row.labels["nodes"], row.labels["rate"], *made))
    columns = ("protocol", "processes", "broadcasts/s", "control hops", "bytes")
    return Table("links", "Control for a new link", columns, tuple(rows), LINKS_NOTE)


def frontier(results: Results) -> Table:
    """Where PRC costs as much as the others."""
    rows: list[tuple[Cell, ...]] = []
    measured = m.sizes(results, "vector")
    for nodes in m.sizes(results, "prc"):
        rates = [m.even_rate(results, protocol, nodes) for protocol in FLOODING]
        sent: list[Cell] = [None, None]
        if nodes in measured:
            sent = [_rounded(m.even_rate_bytes(results, protocol, nodes)) for protocol in FLOODING]
        how = "measured" if nodes in measured else "straight line"
        delay_s = m.BOUND_MS / 1_000
        rows.append((nodes, how, *map(_rounded, rates), _rounded(rates[0] * delay_s), *sent))
    columns = (
        "processes", "how", "memory: even with vector", "with barrier", "in transit", "bytes: beats vector",
        "barrier",
    )  # fmt: skip
    return Table(
        "frontier", "The frontier: PRC beside vector and barrier", columns, tuple(rows), FRONTIER_NOTE
    )


def _rounded(value: float | None) -> float | str:
    return "never" if value is None else float(f"{value:.3g}")


def costs(results: Results) -> Table:
    """The measured costs behind the frontier."""
    rows: list[tuple[Cell, ...]] = []
    for protocol in ("prc", *FLOODING):
        for nodes in m.sizes(results, protocol):
            sent = dict(m.cost(results, "bytes_per_s", protocol, nodes))
            for rate, space in m.cost(results, "space", protocol, nodes):
                rows.append((protocol, nodes, rate, space, sent[rate]))
    columns = (
        "protocol",
        "processes",
        "broadcasts/s",
        "entries of a process",
        "control bytes/s of a process",
    )
    return Table(
        "costs", "Costs at 300 ms", columns, tuple(rows), "Measured, per process, all broadcasts together."
    )


# Figures


SPACE_CAPTION = (
    "Figure 5a. Entries of expected messages and in buffers, of a process, in the mean over each minute "
    "and over the seeds; beside it, the delay of all links. Broadcasts from minute 2 to 50, 10 a second. "
    "Space follows delay and degree, and is gone seconds after the last broadcast."
)
LAW_CAPTION = (
    "Entries in E alone beside rate x delay x safe degree, minute by minute: how far they are off. With "
    "the same delay everywhere a copy is awaited for one delay in the mean. The paper's delay has a kink "
    "that ours has not: a straight line to 2.5 s passes 200 ms at minute 17, where its text has 300."
)
CONTROL_CAPTION = (
    "Figure 5b. Control messages (α, β, π, ρ, every hop) that a process receives in a second, in the mean "
    "over each minute, and the safe degree behind it: only safe links are shuffled, so traffic falls as "
    "the delay grows. Joins in the first minute; the last shuffle is at minute 50."
)
GROWTH_CAPTION = (
    "Table 1 against the number of processes, all else equal. Logarithmic axes: a slope of 1 is linear, a "
    "level line constant. Reliable and preventive coincide where one lies on the other."
)
MEMORY_CAPTION = (
    "The memory of a process against the in-degree and the messages in transit on a link (rate x delay): "
    "both multiply for link memory, the others do not care."
)
RATES_CAPTION = (
    "A group of so many processes, delay 300 ms, against the broadcasts per second of the whole group. "
    "Left: PRC's entries rise with the rate; those of vector and barrier nearly stand still. Right: "
    "control bytes that a process sends in a second. A vector's grow with the group, a barrier's with what "
    "is in transit; PRC's message costs the same in a group of any size, and opening links a little."
)
FRONTIER_CAPTION = (
    "The rate at which PRC holds as much as the others, against the size of the group, delay 300 ms: below "
    "a line PRC remembers less, above it more. Beyond the largest group of vector and barrier these go on "
    "in a straight line."
)


def figures(results: Results) -> list[Figure]:
    """All figures."""
    return [
        _space(results),
        _law(results),
        _control(results),
        _growth(results),
        _memory(results),
        _rates(results),
        _frontier_plot(results),
    ]


def _over_the_hour(results: Results, value: Callable[[m.Minute], float]) -> tuple[Series, ...]:
    lines = []
    for nodes in _sizes(results):
        hours = [m.minutes(row.counted) for row in results.select(part=HOUR, nodes=nodes)]
        ends = [each.minute + 1 for each in hours[0]]
        means = [_mean_of([value(hour[at]) for hour in hours]) for at in range(len(ends))]
        lines.append(Series(f"{nodes:,} processes", tuple(map(float, ends)), tuple(means)))
    return tuple(lines)


def _mean_of(values: list[float]) -> Estimate:
    """Without an interval: sixty of them would hide the line."""
    return Estimate(estimate(values).mean, None, len(values))


def _delay(results: Results) -> Series:
    hour = m.minutes(results.select(part=HOUR)[0].counted)
    return _series("delay", [(each.minute + 1, each.delay_ms) for each in hour])


def _series(name: str, points: list[tuple[float, float]], *, joined: bool = True) -> Series:
    return Series(
        name, tuple(float(x) for x, _ in points), tuple(Estimate(y, None, 1) for _, y in points), joined
    )


def _space(results: Results) -> Figure:
    panels = (
        Panel("local space", "minute", "entries of a process", _over_the_hour(results, lambda at: at.space)),
        Panel("delay of all links", "minute", "ms", (_delay(results),)),
    )
    return Figure("figure-5a", "Figure 5a: space over the hour", SPACE_CAPTION, panels)


def _law(results: Results) -> Figure:
    lines = []
    for nodes in _sizes(results):
        hour = m.minutes(results.select(part=HOUR, nodes=nodes)[0].counted)[3 : m.STOP]
        lines.append(
            _series(
                f"{nodes:,}",
                [(each.minute + 1, 100 * (each.expected / each.law - 1)) for each in hour],
            )
        )
    panel = Panel("E off its law, by number of processes", "minute", "%", tuple(lines))
    return Figure("law", "E = rate x delay x safe degree", LAW_CAPTION, (panel,))


def _control(results: Results) -> Figure:
    panels = (
        Panel(
            "control traffic", "minute", "per process and s", _over_the_hour(results, lambda at: at.control)
        ),
        Panel("safe degree", "minute", "links of a process", _over_the_hour(results, lambda at: at.degree)),
    )
    return Figure("figure-5b", "Figure 5b: control traffic over the hour", CONTROL_CAPTION, panels)


def _lines(results: Results, measure: str, axis: str) -> tuple[Series, ...]:
    return tuple(_series(protocol, m.along(results, measure, protocol, axis)) for protocol in BASELINES)


def _growth(results: Results) -> Figure:
    panels = tuple(
        Panel(title, "processes", unit, _lines(results, measure, "nodes"), x_log2=True, y_log=True)
        for title, unit, measure in (
            ("message overhead", "numbers on a message", "numbers_per_message"),
            ("delivery", "entries read or written", "work_per_delivery"),
            ("local space", "entries of a process", "space"),
        )
    )
    return Figure("growth", "Table 1 against the group", GROWTH_CAPTION, panels)


def _memory(results: Results) -> Figure:
    panels = tuple(
        Panel(title, words, "entries of a process", _lines(results, "space", axis), x_log2=True, y_log=True)
        for title, axis, words in (
            ("in-degree", "degree", "links of a process"),
            ("in transit", "delay_ms", "messages in transit on a link"),
        )
    )
    return Figure("memory", "Table 1 against degree and transit", MEMORY_CAPTION, panels)


def _chosen(results: Results) -> list[int]:
    """Two groups to show: a line for each protocol and group, six at the most."""
    common = [nodes for nodes in m.sizes(results, "prc") if nodes in m.sizes(results, "vector")]
    return [common[0], common[-1]]


def _costs(results: Results, measure: str) -> tuple[Series, ...]:
    return tuple(
        _series(f"{protocol}, {nodes}", m.cost(results, measure, protocol, nodes))
        for protocol in ("prc", *FLOODING)
        for nodes in _chosen(results)
    )


def _rates(results: Results) -> Figure:
    panels = tuple(
        Panel(title, "broadcasts per second", unit, _costs(results, measure), x_log2=True, y_log=True)
        for title, unit, measure in (
            ("memory", "entries of a process", "space"),
            ("control bytes", "bytes/s of a process", "bytes_per_s"),
        )
    )
    return Figure("costs", "Costs against the rate", RATES_CAPTION, panels)


def _frontier_plot(results: Results) -> Figure:
    lines = tuple(
        _series(
            f"PRC even with {protocol}",
            [(nodes, m.even_rate(results, protocol, nodes)) for nodes in m.sizes(results, "prc")],
        )
        for protocol in FLOODING
    )
    panel = Panel("the frontier of memory", "processes", "broadcasts per second", lines, True, True)
    return Figure("frontier", "Where PRC remembers as much as vector and barrier", FRONTIER_CAPTION, (panel,))
