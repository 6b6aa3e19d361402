"""Mode `safe` in thousands of random worlds: no violation, no duplicate, nothing late.

Clocks are off by up to the stated skew; lifetimes change from message to message; packets are lost, repeated
and reordered; contacts are cut and small caches overflow (`oppnet`); nodes restart from what they
saved; in some worlds of `barrier` more nodes come later and take over a past (rule R9). The verifier judges
the trace and knows no protocol. That what ends does so once and undelivered is seen by the worlds themselves.
"""

from __future__ import annotations

import pytest

from support.barrier_worlds import Judge, random_run

RUNS, RUNS_SLOW = 60, 5_000  # of each protocol
JOINERS = 150


def judge(net: Judge, seed: int) -> None:
    report = net.report()
    counts = report.counts
    assert report.ok, (seed, report.findings)
    assert (counts.causal, counts.fifo, counts.duplicate, counts.created, net.late) == (0, 0, 0, 0, 0), seed
    assert not +net.found, (seed, net.found)


def one_run(protocol: str, seed: int, joiners: bool = False) -> Judge:
    net = random_run(seed, protocol, check=True, joiners=joiners)
    judge(net, seed)
    return net


def run_all(protocol: str, first: int, last: int, *, joiners: bool = False) -> tuple[int, int, int]:
    deliveries = expiries = adopted = 0
    for seed in range(first, last):
        net = one_run(protocol, seed, joiners)
        deliveries += sum(map(len, net.delivered.values()))
        expiries += len(net.expired)
        adopted += joiners and sum(bool(core.order.cut) for core in net.cores.values())
    return deliveries, expiries, adopted


@pytest.mark.parametrize("protocol", ["barrier", "oppnet"])
def test_safe_mode_in_random_worlds(protocol: str) -> None:
    deliveries, expiries, _ = run_all(protocol, 0, RUNS)
    assert deliveries > 15 * RUNS  # the worlds are not empty
    assert expiries > RUNS // 2


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["barrier", "oppnet"])
def test_safe_mode_in_thousands_of_random_worlds(protocol: str) -> None:
    assert run_all(protocol, RUNS, RUNS_SLOW)[0] > 15 * RUNS_SLOW


def test_safe_mode_with_late_joiners_and_mixed_lifetimes() -> None:
    """Joiners do take over a past: without rule R9 these worlds break (`NamesNothingAdopted` of the zoo)."""
    deliveries, expiries, adopted = run_all("barrier", 0, JOINERS, joiners=True)
    assert deliveries > 15 * JOINERS
    assert expiries > JOINERS // 2
    assert adopted > JOINERS


@pytest.mark.slow
def test_safe_mode_with_late_joiners_in_thousands_of_random_worlds() -> None:
    assert run_all("barrier", JOINERS, RUNS_SLOW, joiners=True)[0] > 15 * RUNS_SLOW


def test_the_same_worlds_do_break_the_printed_codes() -> None:
    broken = late = 0
    for seed in range(80):
        net = random_run(seed, mode="published", skew_us=0, lifetime_us=60)
        broken += net.report().counts.causal > 0
        late += net.late
    assert broken > 20
    assert late > 20


def test_a_skew_that_was_not_stated_does_break_order() -> None:
    """So the expiry rule is needed, and the worlds above do try it."""
    runs = (random_run(seed, skew_us=100, assumed_us=0) for seed in range(250))
    assert any(net.report().counts.causal for net in runs)
