"""Paper 003, section 2.4: the handshake of Algorithm 2, step by step (Figures 3 and 4), and its repairs."""

from __future__ import annotations

import pytest

from support.prc_net import Net
from whence.core.effects import CloseLink, Discard, Reason
from whence.errors import MisuseError, ParameterError
from whence.protocols import registry
from whence.protocols.prc.prc import Prc
from whence.protocols.prc.wire import ALPHA, BETA, BUFFER, PI, RETURN, RHO, routed

TIMEOUT_US = 10_000
# The opener's attempts, the target's wait after the last of them; a relay is kept for four time-outs.
ENDS_WITHIN_US = (3 + 2 + 4) * TIMEOUT_US
STEPS = 10  # α, β, π, ρ over two hops each, Bβ, its answer


def triangle() -> tuple[Net, str, str, str]:
    """B and C are linked to A only; the new link between B and C is up. As in Figure 4a."""
    net = Net(1, timeout_us=TIMEOUT_US)
    a, b, c = (net.add() for _ in range(3))
    net.cores[a].found()
    for joiner in (b, c):
        net.ask(joiner, a)
        net.settle()
    net.connect(b, c)
    return net, a, b, c


def flying(net: Net, one: str, other: str) -> list[int]:
    return [packet.kind for packet in net.wire[one, other]]


def arrive_all(net: Net, *pairs: tuple[str, str]) -> None:
    for pair in pairs:
        while net.wire[pair]:
            net.arrive(pair)


def test_figure_4_the_new_link_gets_its_memory():
    net, a, b, c = triangle()
    net.do(b, lambda core: core.open(c, (b, a, c), net.now_us))
    assert flying(net, b, a) == [ALPHA]
    assert flying(net, b, c) == []  # 4a: over safe links, never over the new one
    arrive_all(net, (b, a), (a, c))  # 4b
    net.broadcast(c)  # 4c: c1 goes into Bα
    assert net.cores[c].accepting[b].before == [(c, 1)]
    assert flying(net, c, a) == [BETA, 0]
    arrive_all(net, (c, a))
    net.arrive((a, b))  # β: Bβ begins
    assert net.cores[b].opening[c].delivered == []
    arrive_all(net, (a, b))  # c1, delivered by B
    net.broadcast(b)  # b1
    assert [each.id for each in net.cores[b].opening[c].delivered] == [(c, 1), (b, 1)]  # 4e
    net.arrive((b, a))
    assert net.wire[a, c][-1].kind == PI
    net.broadcast(c)  # 4f: c2, still in Bα
    arrive_all(net, (a, c))  # 4g: π ends Bα
    assert net.cores[c].accepting[b].before == [(c, 1), (c, 2)]
    assert net.cores[c].accepting[b].has_pi
    assert RHO in flying(net, c, a)
    arrive_all(net, (b, a), (a, c))  # b1 goes into Bπ
    net.broadcast(c)  # c3, too
    assert [each.id for each in net.cores[c].accepting[b].after] == [(b, 1), (c, 3)]
    net.broadcast(b)  # b2
    while net.cores[b].opening[c].phase != 2:  # 4h: up to ρ
        arrive_all(net, (c, a))
        net.arrive((a, b))
    assert flying(net, b, c) == [BUFFER]
    assert [each[:2] for each in net.wire[b, c][0].messages] == [(c, 1), (b, 1), (b, 2), (c, 2)]
    net.arrive((b, c))  # 4i and 4j
    assert net.delivered[c] == [(c, 1), (c, 2), (b, 1), (c, 3), (b, 2)]  # b2 is new, the rest ignored
    assert b in net.cores[c].expected[c, 3]  # c3 is expected from B
    assert b not in net.cores[c].expected.get((c, 1), set())
    assert flying(net, c, b) == [RETURN]
    net.settle()
    assert net.problems() == set()
    assert net.cores[b].is_safe_with(c)
    assert net.cores[c].is_safe_with(b)


def test_eight_hops_of_control_for_both_directions():
    net, a, b, c = triangle()
    counted = []
    put = net.put
    net.put = lambda name, to, packet: (counted.append(packet.kind), put(name, to, packet))
    net.do(b, lambda core: core.open(c, (b, a, c), net.now_us))
    net.settle()
    assert sorted(kind for kind in counted if kind in (ALPHA, BETA, PI, RHO)) == [1, 1, 2, 2, 3, 3, 4, 4]
    assert sorted(kind for kind in counted if kind not in (ALPHA, BETA, PI, RHO)) == [BUFFER, RETURN]


