"""Offsets between clocks: the true one is inside its interval, which is no wider than it must be."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import pairwise
from math import floor

import pytest

from whence.foreign import skew
from whence.foreign.skew import ClockOffsets, Drift, Interval, Passage, SeparatingLines

SPAN_US = 60_000_000


class Clock:
    """A clock with an offset whose rate changes now and then; exact."""

    def __init__(self, draw: random.Random, drift_ppm: int, turns: int) -> None:
        each = drift_ppm * 49 // 100  # two such clocks differ by less than the drift
        times = [0, *sorted(draw.sample(range(1, SPAN_US), turns)), 2 * SPAN_US]
        reading = Fraction(draw.randrange(-5_000_000, 5_000_000)) + Fraction(draw.randrange(1000), 1000)
        self._knots = [(Fraction(0), reading)]
        for left, right in pairwise(times):
            reading += (right - left) * Fraction(1_000_000 + draw.randint(-each, each), 1_000_000)
            self._knots.append((Fraction(right), reading))

    def at(self, time: Fraction | int) -> Fraction:
        return self._between(Fraction(time), 0)

    def when(self, reading: Fraction | int) -> Fraction:
        return self._between(Fraction(reading), 1)

    def _between(self, value: Fraction, key: int) -> Fraction:
        for left, right in pairwise(self._knots):
            if left[key] <= value <= right[key]:
                share = (value - left[key]) / (right[key] - left[key])
                return left[1 - key] + share * (right[1 - key] - left[1 - key])
        raise AssertionError(f"{value} is outside of the run")


def run(seed: int, *, drift_ppm: int = 500, turns: int = 4) -> tuple[dict[str, Clock], list[Passage]]:
    """Hosts with skew and drift that send each other messages, some pairs one way only."""
    draw = random.Random(seed)
    clocks = {f"h{each}": Clock(draw, drift_ppm, turns) for each in range(draw.randint(2, 6))}
    pairs = [(one, two) for one in clocks for two in clocks if one != two and draw.random() < 0.7]
    passages = []
    for at in range(draw.randint(1, 120) if pairs else 0):
        source, target = draw.choice(pairs)
        sent = draw.randrange(SPAN_US)
        received = sent + 200 + int(draw.expovariate(1 / 2000))
        stamps = floor(clocks[source].at(sent)), floor(clocks[target].at(received))
        passages.append(Passage(source, stamps[0], target, stamps[1], f"m{at}"))
    return clocks, passages


def outside(clocks: dict[str, Clock], found: ClockOffsets, seed: int) -> tuple[int, int]:
    """Pairs at one moment each, and how many of them have their true offset outside of the interval."""
    draw = random.Random(-seed)
    asked = wrong = 0
    for first in found.hosts:
        reading = floor(clocks[first].at(draw.randrange(1000, SPAN_US)))
        moment = clocks[first].when(reading)
        for second, interval in found.intervals(first, reading).items():
            if second != first:
                true = clocks[second].at(moment) - reading
                asked += 1
                wrong += not _holds(interval, true)
    return asked, wrong


def _holds(interval: Interval, true: Fraction) -> bool:
    return (interval.low is None or interval.low <= true) and (interval.high is None or true <= interval.high)


def judged(seeds: range, **options: object) -> tuple[int, int]:
    asked = wrong = 0
    turns = 0 if options.get("drift") is Drift.LINEAR else 4
    for seed in seeds:
        clocks, passages = run(seed, turns=turns)
        found = ClockOffsets(passages, **options)  # type: ignore[arg-type]
        assert not (found.impossible and options.get("drift_ppm", 500) == 500)
        pairs, misses = outside(clocks, found, seed)
        asked, wrong = asked + pairs, wrong + misses
    return asked, wrong


@pytest.mark.parametrize("drift", Drift)
def test_the_true_offset_is_inside(drift):
    asked, wrong = judged(range(60), drift=drift)
    print(f"{drift.value} drift: {asked - wrong} of {asked} true offsets inside")
    assert wrong == 0
    assert asked > 400


@pytest.mark.slow
@pytest.mark.parametrize("drift", Drift)
def test_the_true_offset_is_inside_in_a_thousand_runs(drift):
    asked, wrong = judged(range(1000, 2000), drift=drift)
    print(f"{drift.value} drift: {asked - wrong} of {asked} true offsets inside")
    assert wrong == 0
    assert asked > 10_000


# Each mutant is a mistake that is easy to make; the test above must be able to see it.


def test_mutant_no_drift():
    assert judged(range(20), drift_ppm=0)[1] > 0


def test_mutant_half_of_the_drift():
    assert judged(range(60), drift_ppm=150)[1] > 0


def test_mutant_stamps_taken_as_exact():
    """Without delays a stamp's own width is all that lies between the interval and the truth."""
    clocks = {"a": Clock(random.Random(1), 0, 0), "b": Clock(random.Random(5), 0, 0)}
    passages = []
    for at in range(1, 200):
        first, second = floor(clocks["a"].at(at)), floor(clocks["b"].at(at))
        passages += [Passage("a", first, "b", second), Passage("b", second, "a", first)]
    assert outside(clocks, ClockOffsets(passages, drift_ppm=0, resolution=1), 3)[1] == 0
    assert outside(clocks, ClockOffsets(passages, drift_ppm=0, resolution=0), 3)[1] > 0


