"""VCube under crashes, false suspicions, leaves and joins: always in order, and in agreement afterwards."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.net import Make
from support.running import simulate_in
from support.vcube_worlds import INTERVAL_US, TIMEOUT_US, World, chatter, quiet, settle
from whence.core.effects import Discard, Reason
from whence.core.message import MessageId
from whence.errors import ScenarioError
from whence.protocols.vcube.control import MemberPacket
from whence.protocols.vcube.members import VCubeMembers
from whence.protocols.vcube.wire import VCubeMessage
from whence.sim.files import from_dict, load
from whence.sim.replay import replay
from whence.trace.reader import open_trace
from whence.trace.schema import Kind
from whence.verify.run import verify_trace
from zoo.mutants import members as mutants

FAST_SEEDS, SLOW_SEEDS = 40, 1000
EXAMPLE = Path(__file__).parents[2] / "examples" / "scenarios" / "vcube-crash.toml"


# Storms: everything that can befall a group of members, drawn from a seed, and then a calm

STOP_US = 500_000  # nothing bad happens, and nobody broadcasts, after this
LATEST_US = 400_000  # no packet takes longer


def storm(seed: int, make: Make = VCubeMembers, *, check: bool = False) -> World:
    """Run the world of a seed to its end."""
    draw = random.Random(f"storm/{seed}")
    size = draw.choice([2, 3, 4, 4, 5, 5, 6, 7, 8, 11])
    world = World(size, seed, make, check=check, aggregate=draw.random() < 0.8)
    chatter(world, world.names, draw.choice([15_000, 40_000, 100_000]), STOP_US)
    _weather(world, draw)
    _accidents(world, draw)
    world.run(STOP_US + LATEST_US)
    settle(world)
    return world


def _weather(world: World, draw: random.Random) -> None:
    """How long packets take. Slow messages reach into later views; slow tests make suspects."""
    slow_share = draw.choice([0.0, 0.05, 0.3])
    control_share = draw.choice([0.0, 0.0, 0.002, 0.02])
    slow_us = draw.choice([60_000, 200_000, LATEST_US])
    cut_off = (
        set(draw.sample(world.names, draw.randrange(1, len(world.names)))) if draw.random() < 0.4 else set()
    )
    first_us = draw.randrange(50_000, 300_000)
    last_us = first_us + draw.randrange(TIMEOUT_US // 2, 3 * TIMEOUT_US)
    world_draw = world.draw
    world.tests_are_right = not control_share and not cut_off

    def delay_us(sender: str, to: str, is_control: bool) -> int:
        delay_us = world_draw.randrange(300, 5_000)
        if world.now_us >= STOP_US:
            return delay_us
        if world_draw.random() < (control_share if is_control else slow_share):
            delay_us += world_draw.randrange(slow_us)
        if (sender in cut_off) != (to in cut_off) and first_us <= world.now_us < last_us:
            delay_us += last_us - world.now_us
        return delay_us

    world.delay_us = delay_us


def _accidents(world: World, draw: random.Random) -> None:
    """Crashes, some in the middle of a broadcast, and some together; leaves; quick and late returns."""

    def crash_in_broadcast(name: str, after: int) -> None:
        world.current[name].crash_after = after

    def crash_contact(name: str) -> None:
        """Crash whoever has just admitted the member, if anybody has."""
        member = world.names.index(name)
        knowing = [
            process
            for process in world.live()
            if process.name != name
            and process.core.roster.life(member) > 0
            and process.core.roster.is_present(member)
        ]
        if len(knowing) == 1:
            world.crash(knowing[0].name)
        elif not knowing and world.now_us < STOP_US:
            world.at(world.now_us + 500, crash_contact, name)

    for _ in range(draw.randrange(2 * len(world.names))):
        time_us, name, kind = draw.randrange(30_000, STOP_US), draw.choice(world.names), draw.random()
        if kind < 0.2:
            world.at(time_us, world.leave, name)
        elif kind < 0.7:
            world.at(time_us, world.crash, name)
            for other in draw.sample(world.names, draw.randrange(len(world.names))):
                if draw.random() < 0.3:
                    world.at(time_us + draw.randrange(5_000), world.crash, other)
        else:
            world.at(time_us, crash_in_broadcast, name, draw.randrange(3))
        if draw.random() < 0.7:
            back_us = time_us + draw.choice([5_000, INTERVAL_US, TIMEOUT_US, 2 * TIMEOUT_US])
            if back_us < STOP_US:
                world.at(
                    back_us,
                    lambda name, noticed: world.join(name, noticed=noticed),
                    name,
                    draw.random() < 0.5,
                )
                if draw.random() < 0.2:
                    world.at(back_us + 1_000, crash_contact, name)


def problems(world: World) -> list[str]:
    """What is wrong at the end: first the order, which must hold all the time."""
    report = world.verdict()
    return [*report.broken, *map(str, report.findings[:3] if not report.ok else []), *world.disagreements()]


def weather_all(seeds: range) -> dict[str, int]:
    """Run the storms of all seeds; answers how often what happened, so that a test can see that it did."""
    happened: dict[str, int] = {}
    for seed in seeds:
        world = storm(seed, check=seed % 8 == 0)
        assert problems(world) == [], f"seed {seed}"
        joined = sum(bool(process.core.life) and process.core.ready for process in world.processes)
        counts = {"joined": joined, "orphans": world.discards.get(Reason.ORPHAN, 0)}
        for process in world.processes:
            counts[process.end] = counts.get(process.end, 0) + 1
        for what, count in counts.items():
            happened[what] = happened.get(what, 0) + count
    return happened


def test_storms() -> None:
    happened = weather_all(range(FAST_SEEDS))
    for what in ("crash", "joined", "orphans", Reason.LEFT, Reason.GONE):
        assert happened.get(what, 0) > 5, happened


@pytest.mark.slow
def test_a_thousand_storms() -> None:
    happened = weather_all(range(SLOW_SEEDS))
    for what in ("crash", "joined", "orphans", Reason.LEFT, Reason.GONE):
        assert happened.get(what, 0) > 100, happened


# Each rule is needed: without it, or done too early, some storm or case ends badly.


def is_caught(mutant: Make, seeds: range) -> bool:
    for seed in seeds:
        try:
            found = problems(storm(seed, mutant))
        except AssertionError:
            return True
        if found:
            return True
    return False


# Cases that a storm meets too rarely. A case returns what is wrong at its end.


def last_words(make: Make) -> list[str]:
    """A node crashes, and its last message comes to one of three others at any time after that."""
    for late_us in range(TIMEOUT_US, TIMEOUT_US + 6 * INTERVAL_US, 2_000):
        world = World(4, 1, make)
        world.tests_are_right = True
        world.run(2 * INTERVAL_US)
        world.pasts[3, 1] = [0] * 4
        sender = world.current["n3"]
        world.record(sender, Kind.BROADCAST, 3, 1)
        world.crash("n3")
        packet = MemberPacket(0, (VCubeMessage(3, 1, (), b""),), None)
        world.at(world.now_us + late_us, world.net.receive, "n1", "n3", packet)
        world.run(world.now_us + late_us)
        quiet(world, rounds=25)
        found = problems(world)
        if found:
            return found
    return []


def earlier_life(make: Make) -> list[str]:
    """What a node sent in its earlier life comes when it is back."""
    world = World(3, 1, make)
    world.run(2 * INTERVAL_US)
    world.crash("n1")
    world.run(2 * TIMEOUT_US)
    world.join("n1")
    quiet(world)
    packet = MemberPacket(0, (VCubeMessage(2, 1, (), b""),), None)
    effects = world.current["n0"].core.receive("n1", packet, world.now_us)
    return [] if effects == [Discard(MessageId("n2", 1), "n1", Reason.GONE)] else [str(effects)]


def joiners_of_two_parts(make: Make) -> list[str]:
    """The group is split, each part lets somebody in that the other does not know, and then they meet."""
    world = World(7, 1, make)
    part, heal_us = {"n0", "n1", "n2"}, 12 * TIMEOUT_US
    world.run(2 * INTERVAL_US)
    for name in ("n2", "n6"):
        world.crash(name)

    def delay_us(sender: str, to: str, _: bool) -> int:
        is_cut = (sender in part) != (to in part) and world.now_us < heal_us
        return (heal_us - world.now_us if is_cut else 0) + world.draw.randrange(500, 3_000)

    world.delay_us = delay_us
    world.at(4 * TIMEOUT_US, lambda: world.join("n2"))
    world.at(4 * TIMEOUT_US, lambda: world.join("n6"))
    for round_ in range(3, 11):
        for name in world.names:
            world.at(round_ * TIMEOUT_US, world.broadcast, name)
    world.run(heal_us)
    quiet(world)
    wanted = ["n3", "n4", "n5", "n6"]  # the larger part goes on
    there = sorted(process.name for process in world.live())
    return problems(world) + ([] if there == wanted else [f"{there} go on, and not {wanted}"])


# From the first storm that shows it.
STORMY: dict[Make, range] = {
    mutants.NoRepair: range(2, 6),
    mutants.ForgetsWhatItDelivered: range(2, 6),
    mutants.FalseSuspectContinues: range(14, 24),
    mutants.SuspectIsNotTold: range(6, 18),
    mutants.NumbersFromOne: range(4),
    mutants.BeginsWithWhatItsContactDelivered: range(28),
    mutants.NeverGivesUp: range(4),
    mutants.GivesUpAtOnce: range(9, 22),
    mutants.OrphansOnlyOfOneOrigin: range(118, 150),
    mutants.AdmitsAtOnce: range(51, 85),
    mutants.DoesNotWaitForAll: range(7, 22),
    mutants.LeavesAtOnce: range(34, 75),
}
CASES: dict[Make, Callable[[Make], list[str]]] = {
    mutants.TakesFromGhosts: last_words,
    mutants.LivesLookAlike: earlier_life,
    mutants.PartsMerge: joiners_of_two_parts,
}


def test_every_mutant_has_its_storm_or_its_case() -> None:
    assert {*STORMY, *CASES} == set(mutants.MUTANTS)


@pytest.mark.parametrize("mutant", STORMY, ids=lambda mutant: mutant.__name__)
def test_every_rule_is_needed_in_a_storm(mutant: Make) -> None:
    assert is_caught(mutant, STORMY[mutant])


@pytest.mark.parametrize("mutant", CASES, ids=lambda mutant: mutant.__name__)
def test_every_rule_is_needed_in_its_case(mutant: Make) -> None:
    case = CASES[mutant]
    assert case(VCubeMembers) == []
    assert case(mutant) != []


# The simulator's own faults: crashes for good, short outages, and one so long that the group gives up


def scenario(seed: int) -> dict[str, Any]:
    return {
        "name": "vcube-faults",
        "seed": seed,
        "nodes": 8,
        "protocol": "vcube",
        "params": {
            "detect": True,
            "test_interval_us": 20_000,
            "test_timeout_us": 150_000,
            "start_timeout_us": 300_000,
        },
        "topology": {"kind": "full"},
        # A replay finds a packet without a message by its size: it needs links that keep the order.
        "link": {
            "delay": {"kind": "uniform", "low_us": 300, "high_us": 4_000},
            "fifo": True,
            "retransmit_us": 2_000,
        },
        "workloads": [
            {"kind": "poisson", "interval_us": 30_000, "stop_us": 900_000, "payload_bytes": 8},
            {
                "kind": "replies",
                "probability": 0.1,
                "depth": 2,
                "delay": {"kind": "constant", "value_us": 500},
            },
        ],
        "faults": [
            {"kind": "crash", "nodes": ["n2"], "at_us": 300_000},
            {"kind": "crash", "nodes": ["n5"], "at_us": 310_000},
            {"kind": "crash", "nodes": ["n3"], "at_us": 500_000, "restart_us": 560_000},
            {"kind": "crash", "nodes": ["n6"], "at_us": 500_000, "restart_us": 900_000},
        ],
        "stop": {"duration_us": 1_800_000, "drain": False},
    }


def test_detection_needs_a_full_mesh() -> None:
    with pytest.raises(ScenarioError, match="any two others"):
        from_dict({**scenario(1), "topology": {"kind": "hypercube"}})


def test_the_example_ends_with_agreement(tmp_path: Path) -> None:
    result = simulate_in(load(EXAMPLE), tmp_path)
    assert result.waiting == {}
    [report] = verify_trace(tmp_path, complete=True)
    assert report.ok, report.findings
    assert report.deliveries > 5_000


@pytest.mark.parametrize("seed", range(3))
def test_simulated_crashes_verify_completely_and_replay(tmp_path: Path, seed: int) -> None:
    result = simulate_in(from_dict(scenario(seed)), tmp_path, check=seed == 0)
    assert result.waiting == {}
    assert result.drained
    [report] = verify_trace(tmp_path, complete=True)
    assert report.ok, report.findings
    assert report.broadcasts > 150
    crashed = [event.node for event in open_trace(tmp_path).events() if event.kind is Kind.CRASH]
    assert sorted(crashed) == ["n2", "n3", "n5", "n6", "n6"], "n6 stops itself when it comes back"
    replayed = replay(tmp_path)
    assert replayed.ok, replayed.mismatches[:3]
