"""What must come out of the measurements on real servers: the shapes of figures 8, 9, 11 and 12.

The paper's figures are not in our copy, only what it says of them: without domains the time grows with the
square of n, with the bus linearly, and domains win. Demanded is what the specification demands of that.

Judged by processor time: with one message under way, that of the servers on its way is what the message takes
on a machine that does nothing else. Wall time is shown beside it and judged, but a study must not fail
because somebody else was compiling meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator

from whence.studies.claims import Expectation, Relation
from whence.studies.domains.fit import LARGE_FROM, TIMES, Kind, crossing, fit, gains, growth, slope
from whence.studies.results import Results

FLAT = Kind("live", "ping-pong", "flat", "full")
BUS = Kind("live", "ping-pong", "bus", "full")
WAY_FLAT, WAY_BUS = FLAT._replace(part="live-way"), BUS._replace(part="live-way")
WHICH = {"live": "live", "live-way": "live, servers of the way only"}
FASTER_THAN_LINEAR = 1.3  # "clearly": half way between the square and what is still about linear
ABOUT_LINEAR = 1.1
STRAIGHT = 0.95  # of the variance, over sizes of two orders of magnitude


def expectations(results: Results) -> list[Expectation]:
    """Nothing where nothing, or too little, was measured."""
    return [*_growth(results), *_crossing(results), *_straight(results)]


def _growth(results: Results) -> Iterator[Expectation]:
    """Figures 8 and 9 without domains, figure 11 with the bus."""
    for kind, figure, relation, wanted, says in (
        (FLAT, "figure 8", Relation.AT_LEAST, FASTER_THAN_LINEAR, "clearly faster than linear"),
        (FLAT._replace(workload="broadcast"), "figure 9", Relation.AT_LEAST, FASTER_THAN_LINEAR,
         "clearly faster than linear"),
        (BUS, "figure 11", Relation.AT_MOST, ABOUT_LINEAR, "about linearly"),
        (WAY_FLAT, "figure 8", Relation.AT_LEAST, FASTER_THAN_LINEAR, "clearly faster than linear"),
        (WAY_BUS, "figure 11", Relation.AT_MOST, ABOUT_LINEAR, "about linearly"),
    ):  # fmt: skip
        for measure, words in TIMES.items():
            values = growth(results, kind, measure)
            found = slope(values)
            if found is not None:
                enough = sum(nodes >= LARGE_FROM for nodes in values) > 2  # two do not tell noise from growth
                yield Expectation(
                    f"{WHICH[kind.part]}, {kind.workload}, {kind.organisation}: {words} of a message over "
                    f"n ≥ {LARGE_FROM}, log-log slope",
                    wanted,
                    found,
                    f"{figure}; specification: grows {says}",
                    relation=relation,
                    demanded=enough and measure == "cpu_us",
                )


def _crossing(results: Results) -> Iterator[Expectation]:
    """Figure 12: domains cost more hops in a small system and win in a large one."""
    for measure, words in TIMES.items():
        gained = gains(results, FLAT, BUS, measure)
        if not gained or max(gained) < LARGE_FROM:
            continue
        yield Expectation(
            f"live, ping-pong: {words}, servers from which on the bus is faster",
            max(gained),
            crossing(gained),
            "figure 12; specification: the curves cross within the measured sizes",
            relation=Relation.AT_MOST,
            unit="servers",
            demanded=measure == "cpu_us",
        )


def _straight(results: Results) -> Iterator[Expectation]:
    """Beyond the paper's 150 servers, where what does not grow no longer hides what does."""
    flat, bus = (growth(results, kind, "cpu_us") for kind in (WAY_FLAT, WAY_BUS))
    for values, what, power in ((flat, "flat: a + b n²", 2), (bus, "bus: a + b n", 1)):
        found = fit(values, power)
        if found is not None:
            yield Expectation(
                f"live, servers of the way only, {what} explains of the variance (to {max(values)} servers)",
                STRAIGHT,
                found.share,
                "section 6.2: C ≈ K n with √n domains, n² without",
                relation=Relation.AT_LEAST,
            )
