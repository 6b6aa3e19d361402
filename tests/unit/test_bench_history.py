"""The history of benches: figures are found in what is printed, and kept with where they come from."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_history", ROOT / "bench" / "history.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    monkeypatch.setattr(made, "HERE", tmp_path)
    monkeypatch.setattr(made, "HISTORY", tmp_path / "history.jsonl")
    return made


def test_figures_are_the_objects_that_lines_begin_with(history: ModuleType) -> None:
    printed = 'a table {"not": 1}\n{"cpu_s": 1.5}\n{broken\n{\n "log": {"us": 2}\n}\n[3]\n{"last": 4}'
    assert list(history.figures_in(printed)) == [{"cpu_s": 1.5}, {"log": {"us": 2}}, {"last": 4}]


def test_a_run_is_kept(history: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bench_one.py").write_text("import sys\nprint(sys.argv[1:])\nprint('{\"us\": 3}')\n")
    assert history.measure("one", ["--quick"], history.HISTORY) == 0
    kept = json.loads(history.HISTORY.read_text())
    assert kept["figures"] == [{"us": 3}]
    assert kept["arguments"] == ["--quick"]
    assert {"at", "commit", "load_before", "wall_s", "cores", "python"} <= set(kept)
    assert history.main(["--show", "one"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == kept


def test_a_bench_that_fails_leaves_no_figures(history: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "bench_one.py").write_text("print('{\"us\": 3}')\nraise SystemExit(4)\n")
    assert history.measure("one", [], history.HISTORY) == 4
    assert not history.HISTORY.exists()
    assert history.main(["two"]) == 2


def test_what_is_kept_in_the_repository_can_be_read() -> None:
    for line in (ROOT / "bench" / "history.jsonl").read_text().splitlines():
        kept = json.loads(line)
        assert kept["figures"]
        assert (ROOT / "bench" / f"bench_{kept['bench']}.py").exists()


def test_the_page_shows_every_run_with_its_figures(history: ModuleType) -> None:
    run = {
        "bench": "one",
        "arguments": ["--quick"],
        "at": "2026-11-18T10:00:00+00:00",
        "commit": "abc",
        "cores": 2,
    }
    run |= {"load_before": 0.5, "wall_s": 3.0, "machine": "x86_64", "python": "3.11.7"}
    older = {**run, "at": "2026-11-17T10:00:00+00:00", "figures": [{"us": 4000, "is_quick": True}]}
    newer = {**run, "figures": [{"ratio": 1.5, "rows": [{"us": 3}]}]}
    page = history.page_of(json.dumps(older) + "\n" + json.dumps(newer) + "\n")
    assert page.index("2026-11-18") < page.index("2026-11-17")
    assert "`python bench/history.py one --quick`: commit `abc`" in page
    assert "| 1 | ratio 1.5 |\n| 1.rows.1 | us 3 |" in page
    assert "| 1 | us 4,000, is_quick True |" in page
