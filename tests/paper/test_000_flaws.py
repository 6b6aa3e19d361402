"""Every flaw of paper 000's algorithms: put back it fails as described; corrected, the same runs pass.

`printed.vcube` is the paper's algorithm line by line, with one line at a time as printed (or as
it can be misread); the core that Whence ships runs every schedule as well. Without flaws the two send the
same packets: see test_000_section_4.py.
"""

from __future__ import annotations

from functools import cache

import pytest

from printed.vcube import FLAWS, printed_cube
from support.vcube_worlds import cube, drive

D = 4  # 16 nodes

FAILURES = [  # flaw, runs (all must fail; a third are fast tests), circumstances, one of these goes wrong
    # Algorithm 1, line 3: nobody ever sends to its first cluster.
    ("line 3 with 1 < s", 30, {}, {"missing"}),
    # A message does not follow itself strictly, so it is only sent on together with a later one.
    ("line 26 with >", 30, {}, {"missing"}),
    # Then a message beyond a hole is sent at once, and again when the hole is filled.
    ("vector_max is the highest seen", 30, {}, {"sent twice"}),
    # The first of a set already finds the others pending: sent with it and once more in their own turn,
    # or found neither then nor later.
    ("the whole set first", 30, {}, {"missing", "sent twice"}),
    # An application that replies inside the callback sends a clock without what it replies to.
    ("deliver, then increment", 90, {"replies": True}, {"causal"}),
    # A second copy is sent on again, and again pending, for ever: nothing will deliver it.
    ("no guard", 30, {"copies": True}, {"sent twice"}),
]


@cache
def problems_of_correct_ones(d, seed, copies=False, replies=False):
    """Of the paper's algorithm and of our core: most flaws are put back in the same runs."""
    nets = (printed_cube(d), cube(2**d))
    for net in nets:
        drive(net, seed, copies=copies, replies=replies)
    return [net.problems() for net in nets]


def test_every_flaw_is_tested():
    assert [flaw for flaw, _, _, _ in FAILURES] == list(FLAWS)


@pytest.mark.parametrize(
    ("flaw", "runs", "circumstances", "failures"), FAILURES, ids=[row[0] for row in FAILURES]
)
def test_put_back_it_fails_and_corrected_the_same_runs_pass(flaw, runs, circumstances, failures):
    fails_in(range(runs // 3), flaw, circumstances, failures)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flaw", "runs", "circumstances", "failures"), FAILURES, ids=[row[0] for row in FAILURES]
)
def test_so_does_it_in_more_runs(flaw, runs, circumstances, failures):
    fails_in(range(runs // 3, runs), flaw, circumstances, failures)


def fails_in(seeds, flaw, circumstances, failures):
    d = 3 if "replies" in circumstances else D
    failed = 0
    for seed in seeds:
        flawed = printed_cube(d, frozenset([flaw]))
        drive(flawed, seed, **circumstances)
        failed += bool(failures & flawed.problems())
        assert problems_of_correct_ones(d, seed, **circumstances) == [set(), set()]
    assert failed == len(seeds)


def test_without_a_guard_copies_are_pending_for_ever():
    for flaws in (frozenset(["no guard"]), frozenset()):
        net = printed_cube(D, flaws)
        drive(net, 1, copies=True)
        assert any(node.pending for node in net.cores.values()) == bool(flaws)
    net = cube(2**D)
    drive(net, 1, copies=True)
    assert {discard.reason for discard in net.discards} == {"duplicate"}
    assert not any(core.pending for core in net.cores.values())
