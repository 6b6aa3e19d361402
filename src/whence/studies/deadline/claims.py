"""What the deadline study demands besides what the paper prints (`claims.toml`): invariants, our limits.

The limits are ratios of earlier runs of ours: a change of an algorithm, the network or the kernel moves them.
"""

from __future__ import annotations

from collections.abc import Iterator

from whence.studies.claims import PROMISES_KEPT, Claim, Evidence, Labels, Relation, Take, Tolerance

# A claim is a row, and rows are laid out by hand.
# fmt: off

SIZES = (16, 25, 36, 49, 64, 81, 100)  # Figure 9: a scale for tests has smaller groups, which prove nothing
# Delivered ratios of earlier runs: (reading, members) -> TDCA, ODCA, default.
RATIOS = {
    ("fitted", 16): (0.853, 0.969, 0.991), ("fitted", 36): (0.797, 0.965, 0.990),
    ("fitted", 64): (0.749, 0.961, 0.989), ("fitted", 100): (0.704, 0.952, 0.985),
    ("face", 16): (0.775, 0.779, 0.838), ("face", 36): (0.772, 0.774, 0.835),
    ("face", 64): (0.780, 0.782, 0.841), ("face", 100): (0.775, 0.776, 0.834),
}
# Rises in networks of the map, largest group: (loss, control, base, spread) -> percent.
RISES = {
    ("end to end", "LAN", 0, 30): 5.3, ("end to end", "LAN", 0, 100): 27.0, ("per hop", "LAN", 0, 30): 32.6,
    ("per hop", "LAN", 100, 30): 35.2, ("per hop", "LAN", 100, 100): 51.0,
}
STRICT = {"part": "printed", "variant": "ODCA as printed"}
LOOSE = {"part": "printed", "variant": "ODCA as printed, but flaw 2"}
FINDINGS = "causal + fifo + duplicate + late + created + malformed"
BOUND = "a bound"


def _ratios() -> Iterator[Claim]:
    for (reading, nodes), values in RATIOS.items():
        for variant, value in zip(("TDCA", "ODCA", "default"), values, strict=True):
            yield Claim(f"002-ratio-{reading}-{nodes}-{variant}",
                        f"delivered ratio, {reading}, {nodes} members, {variant}", value, "our earlier runs",
                        "ratio", where={"part": "main", "reading": reading, "variant": variant},
                        at={"nodes": nodes}, unit="ratio", evidence=Evidence.REPEATED,
                        tolerance=Tolerance(absolute=0.03))
    for (loss, control, base_ms, spread_ms), percent in RISES.items():
        where: Labels = {"part": "map rise", "loss": loss, "control": control, "base_ms": base_ms}
        yield Claim(f"002-map-{loss}-{control}-{base_ms}-{spread_ms}".replace(" ", "-"),
                    f"rise with 100 members: loss {loss}, control {control}, base {base_ms} ms, "
                    f"sd {spread_ms} ms",
                    percent, "our earlier runs", "rise_percent", where=where,
                    at={"spread_ms": spread_ms, "nodes": 100}, unit="%", evidence=Evidence.REPEATED,
                    tolerance=Tolerance(absolute=1.5, relative=0.1))


def _default(reading: str, points: float, within: float) -> Claim:
    return Claim(f"002-default-leads-{reading}",
                 f"our default delivers more than ODCA, {reading}, the smallest lead of all sizes", points,
                 "our earlier runs; it must lead at every size", "lead_points",
                 where={"part": "lead", "reading": reading}, at={"nodes": SIZES}, unit="points",
                 evidence=Evidence.REPEATED, take=Take.MIN, tolerance=Tolerance(absolute=within))


def _figure_8(name: str, text: str, measure: str, count: int, where: Labels) -> Claim:
    """A count of Figure 8 as printed: it must be there, and it is always the same."""
    return Claim(f"002-figure-8-{name}", text, count, "our earlier runs: the same three seeds, 16 members",
                 measure, where=where, at={"nodes": 16}, evidence=Evidence.REPEATED, take=Take.SUM,
                 tolerance=Tolerance(relative=0.2))


def _kept(part: str, words: str) -> Claim:
    return Claim(f"002-promises-{part}", f"{words} that keep every promise", None,
                 "causal order, no duplicates, nothing late: judged by the verifier, which knows no protocol",
                 PROMISES_KEPT, where={"part": part}, unit="runs", evidence=Evidence.INVARIANT, take=Take.SUM)


CLAIMS = (
    *_ratios(),
    _default("fitted", 2.2, 0.8),
    _default("face", 5.8, 1.5),
    Claim("002-flaw-2-replies", "replies of SOLICIT-RECV as printed, all runs", 0,
          "flaw 2: no vector lies strictly between two others in every entry", "replies", where=STRICT,
          unit="replies", evidence=Evidence.INVARIANT, take=Take.SUM),
    _figure_8("asked", "solicitations that it was sent", "solicitations", 10_913, STRICT),
    _figure_8("causal", "answering: deliveries that the verifier calls causal", "causal", 736, LOOSE),
    _figure_8("duplicate", "answering: deliveries that it calls duplicate", "duplicate", 1_993, LOOSE),
    _figure_8("late", "answering: deliveries that it calls late", "late", 92, LOOSE),
    Claim("002-optimum", "what TDCA delivered of the exact optimum, the most of all small runs", 1,
          "an optimum; computed from arrivals alone", "of_optimum", where={"part": "bounds"}, unit="ratio",
          evidence=Evidence.INVARIANT, take=Take.MAX, relation=Relation.AT_MOST, excuse=BOUND),
    Claim("002-direct", "what TDCA delivered of the direct bound, the most of all runs", 1,
          "without repair only what arrives in time can be delivered", "of_direct", where={"part": "bounds"},
          unit="ratio", evidence=Evidence.INVARIANT, take=Take.MAX, relation=Relation.AT_MOST, excuse=BOUND),
    _kept("main", "runs of the corrected algorithms with a trace"),
    _kept("trouble", "runs under crashes, wrong clocks, duplicates and small buffers"),
    Claim("002-findings", "what the verifier found in runs of the corrected algorithms", 0, "nothing",
          FINDINGS, where={"part": ("main", "trouble")}, unit="findings", evidence=Evidence.INVARIANT,
          take=Take.SUM),
    Claim("002-late", "late deliveries in any run of the corrected algorithms, counted while it ran", 0,
          "never deliver late", "late_deliveries", where={"part": "main"}, unit="deliveries",
          evidence=Evidence.INVARIANT, take=Take.FARTHEST),
)
