"""Paper 004, appendix A: what is wrong in the Updates algorithm as printed, one named test for each.

Every test holds for the clocks of this package and does not hold for the clock with the flaw put back.
"""

from __future__ import annotations

from typing import Any

import pytest

from support.domain_runs import judge, scenario
from support.net import Net
from whence.protocols.domains.clock import CLOCKS, FullClock, ListedClock, MatrixClock, ScannedClock, Stamp
from whence.protocols.domains.domains import Domains
from whence.protocols.domains.matrix import Matrix

OURS = list(CLOCKS.values())
SEEDS = range(6)


def with_clock(clock: type[MatrixClock]) -> type[Matrix]:
    """The matrix core on another clock."""

    class Changed(Matrix):
        def __init__(self, me: str, members: Any, **params: Any) -> None:
            super().__init__(me, members, **params)
            self.consumer.clock = clock(len(self.members), self.my_index)

    return Changed


def domains_with_clock(clock: type[MatrixClock]) -> type[Domains]:
    """The domains core on another clock."""

    class Changed(Domains):
        def __init__(self, me: str, members: Any, **params: Any) -> None:
            super().__init__(me, members, **params)
            for consumer in self.consumers.values():
                consumer.clock = clock(consumer.clock.size, consumer.clock.me)

    return Changed


class StateSetFirst(ScannedClock):
    """Flaw 1: Node[j].state is set before the set is computed."""

    def _stamp(self, to: int, entry: int) -> Stamp:
        self.sent_state[to] = self.state
        return super()._stamp(to, entry)


class OwnEntryExcluded(ScannedClock):
    """Flaw 2: Mat[i, j].node = j, and entries whose node is j are not sent to j: (i, j) itself never
    travels."""

    def next_stamp(self, to: int) -> tuple[int, Stamp]:
        _, stamp = super().next_stamp(to)
        return 0, stamp


class StateFromZero(ScannedClock):
    """Flaw 3: State starts at 0, and only entries with state > Node[j].state are sent."""

    def __init__(self, size: int, me: int) -> None:
        super().__init__(size, me)
        self.state = 0


class StateFromZeroListed(ListedClock):
    """Flaw 3 with a change list."""

    def __init__(self, size: int, me: int) -> None:
        super().__init__(size, me)
        self.state = 0


class AnyOrderOfAPair(ScannedClock):
    """Flaw 4: a delta is used although an earlier one of the same pair has not come."""

    def obstacle(self, source: int, count: int, stamp: Stamp) -> tuple[int, int] | None:
        found = super().obstacle(source, min(count, self.delivered(source) + 1), stamp)
        return None if found and found[0] == source else found


class OnlyOwnPairTested(ListedClock):
    """Flaw 5: the delivery test is not given; FIFO of each pair alone is not enough."""

    def obstacle(self, source: int, count: int, stamp: Stamp) -> tuple[int, int] | None:
        return (source, count - 1) if count > self.delivered(source) + 1 else None


class FullOnlyOwnPairTested(FullClock):
    """Flaw 5 with whole matrices."""

    def obstacle(self, source: int, count: int, stamp: Stamp) -> tuple[int, int] | None:
        return (source, count - 1) if count > self.delivered(source) + 1 else None


class NeverMerged(ListedClock):
    """Flaw 5: what a message says of third parties is tested, but not merged on delivery."""

    def merge(self, source: int, count: int, stamp: Stamp) -> None:
        super().merge(source, count, ())


def violations(clock: type[MatrixClock], seeds: range = SEEDS) -> dict[str, int]:
    """What the verifier finds in a flat system on that clock: unordered links, duplicates, heavy tails."""
    found = {"causal": 0, "fifo": 0, "duplicate": 0, "missing": 0}
    for seed in seeds:
        report = judge(scenario(7, seed, "matrix"), with_clock(clock), check=False)
        for kind in found:
            found[kind] += getattr(report.counts, kind)
    return found


@pytest.mark.parametrize("clock", OURS)
def test_the_repaired_clocks_break_nothing(clock: type[MatrixClock]) -> None:
    assert not any(violations(clock).values())


