"""Emulation: live nodes whose meetings follow a contact plan get what the simulation says that they get."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from whence.errors import ScenarioError
from whence.lab.emulate import Worker, emulate
from whence.mobility.plan_io import save_plan
from whence.overlay.contacts import make_plan
from whence.sim.files import from_dict, load

ROOT = Path(__file__).parents[2]
SECOND_US = 1_000_000


def mules(protocol: str = "log") -> dict[str, object]:
    """n1 carries between n0 and n2, n3 comes last; messages live for 20 s."""
    met = [(0, 1, 1, 4), (1, 2, 8, 11), (2, 3, 20, 24), (0, 1, 25, 29), (1, 3, 30, 38), (0, 2, 36, 39)]
    return {
        "name": "mules",
        "nodes": 4,
        "protocol": protocol,
        "params": {"lifetime_us": 20 * SECOND_US, "tick_us": 200_000},
        "topology": {
            "kind": "contacts",
            "rows": [[a, b, start * SECOND_US, stop * SECOND_US] for a, b, start, stop in met],
        },
        "link": {"delay": {"kind": "constant", "value_us": 2_000}},
        "workloads": [{"kind": "periodic", "interval_us": 3 * SECOND_US, "start_us": 500_000}],
        "stop": {"duration_us": 40 * SECOND_US, "drain": False},
    }


@pytest.mark.parametrize(("processes", "free"), [(1, False), (3, False), (2, True)])
def test_real_nodes_receive_what_the_simulation_says(tmp_path: Path, processes: int, free: bool) -> None:
    found = emulate(from_dict(mules()), tmp_path / "trace", speed=10.0, processes=processes, free=free)
    assert found.processes == processes
    assert found.ok
    assert found.violations == 0
    assert found.simulated_receives > 50
    if free:  # a machine that is busy loses contacts, or ends them late
        assert found.lost_us == 0
        assert found.connections <= found.contacts == 6
        assert 0 < found.emulated_receives <= 3 * found.broadcasts
        return
    assert found.connections == found.contacts == 6
    assert found.emulated_receives == found.simulated_receives
    assert found.emulated_delay_s == pytest.approx(found.simulated_delay_s, abs=1.0)


def test_a_process_that_hears_late_of_its_contacts_costs_no_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Orders reach one of two processes later than the calls of the other could."""
    told, waiting = Worker.order, set[asyncio.Task[None]]()

    def late(self: Worker, *words: Any) -> asyncio.Future[None]:
        if words[1] not in ("n1", "n3"):
            return told(self, *words)
        done = asyncio.get_running_loop().create_future()

        async def tell() -> None:
            await asyncio.sleep(0.03)
            done.set_result(await told(self, *words))

        task = asyncio.create_task(tell())
        waiting.add(task)
        task.add_done_callback(waiting.discard)
        return done

    monkeypatch.setattr(Worker, "order", late)
    found = emulate(from_dict(mules()), tmp_path / "trace", speed=10.0, processes=2)
    assert found.ok
    assert found.connections == found.contacts == 6


def test_only_the_log_follows_a_plan_live(tmp_path: Path) -> None:
    other = {**mules("oppnet"), "params": {}}
    with pytest.raises(ScenarioError, match="under protocol 'log'"):
        emulate(from_dict(other), tmp_path, speed=100.0)


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    program = "from whence.cli.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", program, "emulate", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "NO_COLOR": "1"},
    )


def test_a_contact_plan_is_emulated_from_the_command_line(tmp_path: Path) -> None:
    plan = make_plan(["ann", "bob"], [(0, 1, 2 * SECOND_US, 9 * SECOND_US)], stop_us=10 * SECOND_US)
    save_plan(plan, tmp_path / "plan.csv")
    done = command(tmp_path / "plan.csv", "--speed", "10", "--interval", "3", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["ok"]
    assert found["emulated_receives"] == found["simulated_receives"] > 0
    shown = command(tmp_path / "plan.csv", "--speed", "50", "--interval", "3", "--processes", "2")
    assert shown.returncode in (0, 1), shown.stderr
    assert "receives: emulated" in shown.stdout


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_bus_day_of_paper_001(tmp_path: Path) -> None:
    """60 buses at 200 times the speed: receives within 3 %, no violation."""
    scenario = load(ROOT / "examples/scenarios/bus-day.toml")
    found = emulate(scenario, tmp_path / "trace", speed=200.0, processes=2)
    print(found)
    assert found.ok
    assert abs(found.difference) <= 0.03
