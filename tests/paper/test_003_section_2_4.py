"""Paper 003, section 2.4: the handshake of Algorithm 2, step by step (Figures 3 and 4), and its repairs."""

from __future__ import annotations

import pytest

from support.prc_worlds import Overlay
from whence.core.effects import CloseLink, Discard, Reason
from whence.errors import MisuseError, ParameterError
from whence.protocols import registry
from whence.protocols.prc.prc import Prc
from whence.protocols.prc.wire import ALPHA, BETA, BUFFER, PI, RETURN, RHO, routed

TIMEOUT_US = 10_000
# The opener's attempts, the target's wait after the last of them; a relay is kept for four time-outs.
ENDS_WITHIN_US = (3 + 2 + 4) * TIMEOUT_US
STEPS = 10  # α, β, π, ρ over two hops each, Bβ, its answer


def triangle() -> tuple[Overlay, str, str, str]:
    """B and C are linked to A only; the new link between B and C is up. As in Figure 4a."""
    overlay = Overlay(1, timeout_us=TIMEOUT_US)
    a, b, c = (overlay.add() for _ in range(3))
    overlay.cores[a].found()
    for joiner in (b, c):
        overlay.ask(joiner, a)
        overlay.settle()
    overlay.connect(b, c)
    return overlay, a, b, c


def flying(overlay: Overlay, one: str, other: str) -> list[int]:
    return [flight.packet.kind for flight in overlay.queue(one, other)]


def arrive_all(overlay: Overlay, *pairs: tuple[str, str]) -> None:
    for pair in pairs:
        while overlay.queue(*pair):
            overlay.arrive(pair)


def test_figure_4_the_new_link_gets_its_memory():
    overlay, a, b, c = triangle()
    overlay.net.do(b, lambda core, now_us: core.open(c, (b, a, c), now_us))
    assert flying(overlay, b, a) == [ALPHA]
    assert flying(overlay, b, c) == []  # 4a: over safe links, never over the new one
    arrive_all(overlay, (b, a), (a, c))  # 4b
    overlay.net.broadcast(c)  # 4c: c1 goes into Bα
    assert overlay.cores[c].accepting[b].before == [(c, 1)]
    assert flying(overlay, c, a) == [BETA, 0]
    arrive_all(overlay, (c, a))
    overlay.arrive((a, b))  # β: Bβ begins
    assert overlay.cores[b].opening[c].delivered == []
    arrive_all(overlay, (a, b))  # c1, delivered by B
    overlay.net.broadcast(b)  # b1
    assert [each.id for each in overlay.cores[b].opening[c].delivered] == [(c, 1), (b, 1)]  # 4e
    overlay.arrive((b, a))
    assert overlay.queue(a, c)[-1].packet.kind == PI
    overlay.net.broadcast(c)  # 4f: c2, still in Bα
    arrive_all(overlay, (a, c))  # 4g: π ends Bα
    assert overlay.cores[c].accepting[b].before == [(c, 1), (c, 2)]
    assert overlay.cores[c].accepting[b].has_pi
    assert RHO in flying(overlay, c, a)
    arrive_all(overlay, (b, a), (a, c))  # b1 goes into Bπ
    overlay.net.broadcast(c)  # c3, too
    assert [each.id for each in overlay.cores[c].accepting[b].after] == [(b, 1), (c, 3)]
    overlay.net.broadcast(b)  # b2
    while overlay.cores[b].opening[c].phase != 2:  # 4h: up to ρ
        arrive_all(overlay, (c, a))
        overlay.arrive((a, b))
    assert flying(overlay, b, c) == [BUFFER]
    assert [each[:2] for each in overlay.queue(b, c)[0].packet.messages] == [(c, 1), (b, 1), (b, 2), (c, 2)]
    overlay.arrive((b, c))  # 4i and 4j
    assert overlay.net.delivered[c] == [(c, 1), (c, 2), (b, 1), (c, 3), (b, 2)]  # b2 is new, the rest ignored
    assert b in overlay.cores[c].expected[c, 3]  # c3 is expected from B
    assert b not in overlay.cores[c].expected.get((c, 1), set())
    assert flying(overlay, c, b) == [RETURN]
    overlay.settle()
    assert overlay.problems() == set()
    assert overlay.cores[b].is_safe_with(c)
    assert overlay.cores[c].is_safe_with(b)


