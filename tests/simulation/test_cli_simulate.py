"""`whence simulate` and `whence replay` as a user calls them: exit codes, output, errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from whence.cli.main import main
from whence.sim.files import load, run_id
from whence.trace.reader import open_trace

EXAMPLES = Path(__file__).parents[2] / "examples" / "scenarios"
SLOW_LINK = str(EXAMPLES / "slow-link.toml")


def whence(*args: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(args))
    code = ended.value.code
    return code if isinstance(code, int) else 0


def document(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_a_run_ends_with_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert whence("simulate", SLOW_LINK) == 0
    out = capsys.readouterr().out
    assert "slow-link" in out
    assert "20 (0)" in out  # broadcasts (skipped)
    assert "60 (0)" in out  # deliveries (missing)


def test_json_is_one_document_and_the_trace_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "trace"
    assert whence("simulate", SLOW_LINK, "--out", str(out), "--json") == 0
    found = document(capsys)
    assert found["result"]["broadcasts"] == 20
    assert found["verdict"] is None
    trace = open_trace(out)
    assert trace.runs == [run_id(load(Path(SLOW_LINK)))] == [found["result"]["run"]]
    assert trace.manifests[0].trace_hash == found["trace_hash"]
    assert trace.manifests[0].parameters["protocol"] == "fifo"
    assert trace.manifests[0].parameters["params"] == {"relay": False}
    assert trace.promises(trace.runs[0]).complete
    # A second run does not destroy the first, unless asked to.
    assert whence("simulate", SLOW_LINK, "--out", str(out)) == 2
    assert "already there" in capsys.readouterr().err
    assert whence("simulate", SLOW_LINK, "--out", str(out), "--overwrite", "--json") == 0


def test_verify_demands_causal_order(capsys: pytest.CaptureFixture[str]) -> None:
    assert whence("simulate", SLOW_LINK, "--verify", "--json") == 1
    fifo = document(capsys)["verdict"]
    assert fifo["counts"]["causal"] == 10
    assert whence("simulate", SLOW_LINK, "--verify", "--json", "--set", "protocol=vector") == 0
    vector = document(capsys)["verdict"]
    assert vector["counts"]["causal"] == 0
    assert vector["promises"]["causal"]


def test_a_broken_promise_is_exit_code_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from whence.protocols import registry
    from whence.protocols.baselines.fifo import Fifo

    info = registry.lookup("fifo")
    liar = registry.ProtocolInfo(
        name="liar",
        make=Fifo,
        packet_type=info.packet_type,
        promises=registry.lookup("vector").promises,
        environment="",
        summary="",
    )
    monkeypatch.setitem(registry._REGISTRY, "liar", liar)
    assert whence("simulate", SLOW_LINK, "--verify", "--set", "protocol=liar") == 1
    assert "BROKEN" in capsys.readouterr().out


def test_seed_and_set_change_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(EXAMPLES / "reordering-lan.toml")
    changes = ["--set", "stop.duration_us=50_000", "--set", "workloads.0.interval_us=5_000", "--json"]
    runs = []
    for seed in ("1", "2"):
        assert whence("simulate", path, "--seed", seed, *changes) == 0
        runs.append(document(capsys)["result"])
    assert [each["seed"] for each in runs] == [1, 2]
    assert runs[0]["run"] != runs[1]["run"]
    assert runs[0]["broadcasts"] != runs[1]["broadcasts"]


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (["simulate", "absent.toml"], "absent.toml"),
        (["simulate", SLOW_LINK, "--set", "link.loss=2"], "link.loss"),
        (["simulate", SLOW_LINK, "--set", "nonsense"], "nonsense"),
        (["simulate", SLOW_LINK, "--set", "protocol=vectr"], "vector"),
        (["simulate", SLOW_LINK, "--verify", "--set", "record.level=measures"], "--verify"),
        (["replay", "absent"], "absent"),
    ],
)
def test_mistakes_are_two_lines_and_exit_code_two(
    args: list[str], word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert whence(*args) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert word in captured.err
    assert "error:" in captured.err
    assert "fix:" in captured.err
    assert "Traceback" not in captured.err


def test_replay_says_identical(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in ("1", "2"):
        whence("simulate", SLOW_LINK, "--out", str(tmp_path / f"run={seed}"), "--seed", seed)
    capsys.readouterr()
    assert whence("replay", str(tmp_path)) == 0
    assert capsys.readouterr().out.count("identical") == 2
    assert whence("replay", str(tmp_path / "run=1"), "--json") == 0
    found = document(capsys)
    assert [report["ok"] for report in found] == [True]
    assert found[0]["inputs"] > 0


def test_replay_says_what_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from support.running import simulate_to
    from whence.protocols.baselines.vector import Vector

    scenario = load(Path(SLOW_LINK))
    simulate_to(scenario, tmp_path, make=lambda me, members: Vector(me, members, relay=False))
    assert whence("replay", str(tmp_path)) == 1
    out = capsys.readouterr().out
    assert "DIFFERS" in out
    assert "recorded" in out


def test_a_long_run_shows_progress_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert whence("simulate", SLOW_LINK, "--json") == 0
    captured = capsys.readouterr()
    assert "simulated ms" in captured.err
    json.loads(captured.out)


def test_fifo_is_caught_unless_only_its_own_promises_are_demanded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "slow")
    assert whence("simulate", SLOW_LINK, "--out", out) == 0
    assert whence("verify", out) == 1
    assert "BROKEN" in capsys.readouterr().out
    assert whence("verify", out, "--as-promised") == 0
    assert "(causal 10)" in capsys.readouterr().out
