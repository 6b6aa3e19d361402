"""The judge of foreign logs against brute force, on random logs; compiled loops against plain ones."""

from __future__ import annotations

import random
from typing import Any

import pytest

from support.audits import Brute, log_of, random_log
from whence.foreign import kernels
from whence.foreign.judge import judge
from whence.foreign.model import Contract, Log
from whence.foreign.report import NOT_JUDGED, Audit

CONTRACT = Contract(complete=("sends", "deliveries"), members=("a", "b", "g"))


def count(audit: Audit, name: str) -> int | None:
    each = audit.properties[name]
    return None if each.status == NOT_JUDGED else each.count


def late(log: Log, audit: Audit, name: str) -> set[tuple[Any, ...]]:
    """Which deliveries were found to be late, and that their witnesses hold."""
    found = set()
    for each in audit.properties[name].findings:
        early, event = each.events[:2]
        assert log.scope[early] == log.scope[event]
        assert (log.msgs[log.msg[event]], log.msgs[log.msg[early]]) == (each.message, each.other)
        found.add(event)
    return found


def compare(seed: int) -> dict[str, int]:
    """One random log; returns what was found, so that the caller can see that something was."""
    rng = random.Random(seed)
    rows, order = random_log(rng)
    log = log_of(rows, order, contract=CONTRACT)
    table_bytes = rng.choice([1 << 20, 8])  # scopes together, or one by one
    audit = judge(log, findings_max=None, table_bytes=table_bytes)
    brute = Brute(rows, order, set(CONTRACT.complete), set(CONTRACT.members))
    firsts = brute.firsts()
    for name, expected in (("causal", brute.causal()), ("fifo", brute.fifo())):
        found = count(audit, name)
        assert (found or 0) == len(expected), (seed, name, found, expected)
        assert late(log, audit, name) == {firsts[key][2] for key in expected}, (seed, name)
    scalar = {
        "duplicate": brute.duplicate(), "created": brute.created(), "lost": brute.lost(),
        "stuck": brute.stuck(), "clock": len(brute.faulty), "cycle": brute.cycle,
    }  # fmt: skip
    for name, expected_count in scalar.items():
        found = count(audit, name)
        assert (found or 0) == expected_count, (seed, name, found, expected_count)
    return {name: count(audit, name) or 0 for name in audit.properties}


def compare_many(seeds: range) -> None:
    total: dict[str, int] = {}
    for seed in seeds:
        for name, found in compare(seed).items():
            total[name] = total.get(name, 0) + bool(found)
    for name in ("causal", "fifo", "duplicate", "created", "lost", "stuck", "clock", "cycle"):
        assert total[name] > len(seeds) // 100, (name, total)


def test_random_logs_are_judged_as_by_brute_force() -> None:
    compare_many(range(400))


@pytest.mark.slow
def test_ten_thousand_random_logs() -> None:
    compare_many(range(1_000, 11_000))


def test_compiled_loops_give_the_same_report(monkeypatch: pytest.MonkeyPatch) -> None:
    logs = [log_of(*random_log(random.Random(seed)), contract=CONTRACT) for seed in range(60)]
    monkeypatch.setattr(kernels, "COMPILED_NODES", 1 << 60)
    monkeypatch.setattr(kernels, "compiled", _never())
    expected = [judge(log) for log in logs]
    monkeypatch.undo()
    monkeypatch.setattr(kernels, "COMPILED_NODES", 0)
    assert [judge(log) for log in logs] == expected


def _never() -> Any:
    class Never:
        def cache_info(self) -> Any:
            return type("Info", (), {"currsize": 0})

    return Never()
