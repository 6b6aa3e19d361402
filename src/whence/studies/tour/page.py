"""The chapters of the tour: for each system a figure, a small table beside the paper, and one line.

What a paper prints comes from the claims of its study, by their ids.
"""

from __future__ import annotations

from typing import NamedTuple

from whence.protocols import registry
from whence.studies.base import Cell, Figure, Panel, Series, Table
from whence.studies.claims import load, printed
from whence.studies.cuts import points
from whence.studies.results import Estimate, Label, Results
from whence.studies.tour import words

STUDIES = {"000": "vcube", "001": "oppnet", "002": "deadline", "003": "prc", "004": "domains"}


class Chapter(NamedTuple):
    """One system."""

    paper: str  # its number
    title: str
    environment: str
    how: str
    figure: Figure
    table: Table
    line: str  # for a terminal, and the top of the page
    study: str

    @property
    def command(self) -> str:
        """Where to go on."""
        return f"whence study {self.study}"


def _chapter(
    paper: str, protocol: str, panel: Panel, rows: list[tuple[Cell, ...]], note: str, line: str
) -> Chapter:
    said, name = words.CHAPTERS[paper], f"chapter-{paper}"
    return Chapter(
        paper,
        said.title,
        registry.lookup(protocol).environment,
        said.how,
        Figure(name, said.figure, said.caption, (panel,)),
        Table(name, "Beside the paper", ("what", "paper", "here"), tuple(rows), note),
        line,
        STUDIES[paper],
    )


def chapters(results: Results) -> list[Chapter]:
    """All five; one whose runs failed is left out."""
    made = (_vcube(results), _barrier(results), _deadline(results), _prc(results), _domains(results))
    return [chapter for chapter in made if results.select(chapter=chapter.paper)]


def _paper(number: str) -> dict[str, float]:
    return printed(load(f"whence.studies.{STUDIES[number]}"))


def _sizes(results: Results, **labels: Label) -> list[int]:
    return sorted({int(row.labels["nodes"]) for row in results.select(**labels)})


def _seen(results: Results, chapter: str) -> str:
    """What the verifier has judged of a chapter."""
    rows = [row for row in results.select(chapter=chapter) if row.judged]
    deliveries = sum(int(row.verdict["deliveries"]) for row in rows)
    return f"{len(rows)} runs, {deliveries:,} deliveries judged"


def _text(found: Estimate | None, unit: str, digits: int = 1) -> str:
    return "–" if found is None else f"{found.mean:.{digits}f}{unit}"


def _vcube(results: Results) -> Chapter:
    paper = _paper("000")
    where: dict[str, Label] = {"chapter": "000", "case": "aggregation"}
    sizes = _sizes(results, **where)
    ours = {nodes: results.estimate("reduction_percent", **where, nodes=nodes) for nodes in sizes}
    known = {nodes: paper.get(f"000-table-1-reduction-{nodes}") for nodes in sizes}
    series = (points("paper, Table 1", known.items()), points("here, R0", ours.items()))
    panel = Panel("packets that aggregation saves", "nodes", "% of packets", series, x_log2=True)
    rows: list[tuple[Cell, ...]] = [
        (f"packets saved, {nodes} nodes, %", known[nodes], ours[nodes]) for nodes in sizes
    ]
    largest = sizes[-1] if sizes else 0
    kept, plain = (
        results.estimate("delivery_ms", chapter="000", case=case, nodes=largest)
        for case in ("aggregation", "plain")
    )
    change = "–"
    if kept is not None and plain is not None:
        change = f"{100 * (kept.mean / plain.mean - 1):+.1f} %".replace("-", "−")
    note = f"Delivery with aggregation against without, {largest} nodes: {change}. {_seen(results, '000')}."
    line = (
        f"000 VCube: aggregation saves {_text(ours.get(largest), ' %')} of the packets of {largest} nodes "
        f"(paper: {known.get(largest) or 0:g} %); delivery changes by {change}"
    )
    return _chapter("000", "vcube", panel, rows, note, line)


