"""The laws by which a protocol is chosen are those that runs follow."""

from __future__ import annotations

import json
from math import inf

import pytest

from whence.cli.main import main
from whence.errors import ParameterError
from whence.kernels.prc.kernel import run
from whence.protocols import registry
from whence.protocols.prc.choice import Workload, choose
from whence.sim.distributions import Constant
from whence.sim.engine import Engine
from whence.sim.model import Link, Random, Record, Scenario, Stop, Window
from whence.studies.prc.grid import FRONTIER_DELAY_MS, rate_run
from whence.studies.prc.measures import SECOND_US

DELAY_S = FRONTIER_DELAY_MS / 1_000


@pytest.mark.parametrize(("nodes", "rate"), [(50, 10), (200, 10), (200, 40)])
def test_prc_holds_what_its_law_says(nodes: int, rate: int) -> None:
    scenario = rate_run(nodes, rate, 1)
    series = run(scenario).series
    assert series is not None
    last = series.windows[-2]
    held = (last.expected_us + last.buffered_us) / last.process_us
    degree = last.degree_us / last.process_us
    law = choose(Workload(nodes, rate, DELAY_S, degree)).entries["prc"]
    assert held == pytest.approx(law, rel=0.15)  # buffers come on top
    assert choose(Workload(nodes, rate, DELAY_S)).entries["prc"] == pytest.approx(law, rel=0.2)


@pytest.mark.parametrize("protocol", ["vector", "barrier"])
def test_the_others_hold_what_theirs_say(protocol: str) -> None:
    nodes, rate = 24, 48
    scenario = Scenario(
        nodes=nodes,
        protocol=protocol,
        seed=3,
        topology=Random(degree=6),
        link=Link(delay=Constant(value_us=20_000)),
        workloads=[Window(count=8, stop_us=8 * nodes * SECOND_US // rate, payload_bytes=0)],
        stop=Stop(duration_us=8 * nodes * SECOND_US // rate),
        record=Record(level="measures"),
    )
    engine = Engine(scenario, lambda me, members: registry.make(protocol, me, members))
    engine.run()
    held = sum(driver.core.entries() for driver in engine.drivers) / nodes
    assert held == pytest.approx(choose(Workload(nodes, rate, 0.04)).entries[protocol], rel=0.15)


def test_the_choice_turns_at_the_frontier() -> None:
    even = choose(Workload(100, 1, DELAY_S)).even_broadcasts_per_s
    assert choose(Workload(100, 0.99 * even, DELAY_S)).best == "prc"
    assert choose(Workload(100, 1.01 * even, DELAY_S)).best != "prc"
    assert choose(Workload(100, 10, DELAY_S, members_known=False)).entries.keys() == {"prc", "barrier"}
    assert choose(Workload(100, 10**6, DELAY_S, degree=1)).even_broadcasts_per_s < inf
    assert choose(Workload(100, 10**6, DELAY_S, 1, members_known=False)).even_broadcasts_per_s == inf
    for wrong in (Workload(1, 1, 1), Workload(9, -1, 1), Workload(9, 1, 0), Workload(9, 1, 1, 0)):
        with pytest.raises(ParameterError):
            choose(wrong)


def test_the_command_says_which(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["protocols", "--choose", "100", "100", "0.3", "--json"])
    assert not ended.value.code
    found = json.loads(capsys.readouterr().out)
    assert (found["best"], list(found["entries"])) == ("barrier", ["barrier", "vector", "prc"])
    with pytest.raises(SystemExit):
        main(["protocols", "--choose", "100", "10", "0.3"])
    assert "prc holds least" in capsys.readouterr().out