def test_two_simultaneous_opens_become_one():
    net, a, b, c = triangle()
    net.do(b, lambda core: core.open(c, (b, a, c), net.now_us))
    net.do(c, lambda core: core.open(b, (c, a, b), net.now_us))
    net.settle()
    assert net.cores[b].is_safe_with(c)
    assert net.cores[c].is_safe_with(b)
    assert net.problems() == set()


def test_a_mediator_keeps_its_links_until_the_handshake_has_passed():
    net, a, b, c = triangle()
    net.do(a, lambda core: core.mediate(b, c, net.now_us))
    net.do(b, lambda core: core.open(c, (b, a, c), net.now_us))
    net.do(a, lambda core: core.close(c, net.now_us))
    assert net.cores[a].is_safe_with(c)
    net.settle()
    assert not net.cores[a].is_safe_with(c)
    assert net.cores[b].is_safe_with(c)


def test_a_lost_mediator_costs_an_attempt_and_then_the_link():
    net, a, b, c = triangle()
    net.do(b, lambda core: core.open(c, (b, a, c), net.now_us))
    net.crash(a)
    net.settle()
    assert (b, c) not in net.up
    assert net.cores[b].entries() == net.cores[c].entries() == 0


@pytest.mark.parametrize("fate", ["crash", "freeze"])
@pytest.mark.parametrize("role", ["opener", "mediator", "target"])
@pytest.mark.parametrize("step", range(STEPS + 1))
def test_nothing_is_left_of_a_handshake_whoever_is_lost_in_it(step, role, fate):
    net, a, b, c = triangle()
    net.do(a, lambda core: core.mediate(b, c, net.now_us))
    net.do(b, lambda core: core.open(c, (b, a, c), net.now_us))
    for _ in range(step):
        net.arrive(net.busy()[0])
    lost = {"opener": b, "mediator": a, "target": c}[role]
    since_us = net.now_us
    if fate == "crash":
        net.crash(lost)
    else:
        net.freeze(lost)
    assert net.settle()
    assert [net.cores[name].entries() for name in net.alive] == [0, 0]
    assert net.now_us - since_us <= ENDS_WITHIN_US
    assert net.unwatched == set()


def test_a_tombstone_ends_with_its_link_when_the_opener_falls_silent():
    net, a, b, c = triangle()
    net.do(b, lambda core: core.open(c, (b, a, c), net.now_us))
    arrive_all(net, (b, a), (a, c))
    net.wire[c, a].clear()  # β is lost
    net.now_us += TIMEOUT_US
    net.fire()
    net.wire[b, a].clear()  # and so is the next α
    arrive_all(net, (b, c))  # ABORT
    assert (net.cores[c].closed, net.cores[c].accepting) == ({b: 1}, {})
    net.freeze(b)
    net.now_us += 2 * TIMEOUT_US
    net.fire()
    assert (c, b) not in net.up
    assert net.cores[c].entries() == 0


def test_control_of_another_attempt_is_stale():
    net, a, b, c = triangle()
    net.do(b, lambda core: core.open(c, (b, a, c), net.now_us))
    arrive_all(net, (b, a), (a, c))
    for kind in (PI, ALPHA):
        effects = net.cores[c].receive(a, routed(kind, b, 1 if kind == ALPHA else 7, (b, a, c)), net.now_us)
        assert effects == [Discard(None, a, Reason.STALE)]


def test_bbeta_of_a_dead_attempt_closes_the_link():
    net, a, b, c = triangle()
    net.do(b, lambda core: core.open(c, (b, a, c), net.now_us))
    while not flying(net, b, c):
        net.arrive(net.draw.choice(net.busy()))
    net.cores[c].accepting.clear()
    assert CloseLink(b) in net.cores[c].receive(b, net.wire[b, c][0], net.now_us)


def test_our_misuse_raises():
    core = Prc("a", "a", links="dynamic")
    with pytest.raises(MisuseError, match="not joined"):
        core.broadcast(b"", 0)
    with pytest.raises(MisuseError, match="not up"):
        core.join("b", 0)
    core.found()
    core.link_up("b", 0)
    with pytest.raises(MisuseError, match="takes part already"):
        core.join("b", 0)
    with pytest.raises(MisuseError, match="route"):
        core.open("b", ("a", "b"), 0)
    for params in ({"links": "loose"}, {"timeout_us": 0}, {"attempts": True}, {"own_after_echo": 1}):
        with pytest.raises(ParameterError):
            Prc("a", "a", **params)


def test_what_runs_in_simulation_only_is_refused_live_with_a_typed_error():
    import whence

    for name in ("link_memory", "preventive"):
        with pytest.raises(ParameterError, match="live"):
            whence.join("room", node="a", peers={"a": "127.0.0.1:7001"}, protocol=name)
    assert registry.lookup("vector").live
    assert registry.lookup("prc").live
