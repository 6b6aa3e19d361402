"""The page of the PRC study: sentences, tables, figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import stdev

from whence.studies.base import Cell, Figure, Panel, Series, Table
from whence.studies.claims import load, printed
from whence.studies.cuts import drawable, made, points
from whence.studies.prc import measures as m
from whence.studies.prc.measures import (
    AUTHORS,
    BASELINES,
    CHURN,
    DEGREES,
    FLOODING,
    FRONTIER,
    GROWTH,
    HOUR,
    LARGE,
    OPENING,
    PROFILES,
    ROUTES,
    TEXT,
)
from whence.studies.results import Estimate, Label, Results, estimate, farthest, percent_change

_PRINTED = printed(load(__package__))


def _view(nodes: int) -> float | None:
    """The size of a view that the paper prints for such a group."""
    return _PRINTED.get(f"003-view-{nodes}")


# Sentences that hold the measured numbers


def findings(results: Results) -> list[str]:
    """The sentences at the top of the page; those of which there are no runs are left out."""
    growth = {"part": GROWTH}
    costs = [{"part": FRONTIER, "protocol": name} for name in ("prc", *FLOODING)]
    return [
        *made(results, [{"part": HOUR, "profile": TEXT}], _hour),
        *made(results, [{"part": DEGREES}], _views),
        *made(results, [{"part": HOUR, "profile": AUTHORS}, {"part": HOUR, "profile": TEXT}], _profiles),
        *made(results, [{"part": LARGE}], _large),
        *made(results, [growth], _table_1),
        *made(results, [{"part": ROUTES}], _routes),
        *made(results, [*costs, {"part": OPENING, "protocol": "prc"}], _frontier),
        *made(results, [{"part": OPENING}, growth, {"part": CHURN}], _judged),
    ]


def _sizes(results: Results, part: str = HOUR, profile: str = TEXT) -> list[int]:
    return sorted({int(row.labels["nodes"]) for row in results.select(part=part, profile=profile)})


def _of(results: Results, measure: str, nodes: int, profile: str = TEXT, part: str = HOUR) -> Estimate:
    found = results.estimate(measure, part=part, nodes=nodes, profile=profile)
    if found is None:
        raise ValueError(f"no run of {nodes} processes has {measure}")
    return found


def _within(found: Estimate, digits: int = 1) -> str:
    """A mean and its interval; one run has none."""
    if found.half is None:
        return f"{found.mean:.{digits}f} (one run)"
    return f"{found.mean:.{digits}f} ± {found.half:.{digits}f}"


def _group(results: Results, nodes: int) -> str:
    """A group whose hour was run, and whether it was run but once."""
    words = f"{nodes:,} processes"
    return f"{words} (one run)" if _of(results, "space_late", nodes).half is None else words


def _hour(results: Results) -> list[str]:
    largest = _sizes(results)[-1]
    off = farthest(results.column("law_off_percent", part=HOUR, profile=TEXT), 0)
    space = ", ".join(
        f"{_within(_of(results, 'space_late', nodes), 0)} entries with {nodes:,} processes"
        for nodes in _sizes(results)
    )
    left = sum(results.column("left", part=HOUR))
    early, late = (_of(results, f"control_{when}", largest) for when in ("early", "late"))
    end = results.maximum("control_end", part=HOUR, profile=TEXT) or 0.0
    return [
        "In every minute with broadcasts, E is rate x delay x safe degree, "
        f"at most {abs(off or 0):.2f} % off.",
        f"At 2.5 s a process holds {space}; when the hour is over, {left:.0f} entries are left in all.",
        f"With {largest:,} processes, control traffic goes from {_within(early, 2)} to {_within(late, 2)} "
        f"messages per process and second as the delay grows to 2.5 s ({_fallen(results, largest)}), and is "
        f"{end:g} once nobody shuffles.",
    ]


def _fallen(results: Results, nodes: int) -> str:
    """How much less control traffic is in the same runs, and whether that is more than chance."""
    where: dict[str, Label] = {"part": HOUR, "profile": TEXT, "nodes": nodes}
    change = percent_change(*(results.column(f"control_{when}", **where) for when in ("early", "late")))
    if change is None:
        return "none before"
    if change.half is not None and abs(change.mean) <= change.half:
        return f"{change.mean:+.0f} % in the same runs, inside its interval".replace("-", "−")
    within = "" if change.half is None else f" ± {change.half:.0f}"
    return f"{abs(change.mean):.0f}{within} % {'less' if change.mean < 0 else 'more'} in the same runs"


def _views(results: Results) -> list[str]:
    sentences = []
    for profile, words in ((TEXT, "joins one by one within a minute"), (AUTHORS, "ten joins every 100 ms")):
        found = [
            f"{_within(_of(results, 'degree', nodes, profile, DEGREES))} with {nodes:,} processes"
            + (f" (paper: about {view:g})" if (view := _view(nodes)) is not None else "")
            for nodes in _sizes(results, DEGREES, profile)
        ]
        seeds = len(results.select(part=DEGREES, profile=profile)) // max(len(found), 1)
        sentences.append(f"Safe links of a process over {seeds} seeds, {words}: {', '.join(found)}.")
    deviation = max(_deviation(results, nodes) for nodes in _sizes(results, DEGREES))
    return [
        *sentences,
        "Shuffles neither make nor lose arcs, so who joins where decides the views for the whole hour: seeds "
        f"differ by {deviation:.1f} links (standard deviation), and one run says little.",
    ]


def _deviation(results: Results, nodes: int) -> float:
    values = results.column("degree", part=DEGREES, profile=TEXT, nodes=nodes)
    return stdev(values) if len(values) > 1 else 0.0


def _profiles(results: Results) -> list[str]:
    nodes = max(set(_sizes(results)) & set(_sizes(results, HOUR, AUTHORS)), default=0)
    if not nodes:
        return []
    text, authors = (
        [_of(results, name, nodes, profile).mean for name in ("links_per_degree", "buffers_per_view")]
        for profile in (TEXT, AUTHORS)
    )
    return [
        f"The authors' program, with {_group(results, nodes)}, opens {authors[0]:.4f} links per second and "
        f"safe link where the paper's text gives {text[0]:.4f}, and holds {authors[1]:.1f} entries in "
        f"buffers per safe link at 2.5 s where the text gives {text[1]:.1f}: it rounds its shuffles down and "
        "leaves out links that handshakes need."
    ]


def _large(results: Results) -> list[str]:
    (row, *_) = results.select(part=LARGE)
    return [
        f"With {int(row.labels['nodes']):,} processes for some minutes, one run: "
        f"{row.measure('degree'):.1f} safe links, "
        f"E {abs(row.measure('law_off_percent')):.2f} % off its law, {row.measure('undelivered'):.0f} "
        f"deliveries missing, {row.measure('left'):.0f} entries left."
    ]


def _routes(results: Results) -> list[str]:
    row = results.select(part=ROUTES)[-1]
    nodes = int(row.labels["nodes"])
    return [
        f"Control for a link: {row.measure('mediated_hops'):.0f} hops through a mediator, "
        f"{row.measure('back_link_hops'):.0f} if the target can reply over a link of its own, "
        f"{row.measure('routed_hops'):.0f} where an overlay of {nodes} processes routes, and "
        f"{row.measure('flooded_hops'):,.0f} where no route is known and the four are broadcast.",
        "On a ring of links that lead one way, and on a tree from its root, who passes a message on holds "
        f"{row.measure('ring_entries_others') + row.measure('tree_entries_others'):.0f} entries; but the "
        f"origin on a ring waits for its own ({row.measure('ring_entries_origin'):.0f} for two messages), "
        "and on a tree with links both ways a process holds up to "
        f"{row.measure('two_way_entries_others'):.0f}, for each copy is echoed.",
    ]


def _table_1(results: Results) -> list[str]:
    def exponent(measure: str, protocol: str, axis: str) -> str:
        return f"{m.power(m.along(results, measure, protocol, axis))[1]:.2f}"

    return [
        "Table 1 as exponents: with the group, a message of vector grows by "
        f"{exponent('numbers_per_message', 'vector', 'nodes')} and of link memory by "
        f"{exponent('numbers_per_message', 'link_memory', 'nodes')}; memory grows by "
        f"{exponent('space', 'reliable', 'nodes')} for reliable, "
        f"{exponent('space', 'vector', 'nodes')} for vector, "
        f"{exponent('space', 'preventive', 'nodes')} for preventive and "
        f"{exponent('space', 'link_memory', 'nodes')} for link memory, whose own terms are the degree "
        f"({exponent('space', 'link_memory', 'degree')}) and what is in transit "
        f"({exponent('space', 'link_memory', 'delay_ms')})."
    ]


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


def _judged(results: Results) -> list[str]:
    rows = [row for row in results.rows if row.judged]
    kept = sum(row.ok for row in rows)
    moving = sum(row.labels["part"] in (OPENING, CHURN) for row in rows)
    churning = sum(row.labels["part"] == CHURN for row in rows)
    return [
        f"The verifier judged {len(rows)} recorded runs, {moving} with changing links, {churning} of these "
        f"with processes that come and go under traffic: {kept} kept every promise."
    ]


# Tables


HOUR_NOTE = (
    "Per process; means of the seeds with 95 % intervals, none for one run. Text: as the paper describes the "
    "hour. Authors: as their program does. At 1 ms: minutes 5 to 15. At 2.5 s: minutes 41 to 50. From "
    "minute 52 on both are 0. Off: in the minute in which E is farthest from rate x delay x safe degree."
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
    """All tables but the headline; those of which there are no runs are left out."""
    costs_of = [{"part": FRONTIER, "protocol": name} for name in ("prc", *FLOODING)]
    opened = {"part": OPENING, "protocol": "prc"}
    return [
        *made(results, [{"part": DEGREES}], lambda them: [views(them)]),
        *made(results, [{"part": HOUR}], lambda them: [degrees(them)]),
        *made(results, [{"part": GROWTH}], lambda them: [table_1(them)]),
        *made(results, [{"part": GROWTH}, {"part": OPENING}], lambda them: [links(them)]),
        *made(results, [{"part": ROUTES}], lambda them: [routes(them)]),
        *made(results, [*costs_of, opened], lambda them: [frontier(them), costs(them)]),
    ]


def hours(results: Results) -> Table:
    """The hour in numbers: the headline."""
    rows: list[tuple[Cell, ...]] = []
    for profile in PROFILES:
        for nodes in _sizes(results, HOUR, profile):
            cells = [
                results.estimate(name, part=HOUR, nodes=nodes, profile=profile)
                for name in (
                    "degree", "law_off_percent", "space_early", "space_bound", "space_late",
                    "control_early", "control_late",
                )
            ]  # fmt: skip
            rows.append((profile, nodes, _view(nodes), *cells))
    columns = (
        "profile", "processes", "view, paper", "view", "E off by, %", "space, 1 ms", "space, 300 ms",
        "space, 2.5 s", "control/s, 1 ms", "control/s, 2.5 s",
    )  # fmt: skip
    return Table("hour", "The paper's hour", columns, tuple(rows), HOUR_NOTE)


def views(results: Results) -> Table:
    """Degrees over many seeds."""
    rows: list[tuple[Cell, ...]] = []
    for profile in PROFILES:
        for nodes in _sizes(results, DEGREES, profile):
            values = results.column("degree", part=DEGREES, profile=profile, nodes=nodes)
            spread = stdev(values) if len(values) > 1 else None
            rows.append((profile, nodes, _view(nodes), estimate(values), spread, min(values), max(values)))
    columns = ("profile", "processes", "view, paper", "safe degree", "sd of a run", "least", "most")
    note = "Minutes 5 to 9, one value a seed. The draws of who joins where differ from size to size."
    return Table("views", "Views over many seeds", columns, tuple(rows), note)


def degrees(results: Results) -> Table:
    """What stands behind Figure 5b: links opened, and the buffers of links that are being opened."""
    names = (
        "degree", "degree_late", "links_per_minute", "links_per_degree", "control_early", "overlay_early",
        "buffers_per_view", "hops_per_link",
    )  # fmt: skip
    rows = tuple(
        (profile, nodes, *(results.estimate(name, part=HOUR, nodes=nodes, profile=profile) for name in names))
        for profile in PROFILES
        for nodes in _sizes(results, HOUR, profile)
    )
    columns = (
        "profile", "processes", "safe degree, 1 ms", "at 2.5 s", "links opened/min", "per s and safe link",
        "control/s", "all overlay messages/s", "buffers per link", "hops per link",
    )  # fmt: skip
    note = (
        "Per process, at 1 ms but for the buffers: entries in buffers over the safe degree, at 2.5 s. All "
        "overlay messages, as the authors' program counts: joins, buffers and the two of a shuffle too."
    )
    return Table("figure-5b", "Links opened, traffic, buffers", columns, rows, note)


def routes(results: Results) -> Table:
    """What Table 1 says beyond the experiment."""
    names = (
        "mediated_hops", "back_link_hops", "routed_hops", "flooded_hops", "ring_entries_others",
        "ring_entries_origin", "tree_entries_others", "tree_entries_origin", "two_way_entries_others",
    )  # fmt: skip
    rows = tuple(
        (row.labels["nodes"], *(int(row.measure(name)) for name in names))
        for row in results.select(part=ROUTES)
    )
    columns = (
        "processes", "hops, mediated", "back link", "routed", "broadcast", "entries, ring: others", "origin",
        "tree: others", "origin of it", "tree both ways: others",
    )  # fmt: skip
    note = (
        "Counted with the cores, two messages of one origin for the entries. Routed: to the process that is "
        "log2 P steps away. Broadcast: each of the four to all, in a full mesh. Ring and tree: links one way."
    )
    return Table("routes", "Ways of control, and graphs that hold nothing", columns, rows, note)


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
    "and over the seeds, by number of processes; beside it, the delay of all links. Authors: as their "
    "program does it. Broadcasts from minute 2 to 50, 10 a second. "
    "Space follows delay and degree, and is gone seconds after the last broadcast."
)
LAW_CAPTION = (
    "Entries in E alone beside rate x delay x safe degree, minute by minute: how far they are off. With "
    "the same delay everywhere a copy is awaited for one delay in the mean. The first seed of each size."
)
CONTROL_CAPTION = (
    "Figure 5b. Control messages (α, β, π, ρ, every hop) that a process receives in a second, in the mean "
    "over each minute, and the safe degree behind it: only safe links are shuffled, so traffic falls as "
    "the delay grows. Joins in the first minute; the last shuffle is at minute 50."
)
VIEWS_CAPTION = (
    "Safe links of a process against the size of the group, with 95 % intervals over the seeds. The paper's "
    "three numbers are said to be about so, of one run each."
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
    """All figures; those of which there are no runs are left out."""
    costs_of = [{"part": FRONTIER, "protocol": name} for name in ("prc", *FLOODING)]
    opened = {"part": OPENING, "protocol": "prc"}
    return [
        *made(results, [{"part": HOUR}], _hour_plots),
        *made(results, [{"part": DEGREES}], lambda them: [_views_plot(them)]),
        *made(results, [{"part": GROWTH}], lambda them: [_growth(them), _memory(them)]),
        *made(results, [*costs_of, opened], lambda them: [_rates(them), _frontier_plot(them)]),
    ]


def _hour_plots(results: Results) -> list[Figure]:
    return drawable([*(_space(results, profile) for profile in PROFILES), _law(results), _control(results)])


def _over_the_hour(
    results: Results, value: Callable[[m.Minute], float], profiles: Sequence[str] = PROFILES
) -> tuple[Series, ...]:
    lines = []
    for profile in profiles:
        for nodes in _sizes(results, HOUR, profile):
            rows = results.select(part=HOUR, nodes=nodes, profile=profile)
            hours = [m.minutes(row.counted, profile) for row in rows]
            ends = [each.minute + 1 for each in hours[0]]
            means = [_mean_of([value(hour[at]) for hour in hours]) for at in range(len(ends))]
            name = f"{nodes:,}" if profile == TEXT else f"{nodes:,}, authors"
            lines.append(Series(name, tuple(map(float, ends)), tuple(means)))
    return tuple(lines)


def _views_plot(results: Results) -> Figure:
    lines = [
        points(
            name,
            (
                (nodes, results.estimate("degree", part=DEGREES, nodes=nodes, profile=profile))
                for nodes in _sizes(results, DEGREES, profile)
            ),
        )
        for profile, name in ((TEXT, "text"), (AUTHORS, "authors' program"))
    ]
    sizes = [nodes for nodes in _sizes(results, DEGREES) if _view(nodes) is not None]
    lines.append(points("paper, about", ((nodes, _view(nodes)) for nodes in sizes), joined=False))
    panel = Panel("safe degree", "processes", "links of a process", tuple(lines), x_log2=True)
    return drawable([Figure("views", "Views against the group", VIEWS_CAPTION, (panel,))])[0]


def _mean_of(values: list[float]) -> Estimate:
    """Without an interval: sixty of them would hide the line."""
    return Estimate(estimate(values).mean, None, len(values))


def _delay(profile: str) -> Series:
    ramp = m.HOUR_DELAYS[profile]
    middles = [(minute, minute * m.MINUTE_US + m.MINUTE_US // 2) for minute in range(m.END)]
    return _series("delay", [(minute + 1, ramp.at(us) / 1_000) for minute, us in middles])


def _series(name: str, points: Sequence[tuple[float, float]], *, joined: bool = True) -> Series:
    return Series(
        name, tuple(float(x) for x, _ in points), tuple(Estimate(y, None, 1) for _, y in points), joined
    )


def _space(results: Results, profile: str) -> Figure:
    lines = _over_the_hour(results, lambda at: at.space, (profile,))
    panels = (
        Panel("local space", "minute", "entries of a process", lines),
        Panel("delay of all links", "minute", "ms", (_delay(profile),)),
    )
    name, words = (
        ("figure-5a", "") if profile == TEXT else ("figure-5a-authors", ", as the authors' program does it")
    )
    return Figure(name, f"Figure 5a: space over the hour{words}", SPACE_CAPTION, panels if lines else ())


def _law(results: Results) -> Figure:
    lines = []
    for profile in PROFILES:
        for nodes in _sizes(results, HOUR, profile):
            (row, *_) = results.select(part=HOUR, nodes=nodes, profile=profile)
            hour = m.minutes(row.counted, profile)[3 : m.STOP]
            off = [(each.minute + 1, 100 * (each.expected / each.law - 1)) for each in hour]
            lines.append(_series(f"{nodes:,}" if profile == TEXT else f"{nodes:,}, authors", off))
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
    """Two groups to show: a line for each protocol and group, at most six."""
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
