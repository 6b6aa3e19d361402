"""Replay over contacts: a cut takes control packets, and the next ones of the same size say other things."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from support.oppnet_runs import small_scenario
from support.running import simulate_to
from whence.cli.main import main
from whence.core.message import Packet
from whence.protocols.barrier.broadcast import Barrier
from whence.protocols.barrier.oppnet import Oppnet
from whence.sim.files import from_dict
from whence.sim.model import Scenario
from whence.sim.replay import replay
from whence.trace.reader import open_trace
from whence.trace.schema import Kind

SEEDS = 12


def scenario_of(seed: int, protocol: str) -> Scenario:
    """Many short contacts, and packets that are under way for a good part of them."""
    params: dict[str, object] = {"mode": "safe", "lifetime_us": 6_000, "skew_us": 1_000}
    if protocol == "oppnet":
        params |= {"seed": seed, "gap_us": 40, "setup_max_us": 50}
    rows = [
        [one, other, at_us, at_us + 150 + 130 * (at_us // 400 % 3)]
        for one in range(4)
        for other in range(one + 1, 4)
        for at_us in range(400 * (one + other + seed % 3), 30_000, 1_200)
    ]
    plain = {
        "nodes": 4, "protocol": protocol, "seed": seed, "params": params,
        "topology": {"kind": "contacts", "rows": rows},
        "link": {"delay": {"kind": "uniform", "low_us": 1, "high_us": 180}},
        # Only a node that has no past of its own takes over that of a neighbour (`barrier`).
        "workloads": [{"kind": "periodic", "interval_us": 700, "jitter_us": 300, "senders": ["n0", "n1"]}],
        "stop": {"duration_us": 30_000, "drain": False},
    }  # fmt: skip
    return from_dict(plain)


def lost_control(folder: Path) -> int:
    counts = Counter(event.kind for event in open_trace(folder).events() if event.origin is None)
    return counts[Kind.SEND] - counts[Kind.RECEIVE]


@pytest.mark.parametrize("protocol", ["oppnet", "barrier"])
def test_what_a_cut_contact_took_does_not_confuse_a_replay(protocol: str, tmp_path: Path) -> None:
    lost = 0
    for seed in range(SEEDS):
        folder = tmp_path / str(seed)
        simulate_to(scenario_of(seed, protocol), folder)
        lost += lost_control(folder)
        report = replay(folder)
        assert report.ok, (seed, report.mismatches[:2])
    assert lost > 10 * SEEDS


@pytest.mark.parametrize("seed", range(20))
def test_drawn_oppnet_runs_replay_identically(seed: int, tmp_path: Path) -> None:
    """Both modes, lifetimes, clocks that are wrong, nodes that leave and come back."""
    manifest = simulate_to(small_scenario(seed), tmp_path)
    report = replay(tmp_path)
    assert report.ok, report.mismatches[:2]
    assert report.events == manifest.events


def test_the_command_finds_such_a_run_identical(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simulate_to(scenario_of(1, "oppnet"), tmp_path)
    assert lost_control(tmp_path) > 0
    with pytest.raises(SystemExit) as ended:
        main(["replay", str(tmp_path)])
    assert ended.value.code == 0
    assert "identical" in capsys.readouterr().out


def without_detail(
    kind: type[Oppnet] | type[Barrier], params: dict[str, object]
) -> Callable[..., Oppnet | Barrier]:
    class Silent(kind):  # type: ignore[valid-type,misc]  # the same change to two cores
        def detail_of(self, packet: Packet) -> str | None:
            return None

    return lambda me, members: Silent(me, members, **params)


@pytest.mark.parametrize(("protocol", "kind"), [("oppnet", Oppnet), ("barrier", Barrier)])
def test_sizes_alone_would_not_tell_them_apart(
    protocol: str, kind: type[Oppnet] | type[Barrier], tmp_path: Path
) -> None:
    """So these worlds do try it."""
    confused = 0
    for seed in range(SEEDS):
        scenario = scenario_of(seed, protocol)
        make = without_detail(kind, dict(scenario.params))
        simulate_to(scenario, tmp_path / str(seed), make=make)
        confused += not replay(tmp_path / str(seed), make=make).ok
        if confused > SEEDS // 5:
            return
    pytest.fail(f"only {confused} of {SEEDS} replays differ")
