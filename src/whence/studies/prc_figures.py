"""The figures of the PRC study."""

from __future__ import annotations

from collections.abc import Callable

from whence.studies import prc_measures as m
from whence.studies.base import Figure, Panel, Series
from whence.studies.estimate import Estimate, estimate
from whence.studies.prc_runs import BASELINES, FLOODING, HOUR
from whence.studies.results import Results

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
        _frontier(results),
    ]


def _over_the_hour(results: Results, value: Callable[[m.Minute], float]) -> tuple[Series, ...]:
    lines = []
    for nodes in sorted({int(row.labels["nodes"]) for row in results.select(part=HOUR)}):
        hours = [m.minutes(row.counted) for row in results.select(part=HOUR, nodes=nodes)]
        ends = [each.minute + 1 for each in hours[0]]
        means = [_mean([value(hour[at]) for hour in hours]) for at in range(len(ends))]
        lines.append(Series(f"{nodes:,} processes", tuple(map(float, ends)), tuple(means)))
    return tuple(lines)


def _mean(values: list[float]) -> Estimate:
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
    for nodes in sorted({int(row.labels["nodes"]) for row in results.select(part=HOUR)}):
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


def _frontier(results: Results) -> Figure:
    lines = tuple(
        _series(
            f"PRC even with {protocol}",
            [(nodes, m.even_rate(results, protocol, nodes)) for nodes in m.sizes(results, "prc")],
        )
        for protocol in FLOODING
    )
    panel = Panel("the frontier of memory", "processes", "broadcasts per second", lines, True, True)
    return Figure("frontier", "Where PRC remembers as much as vector and barrier", FRONTIER_CAPTION, (panel,))
