"""Paper 000: causal aggregation broadcast on VCube, every table and figure of it.

All nodes broadcast one message. Two readings of the network: R0 is the paper's text plus the authors'
sibling simulator; R1 is fitted to the paper's tables. Four modes: with aggregation, without (`plain`), over
one single tree, and with aggregation of 5-byte messages. The runs are the kernel's; the first one of each
point, up to some size, is traced and judged by the verifier. docs/studies-vcube.md says how the paper is
read, and what is not reproduced.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Literal, NamedTuple

from whence.sim.distributions import Normal
from whence.sim.model import Hypercube, Link, Record, Scenario, Stop, Window
from whence.studies.base import Point, Study, compile_kernel
from whence.studies.claims import limits, load
from whence.studies.results import Label
from whence.studies.vcube import measures, page
from whence.studies.vcube.claims import CLAIMS, SIZES
from whence.studies.vcube.measures import MAIN, MORE

PROPAGATION_US = 100_000  # tpp: its mean
TRANSMISSION_US = PROCESSING_US = 1_000  # tt and tpc
MTU_BYTES = 1500
RUNS = 30  # section 5: "each simulation was executed 30 times"


class Profile(NamedTuple):
    """One reading of the network."""

    deviation_us: int  # of tpp
    window_us: int  # in which every node broadcasts


class Mode(NamedTuple):
    """One way to broadcast."""

    aggregate: bool
    tree: Literal["source", "single"]
    payload_bytes: int


PROFILES = {"R0": Profile(25_000, 500_000), "R1": Profile(35_400, 550_000)}
MODES = {
    "aggregation": Mode(True, "source", 50),
    "plain": Mode(False, "source", 50),
    "single tree": Mode(True, "single", 50),
    "5 bytes": Mode(True, "source", 5),  # Figure 10 only: in the largest group
}


class Scale(NamedTuple):
    """How much is run."""

    runs: Mapping[str, Mapping[int, int]]  # profile -> nodes -> runs of each mode
    more: Mapping[int, int]  # nodes -> runs for Figure 11, under R0, in all
    traced: int  # the largest group whose first run records every event
    judged: int  # the largest group whose first run under R0 records its deliveries
    text: str


SCALES = {
    "demo": Scale(
        {
            "R0": dict.fromkeys(SIZES[:6], 5) | {512: 3, 1024: 1},
            "R1": dict.fromkeys(SIZES[:6], 5),
        },
        {},
        64,
        128,
        "R0 and R1: groups of 8 to 256, 5 runs each; R0 besides: 3 runs of 512, 1 of 1024",
    ),
    "paper": Scale(
        {profile: dict.fromkeys(SIZES, RUNS) for profile in PROFILES},
        # A run in so small a group has a handful of aggregated and delayed messages.
        {16: 10 * RUNS, 32: 10 * RUNS},
        128,
        1024,
        "R0 and R1: groups of 8 to 1024, 30 runs each; for Figure 11, 300 of 16 and of 32",
    ),
    "tiny": Scale(
        {"R0": {8: 3, 16: 3, 32: 2}, "R1": {8: 2, 16: 2}},
        {16: 4},
        16,
        32,
        "groups of 8 to 32, 2 or 3 runs each",
    ),
}


def scenario(
    profile: str, nodes: int, mode: str, seed: int, level: Literal["measures", "deliveries", "all"]
) -> Scenario:
    """One run: section 5 of the paper, as the profile reads it."""
    deviation_us, window_us = PROFILES[profile]
    aggregate, tree, payload_bytes = MODES[mode]
    return Scenario(
        name="vcube",
        protocol="vcube",
        nodes=nodes,
        seed=seed,
        params={"aggregate": aggregate, "tree": tree, "mtu_bytes": MTU_BYTES, "size_model": "paper"},
        topology=Hypercube(rooted=tree == "single"),
        link=Link(
            delay=Normal(mean_us=PROPAGATION_US, deviation_us=deviation_us),
            service_us=TRANSMISSION_US,
            process_us=PROCESSING_US,
        ),
        workloads=[Window(count=1, stop_us=window_us, payload_bytes=payload_bytes)],
        stop=Stop(duration_us=window_us),
        record=Record(level=level),
    )


def _point(scale: Scale, profile: str, nodes: int, mode: str, seed: int, part: str) -> Point:
    level: Literal["measures", "deliveries", "all"] = "measures"
    if seed == 1 and nodes <= scale.traced:
        level = "all"
    elif seed == 1 and nodes <= scale.judged and profile == "R0":
        level = "deliveries"
    labels: dict[str, Label] = {
        "profile": profile,
        "nodes": nodes,
        "mode": mode,
        "part": part,
        "seed": seed,
    }
    return Point(labels, scenario(profile, nodes, mode, seed, level))


def _grid(scale: str) -> list[Point]:
    wanted = SCALES[scale]
    largest = max(wanted.runs["R0"])
    points = [
        _point(wanted, profile, nodes, mode, seed, MAIN)
        for profile, sizes in wanted.runs.items()
        for nodes, runs in sizes.items()
        for mode in MODES
        if mode != "5 bytes" or nodes == largest
        for seed in range(1, runs + 1)
    ]
    more = [
        _point(wanted, "R0", nodes, mode, seed, MORE)
        for nodes, runs in wanted.more.items()
        for mode in ("aggregation", "single tree")
        for seed in range(wanted.runs["R0"][nodes] + 1, runs + 1)
    ]
    return points + more


STUDY = Study(
    name="vcube",
    title="Causal aggregation broadcast on VCube: fewer packets at no cost in delivery time",
    paper="paper 000, causal aggregation broadcast on VCube, section 5",
    summary=(
        "Every node of a hypercube broadcasts one message over its own spanning tree. A message that a child "
        "could not deliver yet is kept back and travels with what it waits for. This page sets every table "
        "and figure of the paper beside two readings of its network: R0, its text and the authors' sibling "
        "simulator, and R1, fitted to its tables."
    ),
    scales={name: scale.text for name, scale in SCALES.items()},
    claims=(*load(__package__), *limits(CLAIMS)),
    grid=_grid,
    preparation=partial(compile_kernel, "vcube"),
    runners={"run": measures.run_point},
    derive=measures.derive_row,
    derived=measures.derived,
    tables=page.tables,
    figures=page.figures,
    headline=page.headline,
    findings=page.findings,
)
