"""The zoo of protocol `log`: storms, or one small case, catch every broken variant."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy

import pytest

from support.log_worlds import storm
from support.net import Net
from whence.core.lives import Forked
from whence.errors import WhenceError
from whence.protocols.log.core import Log
from whence.protocols.log.wire import FLOOR
from zoo.mutants.log import (
    STORMED,
    BlindToForks,
    CutsSilently,
    IgnoresSilent,
    LogVariant,
    RetiresAtOnce,
)

WORLDS = 400  # a mutant's worlds end with the first in which it is caught


@pytest.mark.parametrize("variant", STORMED, ids=lambda variant: variant.name)
def test_every_broken_log_is_caught(variant: LogVariant) -> None:
    found: Counter[str] = Counter()
    for seed in range(WORLDS):
        try:
            found += storm(seed, variant.make, **variant.world).observer.found
        except WhenceError:
            found["raises"] += 1
        if variant.gives_away & found.keys():
            return
    pytest.fail(f"{variant.name} survives: {dict(found)}")


# What storms show only as a rate: each has a case of its own, and the right core passes it.


def tells_before_it_cuts(make: type[Log]) -> bool:
    """Whether a peer that takes nothing hears what it will not be given."""
    net = Net(make, "ab", keep="count", keep_count=2, window=1)
    net.settle()
    net.do("b", lambda core, now_us: core.command("pause", (), now_us))
    for _ in range(16):
        net.broadcast("a")
    return any(flight.packet.kind == FLOOR for flight in net.sent)


def members(make: type[Log], names: str) -> Net:
    net = Net(
        make, names,
        stability=True, ack_us=100_000, alone_us=300_000,
    )  # fmt: skip
    for name in names:
        net.do(name, lambda core, now_us: core.timer("begin", now_us))
    later(net, 40)
    assert all(core.ready for core in net.cores.values())
    return net


def later(net: Net, ticks: int) -> None:
    for _ in range(ticks):
        net.settle()
        net.pass_time(net.now_us + 100_000)
    net.settle()


def waits_for_the_silent(make: type[Log]) -> bool:
    """Whether a member that was admitted and has said nothing keeps others' messages from being stable."""
    net = members(make, "ab")
    net.add("c")
    core = net.cores["a"]
    before = len(core.stability.admitted)
    net.link("c", "a")
    while len(core.stability.admitted) == before:
        net.settle()
        net.pass_time(net.now_us + 10_000)
    net.drop("c")
    net.broadcast("a")
    number = core.last
    later(net, 40)
    return core.stable().get(core.origin, 0) < number


def waits_until_all_know_of_a_retirement(make: type[Log]) -> bool:
    """Whether who retires a dead member waits until the others know: one of them may carry its messages."""
    net = members(make, "abc")
    net.drop("c")
    net.broadcast("a")
    number = net.cores["a"].last
    later(net, 40)  # b has it, and says so; c holds it back
    assert net.cores["a"].stable().get(net.cores["a"].origin, 0) < number
    net.cut("a", "b")
    net.do("a", lambda core, now_us: core.command("retire", ("c",), now_us))
    later(net, 40)
    return net.cores["a"].stable().get(net.cores["a"].origin, 0) < number


def tells_of_a_fork(make: type[Log]) -> bool:
    """Whether a node that is given both futures of one life says so."""
    net = Net(make, "abc", chain=True)
    net.settle()
    net.broadcast("a")
    net.settle()
    twin = make("a", [], chain=True, life=net.cores["a"].life)
    twin.restore(deepcopy(net.cores["a"].save()))
    net.broadcast("a", None, b"one future")
    net.settle()
    net.drop("a")
    net.cores["a"] = twin
    for peer in "bc":
        net.do("a", lambda core, now_us, peer=peer: core.link_down(peer, now_us))
    net.broadcast("a", None, b"the other")  # under the same number
    net.broadcast("a")
    net.link("a", "b")
    net.link("a", "c")
    later(net, 10)
    return any(isinstance(news, Forked) for node in "bc" for news in net.news.get(node, ()))


@pytest.mark.parametrize(
    ("mutant", "case"),
    [
        (CutsSilently, tells_before_it_cuts),
        (IgnoresSilent, waits_for_the_silent),
        (RetiresAtOnce, waits_until_all_know_of_a_retirement),
        (BlindToForks, tells_of_a_fork),
    ],
    ids=lambda each: each.__name__,
)
def test_the_survivors_of_storms_are_caught(mutant: type[Log], case) -> None:  # type: ignore[no-untyped-def]
    assert case(Log)
    assert not case(mutant)