def test_flaw_1_the_set_is_computed_before_node_state_is_set() -> None:
    # S0 tells S1 of its message to S2: the second stamp must carry the entry (0, 2).
    for clock, carried in ((ScannedClock, (0, 2, 1)), (ListedClock, (0, 2, 1)), (StateSetFirst, ())):
        sender = clock(3, 0)
        sender.next_stamp(2)
        assert sender.next_stamp(1) == (1, carried)
    assert violations(StateSetFirst)["causal"] > 0


def test_flaw_2_the_receiver_is_told_the_count_of_its_own_pair() -> None:
    for clock in OURS:
        sender = clock(2, 0)
        assert [sender.next_stamp(1)[0] for _ in range(3)] == [1, 2, 3]
    assert violations(OwnEntryExcluded, range(1))["missing"] > 0


def smallest_case(clock: type[MatrixClock]) -> list[str]:
    """S0 -> S2 (slow), S0 -> S1, S1 -> S2: what S2 delivers before the slow message has come."""
    net = Net(with_clock(clock), "012")

    def send(source: str, to: str) -> None:
        net.do(source, lambda core, now_us: core.send(to, b"", now_us))

    send("0", "2")
    send("0", "1")
    net.move("1", sender="0")
    send("1", "2")
    net.move("2", sender="1")
    before = net.ids("2")
    net.settle()
    assert sorted(net.ids("2")) == ["0:1", "1:1"]
    return before


def test_flaw_3_what_was_learned_before_the_first_send_is_passed_on() -> None:
    for clock in OURS:
        assert smallest_case(clock) == []  # the message of S1 waits for that of S0
    for flawed in (StateFromZero, StateFromZeroListed):
        assert smallest_case(flawed) == ["1:1"]
        assert violations(flawed)["causal"] > 0


def test_flaw_4_deltas_are_used_in_the_order_of_their_pair() -> None:
    found = violations(AnyOrderOfAPair)
    assert found["fifo"] + found["missing"] > 0


@pytest.mark.parametrize("flawed", [OnlyOwnPairTested, FullOnlyOwnPairTested, NeverMerged])
def test_flaw_5_the_delivery_test_looks_at_every_pair_and_delivery_merges(flawed: type[MatrixClock]) -> None:
    found = violations(flawed)
    # Merging too early also makes later messages look like duplicates: they are lost instead of late.
    assert found["causal"] + found["missing"] > 0


@pytest.mark.parametrize("domains", ["bus", "daisy", "tree"])
@pytest.mark.parametrize("flawed", [StateSetFirst, StateFromZero, OnlyOwnPairTested])
def test_a_flaw_inside_domains_breaks_the_whole_system(flawed: type[MatrixClock], domains: Any) -> None:
    reports = [
        judge(scenario(9, seed, domains=domains, size=4), domains_with_clock(flawed), check=False)
        for seed in range(16)
    ]
    assert sum(report.counts.causal + report.counts.missing for report in reports) > 0


def test_scan_and_change_list_send_the_same_stamps() -> None:
    """The list is an index, not another algorithm: same stamps, same effects, less work."""
    from whence.core.rng import below

    pairs = [(ScannedClock(5, me), ListedClock(5, me)) for me in range(5)]
    flying: list[tuple[int, int, int, Stamp]] = []
    for step in range(2_000):
        if flying and below(1, 3 * step, 2):
            source, to, count, stamp = flying.pop(below(1, 3 * step + 1, len(flying)))
            scan, listed = pairs[to]
            assert scan.obstacle(source, count, stamp) == listed.obstacle(source, count, stamp)
            if scan.obstacle(source, count, stamp) is None:
                scan.merge(source, count, stamp)
                listed.merge(source, count, stamp)
                assert scan.value == listed.value
            else:
                flying.append((source, to, count, stamp))
        else:
            source = below(2, 3 * step, 5)
            to = (source + 1 + below(2, 3 * step + 1, 4)) % 5
            scan, listed = pairs[source]
            count, stamp = scan.next_stamp(to)
            assert listed.next_stamp(to) == (count, stamp)
            flying.append((source, to, count, stamp))
    assert sum(listed.work for _, listed in pairs) < sum(scan.work for scan, _ in pairs)