def _barrier(results: Results) -> Chapter:
    paper = _paper("001")
    rows: list[tuple[Cell, ...]] = []
    series: list[Series] = []
    lifetimes = (10, 20)
    for what, measure, claim in (
        ("on its way", "reception_s", "delay"),
        ("held for its past", "held_s", "latency"),
    ):
        known = {f"{at}′": paper.get(f"001-table-III-{claim}-mean-{at}") for at in lifetimes}
        ours = {at: results.estimate(measure, chapter="001", case=f"{at}, safe") for at in known}
        series.append(points(f"{what}, paper", known.items(), joined=False))
        series.append(points(f"{what}, here", ours.items(), joined=False))
        rows += [(f"{what}, lifetime {at}, s", known[at], ours[at]) for at in known]
    broken = {
        mode: int(sum(results.total("causal", chapter="001", case=f"{at}′, {mode}") for at in lifetimes))
        for mode in ("published", "safe")
    }
    panel = Panel("a message between buses", "lifetime", "seconds", tuple(series), y_log=True)
    way, held = (
        results.estimate(measure, chapter="001", case="20′, safe") for measure in ("reception_s", "held_s")
    )
    violations = f"codes as printed {broken['published']}, ours {broken['safe']}"
    note = f"Causal violations: {violations}. {_seen(results, '001')}."
    line = (
        f"001 barriers: between buses a message is {_text(way, ' s', 0)} on its way and held for "
        f"{_text(held, ' s', 2)} (paper: {paper.get('001-table-III-delay-mean-20', 0):g} and "
        f"{paper.get('001-table-III-latency-mean-20', 0):g} s, lifetime 20′)"
    )
    return _chapter("001", "oppnet", panel, rows, note, line)


def _deadline(results: Results) -> Chapter:
    paper = _paper("002")
    sizes = _sizes(results, chapter="002")
    shares = {
        case: {
            nodes: results.estimate("delivered_percent", chapter="002", case=case, nodes=nodes)
            for nodes in sizes
        }
        for case in ("TDCA", "ODCA")
    }
    known = {16: paper.get("002-figure-9-rise-low"), 100: paper.get("002-figure-9-rise-high")}
    rows: list[tuple[Cell, ...]] = []
    rises: dict[int, float] = {}
    for nodes in sizes:
        tdca, odca = shares["TDCA"][nodes], shares["ODCA"][nodes]
        if tdca is not None and odca is not None:
            rises[nodes] = 100 * (odca.mean / tdca.mean - 1)
            rows.append((f"ODCA over TDCA, {nodes} members, %", known.get(nodes), round(rises[nodes], 1)))
    if rows:
        rows.append(("ODCA over TDCA, 100 members, %", known[100], None))
    series = tuple(points(case, found.items()) for case, found in shares.items())
    panel = Panel("delivered in order before the deadline", "members", "% of what was sent", series)
    said = ", ".join(f"{rise:.0f} % at {nodes}" for nodes, rise in rises.items())
    late = int(results.total("late", chapter="002"))
    note = f"The paper prints the two ends of the rise only. {_seen(results, '002')}, {late} of them late."
    line = (
        f"002 deadlines: asking for lost messages delivers {said} more, in a network fitted to that (paper: "
        f"{known[16]} % at 16, {known[100]} % at 100)"
    )
    return _chapter("002", "odca", panel, rows, note, line)


