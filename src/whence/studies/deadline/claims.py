"""What the deadline study demands besides what the paper prints (`claims.toml`): invariants, regressions.

What our earlier runs had (`ours.toml`) a change of an algorithm, the network or the kernel would move.
"""

from __future__ import annotations

from collections.abc import Iterator

from whence.studies.claims import PROMISES_KEPT, Claim, Evidence, Labels, Relation, Take, with_ours

# A claim is a row, and rows are laid out by hand.
# fmt: off

SIZES = (16, 25, 36, 49, 64, 81, 100)  # Figure 9: a scale for tests has smaller groups, which prove nothing
COMPARED = (16, 36, 64, 100)  # of these, with our earlier runs
VARIANTS = ("TDCA", "ODCA", "default")
READINGS = ("fitted", "face")
# Networks of the map whose rise in the largest group is compared: loss, control, base, spread.
RISES = (
    ("end to end", "LAN", 0, 30), ("end to end", "LAN", 0, 100), ("per hop", "LAN", 0, 30),
    ("per hop", "LAN", 100, 30), ("per hop", "LAN", 100, 100),
)
STRICT = {"part": "printed", "variant": "ODCA as printed"}
LOOSE = {"part": "printed", "variant": "ODCA as printed, but flaw 2"}
FINDINGS = "causal + fifo + duplicate + late + created + malformed"
BOUND = "a bound"


def _ours(name: str, text: str, measure: str, where: Labels, at: Labels, unit: str = "",
          against: Labels | None = None) -> Claim:
    """A number that is what it was in our earlier runs (`ours.toml`)."""
    return Claim(f"002-{name}", text, None, "our earlier runs", measure, where=where, at=at, unit=unit,
                 evidence=Evidence.REGRESSION, against=against)


def _ratios(reading: str, nodes: int) -> Iterator[Claim]:
    where, at = {"part": "main", "reading": reading}, {"nodes": nodes}
    for variant in VARIANTS:
        yield _ours(f"ratio-{reading}-{nodes}-{variant}",
                    f"delivered ratio, {reading}, {nodes} members, {variant}", "ratio",
                    {**where, "variant": variant}, at, "ratio")
    yield _ours(f"default-leads-{reading}-{nodes}",
                f"our default delivers more than ODCA, {reading}, {nodes} members", "ratio",
                {**where, "variant": "default"}, at, "ratio", against={"variant": "ODCA"})


def _rises() -> Iterator[Claim]:
    for loss, control, base_ms, spread_ms in RISES:
        where: Labels = {"part": "map rise", "loss": loss, "control": control, "base_ms": base_ms}
        yield _ours(f"map-{loss}-{control}-{base_ms}-{spread_ms}".replace(" ", "-"),
                    f"rise with 100 members: loss {loss}, control {control}, base {base_ms} ms, "
                    f"sd {spread_ms} ms",
                    "rise_percent", where, {"spread_ms": spread_ms, "nodes": 100}, "%")


def _figure_8(reading: str) -> Iterator[Claim]:
    """Counts of Figure 8 as printed, in a run."""
    for name, text, measure, where in (
        ("asked", "solicitations that it was sent", "solicitations", STRICT),
        ("causal", "answering: deliveries that the verifier calls causal", "causal", LOOSE),
        ("duplicate", "answering: deliveries that it calls duplicate", "duplicate", LOOSE),
        ("late", "answering: deliveries that it calls late", "late", LOOSE),
    ):
        yield _ours(f"figure-8-{name}-{reading}", f"Figure 8 as printed, {reading}: {text}, mean of a run",
                    measure, {**where, "reading": reading}, {"nodes": 16})


def _kept(part: str, words: str) -> Claim:
    return Claim(f"002-promises-{part}", f"{words} that keep every promise", None,
                 "causal order, no duplicates, nothing late: judged by the verifier, which knows no protocol",
                 PROMISES_KEPT, where={"part": part}, unit="runs", evidence=Evidence.INVARIANT, take=Take.SUM)


_OURS = (
    *(claim for reading in READINGS for nodes in COMPARED for claim in _ratios(reading, nodes)),
    *_rises(),
    *(claim for reading in READINGS for claim in _figure_8(reading)),
)
CLAIMS = (
    *with_ours(__package__, _OURS),
    Claim("002-flaw-2-replies", "replies of SOLICIT-RECV as printed, all runs", 0,
          "flaw 2: no vector lies strictly between two others in every entry", "replies", where=STRICT,
          unit="replies", evidence=Evidence.INVARIANT, take=Take.SUM),
    Claim("002-optimum", "what TDCA delivered of the exact optimum, the most of all small runs", 1,
          "an optimum; computed from arrivals alone", "of_optimum", where={"part": "bounds"}, unit="ratio",
          evidence=Evidence.INVARIANT, take=Take.MAX, relation=Relation.AT_MOST, excuse=BOUND),
    Claim("002-direct", "what TDCA delivered of the direct bound, the most of all runs", 1,
          "without repair only what arrives in time can be delivered", "of_direct", where={"part": "bounds"},
          unit="ratio", evidence=Evidence.INVARIANT, take=Take.MAX, relation=Relation.AT_MOST, excuse=BOUND),
    _kept("main", "runs of the corrected algorithms with a trace"),
    _kept("trouble", "runs under crashes, clocks that are wrong or drift, duplicates and small buffers"),
    Claim("002-findings", "what the verifier found in runs of the corrected algorithms", 0, "nothing",
          FINDINGS, where={"part": ("main", "trouble")}, unit="findings", evidence=Evidence.INVARIANT,
          take=Take.SUM),
    Claim("002-late", "late deliveries in any run of the corrected algorithms, counted while it ran", 0,
          "never deliver late", "late_deliveries", where={"part": "main"}, unit="deliveries",
          evidence=Evidence.INVARIANT, take=Take.FARTHEST),
)