def lines_missed(seeds: range) -> int:
    """Pairs of clocks since 1970 with delays of 0 to 3 us: how often the true line is cut off."""
    wrong = 0
    for seed in seeds:
        draw = random.Random(seed)
        rate = Fraction(1_000_000 + draw.randint(-400, 400), 1_000_000)
        epoch = 1_700_000_000_000_000
        points = [epoch + draw.randrange(SPAN_US) for _ in range(80)]
        true = [epoch + 12_345 + rate * (x - epoch) for x in points]
        above = [(x, floor(y) + draw.randint(1, 3)) for x, y in zip(points[:40], true[:40], strict=True)]
        below = [(x, floor(y) - draw.randint(0, 3)) for x, y in zip(points[40:], true[40:], strict=True)]
        lines = SeparatingLines.between(above, below, 500)
        at = points[0]
        wrong += lines is None or not lines.least(at) <= true[0] <= lines.most(at)
    return wrong


def test_mutant_lines_in_floats(monkeypatch):
    assert lines_missed(range(40)) == 0

    def slopes(hull):
        return [(right[1] - left[1]) / (right[0] - left[0]) for left, right in pairwise(hull)]

    monkeypatch.setattr(skew, "_slopes", slopes)
    monkeypatch.setattr(skew, "Fraction", lambda over, under=1: over / under)
    assert lines_missed(range(40)) > 0


def test_mutant_the_line_of_the_other_side():
    """Hulls swapped: the region is empty, or the truth is outside."""
    _, passages = run(11, turns=0)
    pair = next(
        (each.source, each.target)
        for each in passages
        if any((other.target, other.source) == (each.source, each.target) for other in passages)
    )
    above = [(each.sent, each.received) for each in passages if (each.source, each.target) == pair]
    below = [(each.received, each.sent) for each in passages if (each.target, each.source) == pair]
    assert SeparatingLines.between(above, below, 500) is not None
    assert SeparatingLines.between(below, above, 500) is None


def brute(hosts: list[str], passages: list[Passage]) -> dict[tuple[str, str], float]:
    """All shortest paths, without drift (Floyd and Warshall)."""
    far = {(i, j): 0.0 if i == j else float("inf") for i in hosts for j in hosts}
    for each in passages:
        pair = (each.source, each.target)
        far[pair] = min(far[pair], each.received - each.sent)
    for k in hosts:
        for i in hosts:
            for j in hosts:
                far[i, j] = min(far[i, j], far[i, k] + far[k, j])
    return far


