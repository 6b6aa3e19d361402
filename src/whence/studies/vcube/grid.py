"""Paper 000: causal aggregation broadcast on VCube, every table and figure of it.

All nodes broadcast one message. Readings of the network: R0 is the paper's text plus the authors' sibling
simulator; R1 is fitted to the paper's tables; T25, T35 and U35 have other starts or delays, and each fits
some tables and figures and not the others: none is adopted. Four modes: with aggregation, without (`plain`),
over one single tree, and with aggregation of 5-byte messages. The runs are the kernel's; the first one of
each point, up to some size, is traced and judged by the verifier. Beyond the paper: larger groups, several
messages a node, and crashes. docs/studies-vcube.md says how the paper is read, and what is not reproduced.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Literal, NamedTuple

from whence.sim.distributions import Normal
from whence.sim.model import Hypercube, Link, Record, Scenario, Stop, Window
from whence.studies.base import Point, Study, compile_kernel
from whence.studies.results import Label
from whence.studies.vcube import findings, measures, page
from whence.studies.vcube.claims import CLAIMS, CRASHES, SIZES
from whence.studies.vcube.crashes import CASES, crash_scenario, run_crashes
from whence.studies.vcube.runs import LARGE, MAIN, MORE, SEVERAL

PROPAGATION_US = 100_000  # tpp: its mean
TRANSMISSION_US = PROCESSING_US = 1_000  # tt and tpc
MTU_BYTES = 1500
RUNS = 30  # section 5: "each simulation was executed 30 times"


class Profile(NamedTuple):
    """One reading of the network."""

    deviation_us: int  # of tpp
    window_us: int  # in which every node broadcasts
    law: Literal["uniform", "triangular"] = "uniform"


class Mode(NamedTuple):
    """One way to broadcast."""

    aggregate: bool
    tree: Literal["source", "single"]
    payload_bytes: int


PROFILES = {
    "R0": Profile(25_000, 500_000),
    "R1": Profile(35_400, 550_000),
    # Each of these has some of the paper's tables and figures, and none has all: docs/studies-vcube.md.
    "T25": Profile(25_000, 590_000, "triangular"),
    "T35": Profile(35_400, 590_000, "triangular"),
    "U35": Profile(35_400, 500_000),
}
MODES = {
    "aggregation": Mode(True, "source", 50),
    "plain": Mode(False, "source", 50),
    "single tree": Mode(True, "single", 50),
    "5 bytes": Mode(True, "source", 5),  # Figure 10 only: in the largest group
}
FURTHER = ("T25", "T35", "U35")


class VCubeScale(NamedTuple):
    """How much is run."""

    runs: Mapping[str, Mapping[int, int]]  # profile -> nodes -> runs of each mode
    more: Mapping[int, int]  # nodes -> runs for Figure 11, under R0, in all
    traced: int  # the largest group whose first run records every event
    judged: int  # the largest group whose first run under R0 records its deliveries
    large: Mapping[int, int]  # nodes -> runs of groups beyond the paper's, under R0
    several: Mapping[int, int]  # nodes -> runs in which every node broadcasts four messages, under R0
    crashes: Mapping[int, int]  # nodes -> runs of each case with crashes
    text: str


SCALES = {
    "demo": VCubeScale(
        {
            "R0": dict.fromkeys(SIZES, 5),
            "R1": dict.fromkeys(SIZES[:6], 5),
            **dict.fromkeys(FURTHER, dict.fromkeys((16, 64, 256), 5)),
        },
        {},
        64,
        128,
        {2048: 1},
        {64: 5, 256: 5},
        {16: 5},
        "R0: groups of 8 to 1024, 5 runs each; R1: 8 to 256; three further readings: 16, 64 and 256; "
        "beyond the paper: 2048 nodes, four messages each, crashes in groups of 16",
    ),
    "paper": VCubeScale(
        {
            "R0": dict.fromkeys(SIZES, RUNS),
            # The fitted readings: a run of the largest groups takes seconds, and their means scatter little.
            "R1": {**dict.fromkeys(SIZES, RUNS), 512: 10, 1024: 10},
            **{profile: {**dict.fromkeys(SIZES, 10), 1024: 5} for profile in FURTHER},
        },
        # A run in so small a group has a handful of aggregated and delayed messages.
        {16: 10 * RUNS, 32: 10 * RUNS},
        128,
        1024,
        {2048: 5, 4096: 1},
        {64: 10, 256: 10, 1024: 3},
        {16: 10, 24: 10, 32: 10, 64: 5},
        "R0: groups of 8 to 1024, 30 runs each; R1 the same, but 10 from 512 on; three further readings, "
        "10 runs each, 5 of 1024; for Figure 11, 300 of 16 and of 32; beyond the paper: 2048 and 4096 nodes, "
        "four messages each, crashes in groups of 16 to 64",
    ),
    "tiny": VCubeScale(
        {"R0": {8: 3, 16: 3, 32: 2}, "R1": {8: 2, 16: 2}, "T25": {16: 2}},
        {16: 4},
        16,
        32,
        {},
        {16: 2},
        {8: 2},
        "groups of 8 to 32, 2 or 3 runs each",
    ),
}
MESSAGES_EACH = 4  # where every node broadcasts several


def scenario(
    profile: str,
    nodes: int,
    mode: str,
    seed: int,
    level: Literal["measures", "deliveries", "all"],
    messages: int = 1,
) -> Scenario:
    """One run: section 5 of the paper, as the profile reads it."""
    deviation_us, window_us, law = PROFILES[profile]
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
        workloads=[Window(count=messages, stop_us=window_us, payload_bytes=payload_bytes, law=law)],
        stop=Stop(duration_us=window_us),
        record=Record(level=level),
    )


def _point(scale: VCubeScale, profile: str, nodes: int, mode: str, seed: int, part: str) -> Point:
    level: Literal["measures", "deliveries", "all"] = "measures"
    if seed == 1 and nodes <= scale.traced:
        level = "all"
    elif seed == 1 and nodes <= scale.judged and profile == "R0":
        level = "deliveries"
    return Point(_labels(profile, nodes, mode, part, seed), scenario(profile, nodes, mode, seed, level))


def _labels(profile: str, nodes: int, mode: str, part: str, seed: int) -> dict[str, Label]:
    return {"profile": profile, "nodes": nodes, "mode": mode, "part": part, "seed": seed}


def _grid(scale: str) -> list[Point]:
    wanted = SCALES[scale]
    largest = {profile: max(sizes) for profile, sizes in wanted.runs.items()}
    points = [
        _point(wanted, profile, nodes, mode, seed, MAIN)
        for profile, sizes in wanted.runs.items()
        for nodes, runs in sizes.items()
        for mode in MODES
        if (mode != "5 bytes" or nodes == largest["R0"]) and (mode != "single tree" or profile not in FURTHER)
        for seed in range(1, runs + 1)
    ]
    more = [
        _point(wanted, "R0", nodes, mode, seed, MORE)
        for nodes, runs in wanted.more.items()
        for mode in ("aggregation", "single tree")
        for seed in range(wanted.runs["R0"][nodes] + 1, runs + 1)
    ]
    return [*points, *more, *_beyond(wanted)]


def _beyond(wanted: VCubeScale) -> Iterator[Point]:
    """Beyond the paper: larger groups, several messages a node, crashes."""
    for part, sizes, messages in ((LARGE, wanted.large, 1), (SEVERAL, wanted.several, MESSAGES_EACH)):
        for nodes, runs in sizes.items():
            for mode in ("aggregation", "plain"):
                for seed in range(1, runs + 1):
                    made = scenario("R0", nodes, mode, seed, "measures", messages)
                    yield Point(_labels("R0", nodes, mode, part, seed), made, "alone")
    for nodes, runs in wanted.crashes.items():
        for case, crashed in CASES.items():
            for seed in range(1, runs + 1):
                labels = _labels("R0", nodes, case, CRASHES, seed)
                yield Point(labels, crash_scenario(nodes, crashed, seed), CRASHES)


STUDY = Study(
    name="vcube",
    title="Causal aggregation broadcast on VCube: fewer packets at no cost in delivery time",
    paper="paper 000, causal aggregation broadcast on VCube, section 5",
    summary=(
        "Every node of a hypercube broadcasts one message over its own spanning tree. A message that a child "
        "could not deliver yet is kept back and travels with what it waits for. This page sets every table "
        "and figure of the paper beside readings of its network: R0, its text and the authors' sibling "
        "simulator, R1, fitted to its tables, and three further ones that each fit some of them."
    ),
    scales={name: scale.text for name, scale in SCALES.items()},
    claims=CLAIMS,
    grid=_grid,
    preparation=partial(compile_kernel, "vcube"),
    runners={"run": measures.run_point, "alone": measures.run_alone, CRASHES: run_crashes},
    derive=measures.derive_row,
    derived=measures.derived,
    tables=page.tables,
    figures=page.figures,
    headline=page.headline,
    findings=findings.findings,
)
