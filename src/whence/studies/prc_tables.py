"""The tables of the PRC study."""

from __future__ import annotations

from whence.studies import prc_measures as m
from whence.studies.base import Cell, Table
from whence.studies.prc_expect import VIEWS
from whence.studies.prc_runs import BASELINES, FLOODING, FRONTIER, GROWTH, HOUR, OPENING
from whence.studies.results import Results

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
        rows.append((nodes, VIEWS.get(nodes), *cells))
    columns = (
        "processes", "view, paper", "view", "E off by, %", "space, 1 ms", "space, 300 ms", "space, 2.5 s",
        "space, end", "control/s, 1 ms", "control/s, 2.5 s", "control/s, end",
    )  # fmt: skip
    return Table("hour", "The paper's hour", columns, tuple(rows), HOUR_NOTE)


def degrees(results: Results) -> Table:
    """What stands behind Figure 5b: the safe degree, and the buffers of links that are being opened."""
    names = ("degree", "degree_late", "buffers_per_view", "hops_per_link")
    rows = tuple(
        (nodes, VIEWS.get(nodes), *(results.estimate(name, part=HOUR, nodes=nodes) for name in names))
        for nodes in _sizes(results)
    )
    columns = (
        "processes", "view, paper", "safe degree, 1 ms", "at 2.5 s", "buffers per link", "hops per link",
    )  # fmt: skip
    note = "Buffers per link, at 2.5 s: entries in buffers of a process over its safe degree."
    return Table("figure-5b", "Views and buffers", columns, rows, note)


def _sizes(results: Results) -> list[int]:
    return sorted({int(row.labels["nodes"]) for row in results.select(part=HOUR)})


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
