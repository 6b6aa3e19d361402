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
NOTHING = "nothing is there: half and twice of it are nothing too, any more is noticed"
EXISTS = "it only has to be there"
BOUND = "a bound"


def _ratios() -> Iterator[Claim]:
    for (reading, nodes), values in RATIOS.items():
        for variant, value in zip(("TDCA", "ODCA", "default"), values, strict=True):
            yield Claim(f"002-ratio-{reading}-{nodes}-{variant}",
                        f"delivered ratio, {reading}, {nodes} members, {variant}", value, "our earlier runs",
                        "ratio", where={"part": "main", "reading": reading, "variant": variant},
                        at={"nodes": nodes}, unit="ratio", evidence=Evidence.PROTOTYPE,
                        tolerance=Tolerance(absolute=0.03))
    for (loss, control, base_ms, spread_ms), percent in RISES.items():
        where: Labels = {"part": "map rise", "loss": loss, "control": control, "base_ms": base_ms}
        yield Claim(f"002-map-{loss}-{control}-{base_ms}-{spread_ms}".replace(" ", "-"),
                    f"rise with 100 members: loss {loss}, control {control}, base {base_ms} ms, "
                    f"sd {spread_ms} ms",
                    percent, "our earlier runs", "rise_percent", where=where,
                    at={"spread_ms": spread_ms, "nodes": 100}, unit="%", evidence=Evidence.PROTOTYPE,
                    tolerance=Tolerance(absolute=1.5, relative=0.1))


def _default(reading: str) -> Claim:
    return Claim(f"002-default-leads-{reading}",
                 f"our default delivers more than ODCA, {reading}, the smallest lead of all sizes", 0,
                 "it must at every size, in both readings", "lead_points",
                 where={"part": "lead", "reading": reading}, unit="points", evidence=Evidence.INVARIANT,
                 take=Take.MIN, relation=Relation.AT_LEAST, excuse=BOUND)


def _flaw(kind: str) -> Claim:
    return Claim(f"002-figure-8-{kind}", f"Figure 8, answering: deliveries that the verifier calls {kind}", 1,
                 "flaws 4 to 7; the verifier must see them", kind, where=LOOSE, unit="deliveries",
                 evidence=Evidence.INVARIANT, take=Take.SUM, relation=Relation.AT_LEAST, excuse=EXISTS)


def _kept(part: str, words: str) -> Claim:
    return Claim(f"002-promises-{part}", f"{words} that keep every promise", None,
                 "causal order, no duplicates, nothing late: judged by the verifier, which knows no protocol",
                 PROMISES_KEPT, where={"part": part}, unit="runs", evidence=Evidence.INVARIANT, take=Take.SUM)


CLAIMS = (
    *_ratios(),
    Claim("002-face-rise", "face value: rise of ODCA over TDCA, the largest of all sizes", 1.5,
          "over a path as slow as the first one a reply comes too late", "rise_percent",
          where={"part": "rise", "reading": "face", "variant": "ODCA"}, at={"nodes": SIZES}, unit="%",
          evidence=Evidence.PROTOTYPE, take=Take.MAX, over="nodes", relation=Relation.AT_MOST, excuse=BOUND),
    _default("fitted"),
    _default("face"),
    Claim("002-flaw-2-replies", "replies of SOLICIT-RECV as printed, all runs", 0,
          "flaw 2: no vector lies strictly between two others in every entry", "replies", where=STRICT,
          unit="replies", evidence=Evidence.INVARIANT, take=Take.SUM, excuse=NOTHING),
    Claim("002-flaw-2-solicitations", "solicitations that it was sent", 1,
          "else the zero above would mean nothing", "solicitations", where=STRICT, unit="solicitations",
          evidence=Evidence.INVARIANT, take=Take.SUM, relation=Relation.AT_LEAST, excuse=EXISTS),
    *(_flaw(kind) for kind in ("causal", "duplicate", "late")),
    Claim("002-optimum", "the exact optimum less what TDCA delivered, the smallest of all small runs", 0,
          "an optimum; computed from arrivals alone", "below_optimum", where={"part": "bounds"}, unit="ratio",
          evidence=Evidence.INVARIANT, take=Take.MIN, relation=Relation.AT_LEAST, excuse=BOUND),
    Claim("002-direct", "TDCA beyond the direct bound, the largest of all runs", 0,
          "without repair only what arrives in time can be delivered", "beyond_direct",
          where={"part": "bounds"}, unit="ratio", evidence=Evidence.INVARIANT, take=Take.MAX,
          relation=Relation.AT_MOST, excuse=BOUND),
    _kept("main", "runs of the corrected algorithms with a trace"),
    _kept("trouble", "runs under crashes, wrong clocks, duplicates and small buffers"),
    Claim("002-findings", "what the verifier found in runs of the corrected algorithms", 0, "nothing",
          FINDINGS, where={"part": ("main", "trouble")}, unit="findings", evidence=Evidence.INVARIANT,
          take=Take.SUM, excuse=NOTHING),
    Claim("002-late", "late deliveries in any run of the corrected algorithms, counted while it ran", 0,
          "never deliver late", "late_deliveries", where={"part": "main"}, unit="deliveries",
          evidence=Evidence.INVARIANT, take=Take.FARTHEST, excuse=NOTHING),
)