def test_eight_hops_of_control_for_both_directions():
    overlay, a, b, c = triangle()
    before = len(overlay.net.sent)
    overlay.net.do(b, lambda core, now_us: core.open(c, (b, a, c), now_us))
    overlay.settle()
    counted = [flight.packet.kind for flight in overlay.net.sent[before:]]
    assert sorted(kind for kind in counted if kind in (ALPHA, BETA, PI, RHO)) == [1, 1, 2, 2, 3, 3, 4, 4]
    assert sorted(kind for kind in counted if kind not in (ALPHA, BETA, PI, RHO)) == [BUFFER, RETURN]


def test_two_simultaneous_opens_become_one():
    overlay, a, b, c = triangle()
    overlay.net.do(b, lambda core, now_us: core.open(c, (b, a, c), now_us))
    overlay.net.do(c, lambda core, now_us: core.open(b, (c, a, b), now_us))
    overlay.settle()
    assert overlay.cores[b].is_safe_with(c)
    assert overlay.cores[c].is_safe_with(b)
    assert overlay.problems() == set()


def test_a_mediator_keeps_its_links_until_the_handshake_has_passed():
    overlay, a, b, c = triangle()
    overlay.net.do(a, lambda core, now_us: core.mediate(b, c, now_us))
    overlay.net.do(b, lambda core, now_us: core.open(c, (b, a, c), now_us))
    overlay.net.do(a, lambda core, now_us: core.close(c, now_us))
    assert overlay.cores[a].is_safe_with(c)
    overlay.settle()
    assert not overlay.cores[a].is_safe_with(c)
    assert overlay.cores[b].is_safe_with(c)


def test_a_lost_mediator_costs_an_attempt_and_then_the_link():
    overlay, a, b, c = triangle()
    overlay.net.do(b, lambda core, now_us: core.open(c, (b, a, c), now_us))
    overlay.crash(a)
    overlay.settle()
    assert not overlay.net.up[b, c]
    assert overlay.cores[b].entries() == overlay.cores[c].entries() == 0


@pytest.mark.parametrize("fate", ["crash", "freeze"])
@pytest.mark.parametrize("role", ["opener", "mediator", "target"])
@pytest.mark.parametrize("step", range(STEPS + 1))
def test_nothing_is_left_of_a_handshake_whoever_is_lost_in_it(step, role, fate):
    overlay, a, b, c = triangle()
    overlay.net.do(a, lambda core, now_us: core.mediate(b, c, now_us))
    overlay.net.do(b, lambda core, now_us: core.open(c, (b, a, c), now_us))
    for _ in range(step):
        overlay.arrive(overlay.busy()[0])
    lost = {"opener": b, "mediator": a, "target": c}[role]
    since_us = overlay.net.now_us
    if fate == "crash":
        overlay.crash(lost)
    else:
        overlay.freeze(lost)
    assert overlay.settle()
    assert [overlay.cores[name].entries() for name in overlay.alive] == [0, 0]
    assert overlay.net.now_us - since_us <= ENDS_WITHIN_US
    assert overlay.unwatched == set()


def test_a_tombstone_ends_with_its_link_when_the_opener_falls_silent():
    overlay, a, b, c = triangle()
    overlay.net.do(b, lambda core, now_us: core.open(c, (b, a, c), now_us))
    arrive_all(overlay, (b, a), (a, c))
    overlay.drop(c, a)  # β is lost
    overlay.net.now_us += TIMEOUT_US
    overlay.fire()
    overlay.drop(b, a)  # and so is the next α
    arrive_all(overlay, (b, c))  # ABORT
    assert (overlay.cores[c].closed, overlay.cores[c].accepting) == ({b: 1}, {})
    overlay.freeze(b)
    overlay.net.now_us += 2 * TIMEOUT_US
    overlay.fire()
    assert not overlay.net.up[c, b]
    assert overlay.cores[c].entries() == 0


def test_control_of_another_attempt_is_stale():
    overlay, a, b, c = triangle()
    overlay.net.do(b, lambda core, now_us: core.open(c, (b, a, c), now_us))
    arrive_all(overlay, (b, a), (a, c))
    for kind in (PI, ALPHA):
        effects = overlay.cores[c].receive(
            a, routed(kind, b, 1 if kind == ALPHA else 7, (b, a, c)), overlay.net.now_us
        )
        assert effects == [Discard(None, a, Reason.STALE)]


def test_bbeta_of_a_dead_attempt_closes_the_link():
    overlay, a, b, c = triangle()
    overlay.net.do(b, lambda core, now_us: core.open(c, (b, a, c), now_us))
    while not flying(overlay, b, c):
        overlay.arrive(overlay.draw.choice(overlay.busy()))
    overlay.cores[c].accepting.clear()
    assert CloseLink(b) in overlay.cores[c].receive(b, overlay.queue(b, c)[0].packet, overlay.net.now_us)


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