def test_without_drift_it_is_the_optimum():
    """Intervals are all shortest paths; the stamps are impossible just when a cycle is negative."""
    impossible = 0
    for seed in range(300):
        draw = random.Random(seed)
        hosts = [f"h{each}" for each in range(draw.randint(2, 5))]
        passages = []
        for _ in range(draw.randint(1, 14)):
            source, target = draw.sample(hosts, 2)
            sent = draw.randrange(1000)
            passages.append(Passage(source, sent, target, sent + draw.randint(-12, 60)))
        found = ClockOffsets(passages, drift_ppm=0, resolution=0)
        far = brute(found.hosts, passages)
        if any(far[host, host] < 0 for host in found.hosts):
            impossible += 1
            assert found.impossible
            for circle, by in found.impossible:
                assert sum(each.received - each.sent for each in circle) == -by < 0
                assert [each.target for each in circle] == [*(e.source for e in circle[1:]), circle[0].source]
            continue
        assert not found.impossible
        for first in found.hosts:
            for second, (low, high) in found.intervals(first, draw.randrange(1000)).items():
                assert (high if high is not None else float("inf")) == far[first, second]
                assert (low if low is not None else float("-inf")) == -far[second, first]
    assert 30 < impossible < 270


def test_a_clock_that_steps_is_impossible_and_named():
    there = [Passage("a", at, "b", at + 100, f"t{at}") for at in range(0, 10_000_000, 100_000)]
    back = [Passage("b", at, "a", at + 100, f"b{at}") for at in range(0, 10_000_000, 100_000)]
    assert ClockOffsets([*there, *back]).impossible == []
    late = [each._replace(sent=each.sent + 4_000_000) for each in back[50:]]
    found = ClockOffsets([*there, *back[:50], *late])
    assert found.impossible
    assert {each.source for each in found.impossible[0].circle} == {"a", "b"}
    assert found.impossible[0].by > 3_900_000


def test_one_way_traffic_leaves_the_interval_half_open():
    found = ClockOffsets(
        [Passage("a", 1000, "b", 1500), Passage("a", 2000, "b", 2400)], drift_ppm=0, resolution=0
    )
    assert found.interval("a", "b", 5000) == Interval(None, 400)
    assert found.interval("b", "a", 5000) == Interval(-400, None)
    assert found.correction("b", "a", [5000]) == [(5000, -400)]
    assert ClockOffsets([]).hosts == []


def test_an_interval_widens_with_the_distance_in_time():
    both = [Passage("a", 0, "b", 100), Passage("b", 50, "a", 150)]
    found = ClockOffsets(both, drift_ppm=500, resolution=0)
    near, far = found.interval("a", "b", 0), found.interval("a", "b", 1_000_000)
    assert near.width is not None
    assert far.width is not None
    assert far.width - near.width == pytest.approx(1000, abs=2)


@pytest.mark.parametrize(("drift_ppm", "share"), [(0, 1.0), (20, 0.9)])
def test_corrected_times_let_messages_go_forward(drift_ppm, share):
    """Raw, half of them seem to come before they left. Without drift every one goes forward, corrected."""
    raw = corrected = total = 0
    for seed in range(20):
        _, passages = run(seed, drift_ppm=drift_ppm)
        ways = {(each.source, each.target) for each in passages}
        passages = [each for each in passages if (each.target, each.source) in ways]
        found = ClockOffsets(passages, drift_ppm=drift_ppm)
        for each in passages:
            fix = {
                host: found.correction(host, found.hosts[0], [at])[0][1]
                for host, at in ((each.source, each.sent), (each.target, each.received))
            }
            total += 1
            raw += each.received >= each.sent
            corrected += each.received + fix[each.target] >= each.sent + fix[each.source] - 1  # rounding
    print(f"{drift_ppm} ppm: forward {raw / total:.3f} raw, {corrected / total:.3f} corrected")
    assert raw < 0.7 * total
    assert corrected >= share * total
