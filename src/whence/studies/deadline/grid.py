"""Paper 002: deadline-constrained causal order, Figure 9 under two readings, the bounds and the improvements.

The paper does not say enough to repeat its simulation. `face` takes its parameters at their word: 5 % loss
between any two members, solicitations over the same 100 ms as everything else, a lifetime of Exp(500 ms).
`fitted` was found by search, **because** it gives the published rise: 5 % loss per hop of a grid,
solicitations over a LAN, a lifetime of 100 ms + Exp(500 ms). docs/studies-deadline.md says how the paper is
read.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple

from whence.sim.distributions import Constant, Exponential, Normal
from whence.sim.model import Link, Poisson, Record, Scenario, Stop
from whence.studies.base import Point, Study
from whence.studies.claims import limits, load
from whence.studies.deadline import measures, page
from whence.studies.deadline.claims import CLAIMS, SIZES
from whence.studies.results import Label

INTERVAL_US = 100_000  # of each process
LIFETIME_US = 500_000
DELAY_US, DEVIATION_US = 100_000, 30_000
LOSS = 0.05
LAN_US = 1_000  # propagation delay of a LAN link
PAYLOAD_BYTES, PAYLOAD_MAX_BYTES = 1_000, 100_000
READINGS = ("fitted", "face")

_PAPER = {"margin_us": 0, "deadlines": False}  # a simulated timer is punctual
VARIANTS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "TDCA": ("tdca", _PAPER),
    "ODCA": ("odca", {**_PAPER, "pull": "window", "copies": 1, "reply_bytes": 0}),
    "default": ("odca", {}),  # the improvements together, as `odca` is without any parameter
    "TDCA, deadlines": ("tdca", {**_PAPER, "deadlines": True}),
    "TDCA, copy": ("tdca", {**_PAPER, "copies": 2}),
    "ODCA, exact": ("odca", {**_PAPER, "copies": 1, "reply_bytes": 0}),
    "ODCA, exact, deadlines": ("odca", {**_PAPER, "deadlines": True, "copies": 1, "reply_bytes": 0}),
}
MAIN = ("TDCA", "ODCA", "default")
PRINTED: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "TDCA as printed": ("tdca", {"mode": "published"}),
    "ODCA as printed": ("odca", {"mode": "published"}),
    "ODCA as printed, but flaw 2": ("odca", {"mode": "published", "strict": False}),
}


class Scale(NamedTuple):
    """How much is run."""

    sizes: tuple[int, ...]
    more: tuple[int, ...]  # sizes at which each improvement is run by itself
    seeds: int
    pairs: int  # of messages and receivers in a run, about
    least_us: int  # but no run is shorter than this
    text: str


# A run has half a second more than it needs for its pairs: its ends do not count.
ENDS_US = 500_000

SCALES = {
    "demo": Scale((16, 36, 64, 100), (16,), 3, 20_000, 1_300_000, "groups of 16, 36, 64, 100; 3 seeds"),
    "paper": Scale(SIZES, (16, 49), 3, 80_000, 2_000_000, "groups of 16 to 100; 3 seeds; at least 2 s each"),
    "tiny": Scale((4, 9), (4,), 2, 600, 800_000, "groups of 4 and 9; 2 seeds"),
}
SMALL_NODES, SMALL_US = 16, 2_000_000  # of the runs of which the optimum is computed
PRINTED_NODES, PRINTED_US = 16, 3_000_000


def scenario(
    reading: str,
    nodes: int,
    variant: str,
    seed: int,
    duration_us: int,
    *,
    name: str = "deadline",
    level: Literal["measures", "deliveries", "all"] = "measures",
) -> Scenario:
    """One run: section 5 of the paper, as the reading has it."""
    protocol, params = {**VARIANTS, **PRINTED}[variant]
    fitted = reading == "fitted"
    delay = Normal(mean_us=DELAY_US, deviation_us=DEVIATION_US)
    return Scenario(
        name=name,
        protocol=protocol,
        nodes=nodes,
        seed=seed,
        params=dict(params),
        link=Link(delay=delay, hop_loss=LOSS) if fitted else Link(delay=delay, loss=LOSS),
        control=Link(delay=Constant(value_us=LAN_US), hop_delay_us=LAN_US) if fitted else None,
        workloads=[
            Poisson(
                interval_us=INTERVAL_US,
                payload_bytes=PAYLOAD_BYTES,
                payload_max_bytes=PAYLOAD_MAX_BYTES,
                lifetime=Exponential(mean_us=LIFETIME_US, min_us=DELAY_US if fitted else 0),
            )
        ],
        stop=Stop(duration_us=duration_us),
        record=Record(level=level),
    )


def _main(wanted: Scale) -> list[Point]:
    points = []
    for reading in READINGS:
        for nodes in wanted.sizes:
            duration_us = max(wanted.least_us, ENDS_US + wanted.pairs * INTERVAL_US // (nodes * (nodes - 1)))
            for variant in VARIANTS:
                if variant not in MAIN and nodes not in wanted.more:
                    continue
                for seed in range(1, wanted.seeds + 1):
                    level: Literal["measures", "deliveries"] = "deliveries" if seed == 1 else "measures"
                    run = scenario(reading, nodes, variant, seed, duration_us, level=level)
                    points.append(_point(run, "main", reading, nodes, variant, seed))
    return points


def _optimum(wanted: Scale) -> list[Point]:
    nodes = min(SMALL_NODES, wanted.sizes[-1])
    return [
        _point(
            scenario(reading, nodes, "TDCA", seed, SMALL_US, name="deadline-optimum"),
            "optimum", reading, nodes, "TDCA", seed, "optimum",
        )
        for reading in READINGS
        for seed in range(1, wanted.seeds + 1)
    ]  # fmt: skip


def _printed(wanted: Scale) -> list[Point]:
    nodes = min(PRINTED_NODES, wanted.sizes[-1])
    return [
        _point(
            scenario(reading, nodes, variant, seed, PRINTED_US, level="deliveries"),
            "printed", reading, nodes, variant, seed,
        )
        for reading in READINGS
        for variant in PRINTED
        for seed in range(1, wanted.seeds + 1)
    ]  # fmt: skip


def _point(
    run: Scenario, part: str, reading: str, nodes: int, variant: str, seed: int, task: str = "run"
) -> Point:
    labels: dict[str, Label] = {
        "part": part,
        "reading": reading,
        "nodes": nodes,
        "variant": variant,
        "seed": seed,
    }
    return Point(labels, run, task)


def _grid(scale: str) -> list[Point]:
    wanted = SCALES[scale]
    return [*_main(wanted), *_optimum(wanted), *_printed(wanted)]


def _prepare() -> None:
    """Compile; without numba the cores run everything, some twenty times as slowly."""
    if find_spec("numba") is not None:
        from whence.studies.deadline import compiled

        compiled.warm_up()


STUDY = Study(
    name="deadline",
    title="Causal order before a deadline: what soliciting lost messages gains",
    paper="paper 002, deadline-constrained causal order broadcast, section 5 (Figure 9)",
    summary=(
        "Every member broadcasts messages that are worthless after a deadline, over links that lose some of "
        "them. TDCA gives up what does not come by itself; ODCA asks the senders of later messages for it. "
        "The paper's only figure is set beside two readings of its network, beside what one packet per "
        "receiver could bring at the most, and beside the improvements that make up our default."
    ),
    scales={name: scale.text for name, scale in SCALES.items()},
    claims=(*load(__package__), *limits(CLAIMS)),
    grid=_grid,
    preparation=_prepare,
    runners={"run": measures.run_point, "optimum": measures.run_optimum},
    derive=measures.derive,
    derived=measures.derived,
    tables=page.tables,
    figures=page.figures,
    headline=page.headline,
    findings=page.findings,
)
