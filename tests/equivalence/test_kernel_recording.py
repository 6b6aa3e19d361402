"""A run that a kernel records is, file for file, the run that the core records; its measures lie beside."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from equivalence.vcube_runs import random_scenario, run_core
from support.running import simulate_to
from whence.errors import TraceError
from whence.kernels import __main__ as beforehand
from whence.lab.run import path_of, run
from whence.sim.files import run_id
from whence.studies.vcube.grid import scenario
from whence.trace.measures import MEASURES_FILE, Measured, read_measures, write_measures
from whence.trace.reader import open_trace
from whence.trace.schema import Level


@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize("seed", range(12))
def test_manifests_are_equal_at_every_level(seed: int, level: Level, tmp_path: Path) -> None:
    made = random_scenario(seed, largest=24)
    expected = simulate_to(made, tmp_path / "core", level)
    outcome = run(made, tmp_path / "kernel", level=level, kernel="always")
    assert (outcome.path, outcome.manifest) == ("kernel", expected)
    assert open_trace(tmp_path / "kernel").event_count == expected.events
    assert read_measures(tmp_path / "core") is None


def test_the_measures_are_the_cores(tmp_path: Path) -> None:
    made = scenario("R0", 16, "aggregation", 3, "measures")
    run(made, tmp_path, kernel="always")
    found = read_measures(tmp_path)
    assert found is not None
    assert (found.run, found.protocol, found.counted_by) == (run_id(made), "vcube", "kernel")
    _, _, measures = run_core(made)
    assert found.measures == msgspec.to_builtins(measures, str_keys=True)


def test_what_no_kernel_takes_goes_through_the_core(tmp_path: Path) -> None:
    made = scenario("R0", 8, "aggregation", 3, "all")
    fifo = msgspec.structs.replace(made, link=msgspec.structs.replace(made.link, fifo=True))
    assert path_of(fifo, kernel="always") == ("core", "links are FIFO")
    outcome = run(fifo, tmp_path / "a", kernel="always")
    assert outcome.manifest == simulate_to(fifo, tmp_path / "b")
    assert read_measures(tmp_path / "a") is None


def test_a_run_that_is_cut_off_goes_through_the_core(tmp_path: Path) -> None:
    made = scenario("R0", 8, "aggregation", 3, "all")
    stop = msgspec.structs.replace(made.stop, drain=False)
    cut = msgspec.structs.replace(made, stop=stop)
    outcome = run(cut, tmp_path / "a", kernel="always")
    assert (outcome.path, outcome.why) == ("core", "the run is cut off before everything has arrived")
    assert outcome.manifest == simulate_to(cut, tmp_path / "b")
    assert read_measures(tmp_path / "a") is None


def test_kernels_load_from_the_zip_that_a_cluster_is_given(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    from whence.spark.shipping import package_zip

    archive = package_zip(tmp_path)
    code = (
        "from whence.kernels.vcube import kernel; from whence.studies.vcube import measures; "
        "print(kernel.__file__)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(archive)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.stdout.startswith(str(archive)), ended.stderr


def test_what_is_not_compiled_is_compiled_beforehand_and_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert [name for name, _ in beforehand.kernels()] == ["vcube", "deadline", "oppnet", "prc"]
    made: list[str] = []

    def known(name: str, *, compiled: bool) -> tuple[str, SimpleNamespace]:
        return name, SimpleNamespace(is_compiled=lambda: compiled, warm_up=lambda: made.append(name))

    some = [known("old", compiled=True), known("new", compiled=False)]
    monkeypatch.setattr(beforehand, "kernels", lambda: some)
    beforehand.main()
    assert made == ["new"]
    said = capsys.readouterr().err
    assert "kernel of new" in said
    assert "old" not in said


# The file


MEASURED = Measured(run="r", protocol="p", counted_by="c", measures={"n": 3, "l": [1, 2], "t": {"74": 1}})


def test_measures_are_read_as_they_were_written(tmp_path: Path) -> None:
    write_measures(tmp_path, MEASURED)
    assert read_measures(tmp_path) == MEASURED
    assert [path.name for path in tmp_path.iterdir()] == [MEASURES_FILE]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{", "it holds no measures"),
        (b'{"run": 1}', "it holds no measures"),
        (msgspec.json.encode(msgspec.structs.replace(MEASURED, format="other")), "not 'whence-measures' 1"),
        (msgspec.json.encode(msgspec.structs.replace(MEASURED, version=2)), "version 2"),
        (
            msgspec.json.encode({**msgspec.to_builtins(MEASURED), "measures": {"n": "x"}}),
            "it holds no measures",
        ),
    ],
)
def test_what_is_damaged_or_foreign_is_refused(content: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / MEASURES_FILE).write_bytes(content)
    with pytest.raises(TraceError, match=reason):
        read_measures(tmp_path)


def test_measures_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be written"):
        write_measures(tmp_path / "nowhere", MEASURED)