def _prc(results: Results) -> Chapter:
    where: dict[str, Label] = {"chapter": "003", "case": "static links"}
    sizes = _sizes(results, **where)
    found = {
        protocol: {
            nodes: results.estimate("control_bytes_per_packet", **where, nodes=nodes, protocol=protocol)
            for nodes in sizes
        }
        for protocol in ("prc", "vector")
    }
    series = tuple(points(protocol, values.items()) for protocol, values in found.items())
    panel = Panel("control information of a packet", "nodes", "bytes", series, x_log2=True)
    rows: list[tuple[Cell, ...]] = []
    for protocol, law in (("prc", "O(1)"), ("vector", "O(N)")):
        cells = [found[protocol][nodes] for nodes in (sizes[0], sizes[-1])] if sizes else []
        if len(cells) == 2 and cells[0] and cells[1]:
            rows.append(
                (
                    f"{protocol}, from {sizes[0]} to {sizes[-1]} nodes, times",
                    law,
                    round(cells[1].mean / cells[0].mean, 2),
                )
            )
    opened = results.select(chapter="003", case="links that open and close")
    broken = int(results.total("causal", chapter="003"))
    largest = sizes[-1] if sizes else 0
    prc, vector = (_text(found[protocol].get(largest), "", 0) for protocol in ("prc", "vector"))
    note = (
        f"Control bytes of a packet; the paper's column is its Table 1. {len(opened)} runs over links that "
        f"peer sampling opens and closes: {broken} violations. {_seen(results, '003')}."
    )
    line = (
        f"003 PRC: a packet has {prc} control bytes at {largest} nodes, with vector clocks {vector} (paper: "
        "O(1) against O(N))"
    )
    return _chapter("003", "prc", panel, rows, note, line)


def _domains(results: Results) -> Chapter:
    sizes = _sizes(results, chapter="004")
    cases = {"flat, full": "one domain", "bus, full": "bus of √n"}
    found = {
        case: {
            nodes: results.estimate("stamp_bytes", chapter="004", case=case, nodes=nodes) for nodes in sizes
        }
        for case in cases
    }
    laws = {"flat, full": lambda n: 4.0 * n * n, "bus, full": lambda n: 12.0 * n}
    series = [points(f"{name}, here", found[case].items()) for case, name in cases.items()]
    series += [
        points(f"{name}, paper", ((n, laws[case](n)) for n in sizes), joined=False)
        for case, name in cases.items()
    ]
    panel = Panel(
        "stamp of a message", "servers", "bytes, 4 an entry", tuple(series), x_log2=True, y_log=True
    )
    rows: list[tuple[Cell, ...]] = [
        (f"{name}, {nodes} servers, bytes", laws[case](nodes), found[case][nodes])
        for case, name in cases.items()
        for nodes in sizes[-1:]
    ]
    largest = sizes[-1] if sizes else 0
    flat, bus = (found[case].get(largest) for case in cases)
    note = f"Exact. {_seen(results, '004')}."
    line = (
        f"004 domains: a stamp between {largest} servers has {_text(bus, ' bytes', 0)} on the bus and "
        f"{_text(flat, '', 0)} in one domain (paper: 12 n and 4 n²)"
    )
    return _chapter("004", "domains", panel, rows, note, line)


def common(results: Results) -> Table:
    """One workload under every protocol."""
    rows: list[tuple[Cell, ...]] = []
    chosen = dict.fromkeys(str(row.labels["protocol"]) for row in results.select(chapter="common"))
    for protocol in chosen:
        where: dict[str, Label] = {"chapter": "common", "protocol": protocol}
        info = registry.lookup(protocol)
        rows.append((
            protocol,
            int(results.total("causal", **where)),
            "yes" if info.promises.causal else "no",
            results.estimate("delivery_ms", **where),
            results.estimate("packets_per_message", **where),
            results.estimate("control_bytes_per_packet", **where),
            results.estimate("entries_peak_max", **where),
            "FIFO" if info.fifo_links else "any order",
            info.environment,
        ))  # fmt: skip
    columns = (
        *("protocol", "causal violations", "promises order", "latency, ms", "packets a message"),
        *("control bytes a packet", "peak entries at a node", "links", "made for"),
    )
    return Table("common", "One workload under every protocol", columns, tuple(rows), words.COMMON_NOTE)
