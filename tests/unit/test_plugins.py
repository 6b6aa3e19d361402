"""Protocols, kernels and studies of other packages: installed or named, they are used like our own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from whence import plugins
from whence.errors import PluginError, UnknownProtocolError
from whence.kernels import contract
from whence.lab.run import run
from whence.protocols import registry
from whence.sim.files import load
from whence.studies import registry as studies

EXAMPLE = Path(__file__).parents[2] / "examples" / "plugin"
SCENARIO = EXAMPLE / "bss.toml"

LIVE = """
import asyncio, socket, whence

def free():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]

async def main():
    peers = {name: f"127.0.0.1:{free()}" for name in ("ann", "bob")}
    async with (
        whence.join("room", node="ann", peers=peers, protocol="bss") as ann,
        whence.join("room", node="bob", peers=peers, protocol="bss") as bob,
    ):
        await ann.broadcast(b"hello")
        print((await bob.receive()).payload.decode())

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with the example's package built and installed, as a stranger would."""
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--target", target, str(EXAMPLE)], check=True)
    return target


def whence(*arguments, path, cwd=None, code=0):
    result = subprocess.run(
        [sys.executable, "-m", "whence", *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": str(path)},
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == code, result.stderr
    return result


@pytest.fixture
def plug(tmp_path, monkeypatch):
    """Write a module, and let this process alone take it up."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv(plugins.VARIABLE, "")
    monkeypatch.setattr(plugins, "_REFUSED", {})

    def write(name, text):
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
        plugins._found.cache_clear()
        plugins.use(name)

    yield write
    plugins._found.cache_clear()


def test_the_example_is_short():
    text = (EXAMPLE / "src" / "whence_bss" / "__init__.py").read_text()
    assert text.count("\n") < 100


def test_an_installed_protocol_is_listed_simulated_verified_and_replayed(installed, tmp_path):
    listed = json.loads(whence("protocols", "--json", path=installed).stdout)
    assert "bss" in [each["name"] for each in listed]
    trace = tmp_path / "trace"
    found = whence("simulate", SCENARIO, "--verify", "--json", "--out", trace, path=installed)
    assert json.loads(found.stdout)["verdict"]["ok"] is True
    whence("replay", trace, path=installed)


def test_an_installed_protocol_runs_live(installed):
    result = subprocess.run(
        [sys.executable, "-c", LIVE],
        env=os.environ | {"PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert result.stdout == "hello\n"


@pytest.mark.spark
def test_a_protocol_in_a_file_beside_is_swept_on_workers_that_do_not_have_it(tmp_path):
    (tmp_path / "mine.py").write_text((EXAMPLE / "src" / "whence_bss" / "__init__.py").read_text())
    grid = tmp_path / "grid.toml"
    grid.write_text(SCENARIO.read_text().replace("1_000_000", "100_000") + "\n[grid]\nseed = [1, 2]\n")
    whence("--plugin", "mine", "sweep", grid, "--out", tmp_path / "out", path="", cwd=tmp_path)
    assert len(list((tmp_path / "out").glob("run=*/status.json"))) == 2


def test_the_example_keeps_its_invariants_and_its_order(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLE / "src")
    monkeypatch.setenv(plugins.VARIABLE, "whence_bss")
    for seed in range(5):
        outcome = run(load(SCENARIO, [f"seed={seed}", "stop.duration_us=100_000"]), check=True)
        assert outcome.undelivered == 0
        assert outcome.broadcasts > 50
        assert outcome.waiting == {}


def test_a_name_that_is_taken_is_refused_and_ours_stays(plug):
    plug(
        "usurper",
        "from dataclasses import replace\nfrom whence.protocols import registry\n"
        "PROTOCOLS = (replace(registry.lookup('fifo'), name='vector'),"
        " replace(registry.lookup('fifo'), name='mine'))",
    )
    assert registry.lookup("mine").summary == registry.lookup("fifo").summary
    assert registry.lookup("vector").promises.causal
    (problem,) = plugins.problems()
    assert "'vector'" in problem.reason
    assert "taken" in problem.reason


def test_things_of_another_kind_are_said(plug):
    plug("odd", "PROTOCOLS = ('text',)")
    with pytest.raises(UnknownProtocolError, match="not a ProtocolInfo"):
        registry.lookup("text")


def test_a_kernel_and_a_study_are_found(plug):
    plug(
        "more",
        "from dataclasses import replace\nfrom whence.kernels.contract import KernelEntry\n"
        "from whence.sim.model import Full\nfrom whence.studies import registry\n"
        "KERNELS = (KernelEntry('vector', 'more', (Full,)),)\n"
        "STUDIES = (replace(registry.lookup('vcube'), name='again', title='Once more'),)",
    )
    assert studies.lookup("again").title == "Once more"
    assert studies.lines()["again"] == "Once more"
    scenario = load(SCENARIO, ["protocol=vector"])
    assert contract.missing(scenario) is None
    assert contract.load(scenario).__name__ == "more"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import nowhere_to_be_found", "cannot be imported"),
        ("x = 1", "brings nothing"),
        ("1 / 0", "ZeroDivision"),
    ],
)
def test_a_plugin_that_cannot_be_used_is_refused(plug, text, words):
    with pytest.raises(PluginError, match=words):
        plug("bad", text)


def test_a_broken_plugin_costs_its_own_names_only(tmp_path):
    (tmp_path / "broken.py").write_text("1 / 0")
    info = tmp_path / "broken-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[whence.plugins]\nbroken = broken\n")
    listed = whence("protocols", path=tmp_path)
    assert "vector" in listed.stdout
    assert "plug-in 'broken'" in listed.stderr
    asked = whence("--plugin", "broken", "protocols", path=tmp_path, code=2)
    assert "ZeroDivisionError" in asked.stderr
    scenario = tmp_path / "scenario.toml"
    scenario.write_text(SCENARIO.read_text().replace('"bss"', '"mine"'))
    wrong = whence("simulate", scenario, path=tmp_path, code=2)
    assert "plug-in 'broken'" in wrong.stderr
