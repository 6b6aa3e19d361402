"""What is demanded of the PRC study besides what the paper prints (`claims.toml`): invariants, regressions.

What our earlier runs had (`ours.toml`) a change of the protocol, the overlay or the kernel would move: how
many links are opened, how much buffers hold.
"""

from __future__ import annotations

from collections.abc import Iterator

from whence.studies.claims import EXACT, PROMISES_KEPT, Claim, Evidence, Take, Tolerance, with_ours

# A claim is a row, and rows are laid out by hand.
# fmt: off

HOURS = (24, 100, 1_000, 10_000)  # processes of an hour at any scale; the first for tests
PROFILES = ("text", "authors")
LAW = Tolerance(absolute=0.03)
COMPARED = (100, 1_000)  # processes of an hour, with our earlier runs


def _every_run(name: str, text: str, published: float, source: str, measure: str, place: tuple[str, int],
               unit: str, *, tolerance: Tolerance = EXACT) -> Claim:
    """A claim about every hour of a size, in a profile."""
    profile, nodes = place
    return Claim(f"003-{name}-{profile}-{nodes}", f"{text}, {nodes:,} processes, {profile}", published,
                 source, measure, where={"profile": profile}, at={"part": "hour", "nodes": nodes}, unit=unit,
                 evidence=Evidence.INVARIANT, take=Take.FARTHEST, tolerance=tolerance)


def _hour(place: tuple[str, int]) -> Iterator[Claim]:
    yield _every_run("law", "E over rate x delay x safe degree, the farthest minute", 1,
                     "a copy is awaited for one delay on average", "law_ratio", place, "ratio", tolerance=LAW)
    yield _every_run("early", "space per link before the delay rises, the largest minute", 0.01,
                     "nothing but messages in transit: 10 per second x 1 ms", "early_per_link", place,
                     "entries", tolerance=Tolerance(relative=0.03))
    for name, measure, text, unit in (
        ("space-end", "space_end", "space from minute 52 on", "entries"),
        ("left", "left", "entries of all processes when the hour ends", "entries"),
        ("control-end", "control_end", "control traffic from minute 52 on", "per s"),
        ("undelivered", "undelivered", "deliveries missing", "deliveries"),
    ):
        yield _every_run(name, text, 0, "all that was sent has arrived, and is forgotten", measure, place,
                         unit)
    yield _every_run("hops", "control hops for a link", 8, "two hops each for α, β, π, ρ", "hops_per_link",
                     place, "hops")


def _reference(profile: str, nodes: int) -> Iterator[Claim]:
    for name, measure, text in (
        ("links", "links_per_degree", "links opened per second and safe link at 1 ms"),
        ("buffers", "buffers_per_view", "entries in buffers per safe link at 2.5 s"),
    ):
        yield Claim(f"003-{name}-{profile}-{nodes}", f"{text}, {nodes:,} processes, {profile}", None,
                    "our earlier runs", measure, where={"profile": profile},
                    at={"part": "hour", "nodes": nodes}, evidence=Evidence.REGRESSION)


def _kept(part: str, words: str) -> Claim:
    return Claim(f"003-promises-{part}", f"recorded runs over {words} that keep every promise", None,
                 "the verifier knows no protocol", PROMISES_KEPT, where={"part": part}, unit="runs",
                 evidence=Evidence.INVARIANT, take=Take.SUM)


CLAIMS = (
    *(claim for nodes in HOURS for profile in PROFILES for claim in _hour((profile, nodes))),
    *with_ours(__package__, (
        claim for profile in PROFILES for nodes in COMPARED for claim in _reference(profile, nodes)
    )),
    Claim("003-hops-opening", "control hops for a link of PRC, with the cores", 8,
          "two hops each for α, β, π, ρ", "hops_per_link", where={"part": "opening", "protocol": "prc"},
          unit="hops", evidence=Evidence.INVARIANT, take=Take.FARTHEST),
    Claim("003-large-law", "E over rate x delay x safe degree with ten times the paper's largest group", 1,
          "a copy is awaited for one delay on average", "law_ratio", at={"part": "large"}, unit="ratio",
          evidence=Evidence.INVARIANT, take=Take.FARTHEST, tolerance=LAW),
    Claim("003-routes-made", "ways of control on which the handshake came through", 1,
          "else the hops would mean nothing", "routes_made", where={"part": "routes"}, take=Take.FARTHEST,
          evidence=Evidence.INVARIANT),
    Claim("003-entries-left", "entries of PRC's cores when everything has arrived", 0,
          "link memory forgets a message with its last copy", "entries_left",
          where={"part": "opening", "protocol": "prc"}, unit="entries", evidence=Evidence.INVARIANT,
          take=Take.FARTHEST),
    _kept("opening", "links that open and close"),
    _kept("churn", "links that open and close while processes come and go"),
    _kept("growth", "static links"),
)
