"""A real system's log in every format: no alarm on clean runs, and every planted reordering found."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from simulation.shop import EXPORTS, Plan, run_shop
from whence.foreign.judge import judge
from whence.foreign.mapping import mapping_of
from whence.foreign.read import read_log
from whence.foreign.report import Audit, text_of


def audits(plan: Plan, folder: Path) -> dict[str, Audit]:
    shop = run_shop(plan)
    made = {}
    for name, export in EXPORTS.items():
        path, document = export(shop, folder)
        made[name] = judge(read_log(path, mapping_of(document)), name)
    return made


def check_clean(seeds: range, folder: Path) -> None:
    judged: Counter[str] = Counter()
    for seed in seeds:
        for name, audit in audits(Plan(seed), folder).items():
            assert audit.verdict == "ok", (seed, name, text_of(audit))
            judged.update(f"{name} {each}" for each in audit.judged)
    for name in EXPORTS:
        order = "reads" if name == "history" else "fifo"
        assert judged[f"{name} {order}"] == len(seeds), (name, judged)
    for name in ("csv", "jsonl", "parquet", "lines", "shiviz"):
        assert judged[f"{name} causal"] == len(seeds)
    assert judged["shiviz clock"] == len(seeds)


def test_clean_runs_give_no_alarm_in_any_format(tmp_path: Path) -> None:
    check_clean(range(15), tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_thousand_clean_runs(tmp_path: Path) -> None:
    check_clean(range(100, 1_100), tmp_path)


def check_planted(seeds: range, folder: Path) -> None:
    stale = 0
    for seed in seeds:
        for name, audit in audits(Plan(seed, reorder=True), folder).items():
            if name == "history":
                assert audit.verdict == "ok"
                continue
            assert audit.counts("broken").get("fifo") == 1, (seed, name, text_of(audit))
            if name in {"csv", "jsonl", "parquet", "lines", "shiviz"}:
                assert audit.properties["causal"].count == 1
        stale += audits(Plan(seed, stale=True), folder)["history"].counts("broken").get("reads", 0)
    assert stale > 0


def test_every_planted_reordering_is_found(tmp_path: Path) -> None:
    check_planted(range(5), tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_planted_reordering_is_found_in_many_runs(tmp_path: Path) -> None:
    check_planted(range(100, 300), tmp_path)
