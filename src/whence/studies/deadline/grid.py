"""Paper 002: deadline-constrained causal order. Figure 9 under many readings, the bounds, the improvements.

The paper does not say enough to repeat its simulation. `face` takes its parameters at their word: 5 % loss
between any two members, solicitations over the same 100 ms as everything else, a lifetime of Exp(500 ms).
`fitted` was found by search, **because** it gives the published rise: 5 % loss per hop of a grid,
solicitations over a LAN, a lifetime of 100 ms + Exp(500 ms). Between and around them lies a map: what is lost
where, which way solicitations go, from when lifetimes count, how far delays spread. docs/studies-deadline.md
says how the paper is read.

    main        Figure 9, each improvement by itself at some sizes
    map         the rise of ODCA over TDCA in every network of the map
    large       groups of 200 to 1,000; the group's rate stays what it is with 100 members
    trouble     crashes, clocks that are off or drift, duplicates, small buffers: cores, and the verifier
    optimum     small runs of which the best possible is computed
    printed     Figure 8 as it stands
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple

from whence.sim.distributions import Constant, Exponential, Normal
from whence.sim.model import Crash, Link, Poisson, Record, Scenario, Skew, Stop
from whence.studies.base import Point, Study
from whence.studies.claims import load
from whence.studies.deadline import measures, page
from whence.studies.deadline.claims import CLAIMS, SIZES
from whence.studies.results import Label

INTERVAL_US = 100_000  # of each process
LIFETIME_US = 500_000
DELAY_US = 100_000
LOSS = 0.05
LAN_US = 1_000  # propagation delay of a LAN link
PAYLOAD_BYTES, PAYLOAD_MAX_BYTES = 1_000, 100_000

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


class Network(NamedTuple):
    """What the paper leaves open of its network."""

    loss: str  # "end to end" or "per hop"
    control: str  # the way of solicitations and replies: "LAN", or "same" as messages
    base_ms: int  # lifetimes count from this after the broadcast
    spread_ms: int  # deviation of the normal delay


NETWORKS = {"fitted": Network("per hop", "LAN", 100, 30), "face": Network("end to end", "same", 0, 30)}
READINGS = tuple(NETWORKS)
MAP = "map"


class DeadlineScale(NamedTuple):
    """How much is run."""

    sizes: tuple[int, ...]
    more: tuple[int, ...]  # sizes at which each improvement is run by itself
    seeds: int
    pairs: int  # of messages and receivers in a run, about
    least_us: int  # but no run is shorter than this
    map_sizes: tuple[int, ...]
    spreads_ms: tuple[int, ...]
    map_seeds: int
    large: Mapping[int, int]  # members -> seeds of groups beyond the paper's
    text: str


# A run has half a second more than it needs for its pairs: its ends do not count.
ENDS_US = 500_000

SCALES = {
    "demo": DeadlineScale(
        (16, 36, 64, 100), (16,), 5, 20_000, 1_300_000, (16, 100), (30, 60, 100), 3, {200: 3},
        "groups of 16, 36, 64, 100; 5 seeds; a map of 24 networks",
    ),
    "paper": DeadlineScale(
        SIZES, (16, 49), 10, 80_000, 2_000_000, (16, 36, 64, 100), (30, 60, 80, 100), 3,
        {200: 3, 500: 3, 1_000: 1},  # one run of 1,000 takes a minute
        "groups of 16 to 100; 10 seeds; at least 2 s each; a map of 32 networks; groups of 200 to 1,000",
    ),
    "tiny": DeadlineScale(
        (4, 9), (4,), 2, 600, 800_000, (4, 9), (30, 100), 1, {12: 2}, "groups of 4 to 12; 1 or 2 seeds",
    ),
}  # fmt: skip
SMALL_NODES, SMALL_US = 16, 2_000_000  # of the runs of which the optimum is computed
PRINTED_NODES, PRINTED_US = 16, 3_000_000
TROUBLE_NODES, TROUBLE_US = 16, 2_000_000
SMALL_BUFFER_BYTES = 500_000  # of 128 MB; a message has 50 KB in the mean
CLOCKS_US = 10_000  # section 2: clocks drift by 5 to 10 ms
FULL_GROUP = 100  # members up to which each sends as often as the paper says

_MIDDLE_US = TROUBLE_US // 2
TROUBLES: Mapping[str, Mapping[str, Any]] = {
    "none": {},
    "crashes": {"faults": [Crash(nodes=TROUBLE_NODES // 4, at_us=_MIDDLE_US)]},
    "clocks": {"faults": [Skew(nodes="all", offset_us=CLOCKS_US, drawn=True)]},
    # Too fast or too slow, so that they are as far off when the run ends.
    "drift": {"faults": [Skew(nodes="all", drift_ppm=CLOCKS_US * 1_000_000 // TROUBLE_US, drawn=True)]},
    "duplicates": {"duplicate": 0.2},
    "small buffers": {"buffer_bytes": SMALL_BUFFER_BYTES},
}


def scenario(
    reading: str | Network,
    nodes: int,
    variant: str,
    seed: int,
    duration_us: int,
    *,
    name: str = "deadline",
    level: Literal["measures", "deliveries", "all"] = "measures",
    trouble: str = "none",
) -> Scenario:
    """One run: section 5 of the paper, as the reading has it."""
    protocol, params = {**VARIANTS, **PRINTED}[variant]
    network = reading if isinstance(reading, Network) else NETWORKS[reading]
    change = TROUBLES[trouble]
    per_hop = network.loss == "per hop"
    delay = Normal(mean_us=DELAY_US, deviation_us=network.spread_ms * 1_000)
    buffers = {key: value for key, value in change.items() if key == "buffer_bytes"}
    return Scenario(
        name=name,
        protocol=protocol,
        nodes=nodes,
        seed=seed,
        params={**params, **buffers},
        link=Link(
            delay=delay,
            duplicate=change.get("duplicate", 0.0),
            loss=0.0 if per_hop else LOSS,
            hop_loss=LOSS if per_hop else 0.0,
        ),
        control=(
            Link(delay=Constant(value_us=LAN_US), hop_delay_us=LAN_US) if network.control == "LAN" else None
        ),
        workloads=[
            Poisson(
                interval_us=INTERVAL_US * max(nodes, FULL_GROUP) // FULL_GROUP,
                payload_bytes=PAYLOAD_BYTES,
                payload_max_bytes=PAYLOAD_MAX_BYTES,
                lifetime=Exponential(mean_us=LIFETIME_US, min_us=network.base_ms * 1_000),
            )
        ],
        faults=list(change.get("faults", ())),
        stop=Stop(duration_us=duration_us),
        record=Record(level=level),
    )


def _lasting_us(wanted: DeadlineScale, nodes: int) -> int:
    return max(wanted.least_us, ENDS_US + wanted.pairs * INTERVAL_US // (nodes * (nodes - 1)))


def _main(wanted: DeadlineScale) -> list[Point]:
    points = []
    for reading in READINGS:
        for nodes in wanted.sizes:
            for variant in VARIANTS:
                if variant not in MAIN and nodes not in wanted.more:
                    continue
                for seed in range(1, wanted.seeds + 1):
                    level: Literal["measures", "deliveries"] = "deliveries" if seed == 1 else "measures"
                    run = scenario(reading, nodes, variant, seed, _lasting_us(wanted, nodes), level=level)
                    points.append(_point(run, "main", reading, nodes, variant, seed))
    return points


def _map(wanted: DeadlineScale) -> list[Point]:
    networks = [
        Network(loss, control, base_ms, spread_ms)
        for loss in ("end to end", "per hop")
        for control in ("LAN", "same")
        for base_ms in (0, 100)
        for spread_ms in wanted.spreads_ms
    ]
    return [
        _point(
            scenario(network, nodes, variant, seed, _lasting_us(wanted, nodes), name="deadline-map"),
            "map", MAP, nodes, variant, seed, network=network,
        )
        for network in networks
        for nodes in wanted.map_sizes
        for variant in ("TDCA", "ODCA")
        for seed in range(1, wanted.map_seeds + 1)
    ]  # fmt: skip


def _large(wanted: DeadlineScale) -> list[Point]:
    return [
        _point(
            scenario(reading, nodes, variant, seed, wanted.least_us), "large", reading, nodes, variant, seed
        )
        for reading in READINGS
        for nodes, seeds in wanted.large.items()
        for variant in MAIN
        for seed in range(1, seeds + 1)
    ]


def _trouble(wanted: DeadlineScale) -> list[Point]:
    nodes = min(TROUBLE_NODES, wanted.sizes[-1])
    return [
        _point(
            scenario("fitted", nodes, variant, seed, TROUBLE_US, name="deadline-trouble", level="deliveries",
                     trouble=trouble),
            "trouble", "fitted", nodes, variant, seed, "cores", trouble=trouble,
        )
        for trouble in TROUBLES
        for variant in MAIN
        for seed in range(1, min(wanted.seeds, 5) + 1)
    ]  # fmt: skip


def _optimum(wanted: DeadlineScale) -> list[Point]:
    nodes = min(SMALL_NODES, wanted.sizes[-1])
    return [
        _point(
            scenario(reading, nodes, "TDCA", seed, SMALL_US, name="deadline-optimum"),
            "optimum", reading, nodes, "TDCA", seed, "optimum",
        )
        for reading in READINGS
        for seed in range(1, wanted.seeds + 1)
    ]  # fmt: skip


def _printed(wanted: DeadlineScale) -> list[Point]:
    nodes = min(PRINTED_NODES, wanted.sizes[-1])
    return [
        _point(
            scenario(reading, nodes, variant, seed, PRINTED_US, level="deliveries"),
            "printed", reading, nodes, variant, seed,
        )
        for reading in READINGS
        for variant in PRINTED
        for seed in range(1, min(wanted.seeds, 3) + 1)
    ]  # fmt: skip


def _point(
    run: Scenario,
    part: str,
    reading: str,
    nodes: int,
    variant: str,
    seed: int,
    task: str = "run",
    *,
    network: Network | None = None,
    trouble: str = "none",
) -> Point:
    labels: dict[str, Label] = {
        "part": part,
        "reading": reading,
        "nodes": nodes,
        "variant": variant,
        "trouble": trouble,
        **(network or NETWORKS[reading])._asdict(),
        "seed": seed,
    }
    return Point(labels, run, task)


def _grid(scale: str) -> list[Point]:
    wanted = SCALES[scale]
    parts = (_main, _map, _large, _trouble, _optimum, _printed)
    return [point for part in parts for point in part(wanted)]


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
    claims=(*load(__package__), *CLAIMS),
    grid=_grid,
    preparation=_prepare,
    runners={"run": measures.run_point, "optimum": measures.run_optimum, "cores": measures.run_cores},
    derive=measures.derive,
    derived=measures.derived,
    tables=page.tables,
    figures=page.figures,
    headline=page.headline,
    findings=page.findings,
)
