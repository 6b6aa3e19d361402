"""The cores of paper 004: what they refuse, explain, state and keep."""

from __future__ import annotations

from typing import Any

import pytest

from support.net import Net
from whence.core.effects import Deliver, Discard, Reason, Send
from whence.errors import DomainGraphError, MisuseError, ParameterError
from whence.protocols import registry
from whence.protocols.domains.domains import DomainPacket, Domains
from whence.protocols.domains.matrix import Matrix, MatrixPacket

CHAIN = [["a", "b"], ["b", "c"]]


def send(net: Net, source: str, to: str, payload: bytes = b"") -> None:
    net.do(source, lambda core, now_us: core.send(to, payload, now_us))


def test_a_message_to_oneself_is_delivered_at_once() -> None:
    for protocol in ("matrix", "domains"):
        net = Net(protocol, "abc")
        send(net, "a", "a", b"x")
        assert net.ids("a") == ["a:1"]
        assert not net.flying


def test_a_packet_waits_for_its_link_and_leaves_in_order() -> None:
    core = Matrix("a", "ab")
    assert core.send("b", b"1", 0) == []
    assert core.send("b", b"2", 0) == []
    fresh = Matrix("a", "ab")
    fresh.restore(core.save())
    sent = fresh.link_up("b", 1)
    assert [effect.packet.payload for effect in sent if isinstance(effect, Send)] == [b"1", b"2"]
    fresh.link_down("b", 2)
    assert fresh.send("b", b"3", 3) == []


def test_what_a_held_message_waits_for_is_named_by_its_place() -> None:
    net = Net("matrix", "abc")
    send(net, "a", "c")
    send(net, "a", "b")
    net.move("b", sender="a")
    send(net, "b", "c")
    net.move("c", sender="b")
    (waiting,) = net.cores["c"].explain()
    assert (str(waiting.id), [str(each) for each in waiting.missing]) == ("b:1", ["a>c:1"])
    send(net, "a", "c")
    send(net, "a", "c")
    net.arrive(2)  # the third from a to c: the first two are missing
    third = net.cores["c"].explain()[0]
    assert [str(each) for each in third.missing] == ["a>c:1", "a>c:2"]


def packet(**changes: Any) -> DomainPacket:
    return DomainPacket(0, 0, 1, 1, 1, (), b"")._replace(**changes)


@pytest.mark.parametrize(
    ("peer", "changes", "reason"),
    [
        ("a", {"domain": 7}, Reason.NOT_A_NEIGHBOUR),
        ("a", {"domain": 1}, Reason.NOT_A_NEIGHBOUR),  # a domain of b, but a is not in it
        ("stranger", {}, Reason.NOT_A_NEIGHBOUR),
        ("a", {"origin": 9}, Reason.UNKNOWN_ORIGIN),
        ("a", {"to": -1}, Reason.UNKNOWN_ORIGIN),
        ("a", {"origin": 1}, Reason.FORGED),
        ("a", {"number": 0}, Reason.MALFORMED),
        ("a", {"sent": 0}, Reason.MALFORMED),
        ("a", {"stamp": (0, 1)}, Reason.MALFORMED),
        ("a", {"stamp": (0, 1, 1)}, Reason.MALFORMED),  # the pair's own entry travels as `sent`
        ("a", {"stamp": (1, 0, 1)}, Reason.IMPOSSIBLE),  # b has sent nothing to a
        ("a", {"sent": 2_000_000}, Reason.TOO_FAR_AHEAD),
        ("a", {"to": 0}, Reason.MISROUTED),
    ],
)
def test_a_bad_packet_is_discarded_with_its_reason(
    peer: str, changes: dict[str, Any], reason: Reason
) -> None:
    core = Domains("b", "abc", domains=CHAIN)
    for name in "ac":
        core.link_up(name, 0)
    before = core.save()
    (effect,) = core.receive(peer, packet(**changes), 1)
    assert isinstance(effect, Discard)
    assert effect.reason == reason
    assert core.save() == before


def test_what_a_router_forwards_again_is_discarded_as_the_routers() -> None:
    core = Domains("a", "abc", domains=CHAIN)
    core.link_up("b", 0)
    (delivered,) = core.receive("b", DomainPacket(0, 2, 0, 1, 1, (), b"x"), 1)
    assert isinstance(delivered, Deliver)
    again = DomainPacket(0, 2, 0, 1, 2, (), b"x")  # b lost its disk, and c sent it once more
    assert core.receive("b", again, 2) == [Discard(("c", 1), "b", Reason.DUPLICATE)]


def test_a_matrix_that_does_not_fit_is_discarded() -> None:
    core = Matrix("b", "abc", stamps="full")
    core.link_up("a", 0)
    for stamp, reason in (
        ((0, 1, 0), Reason.MALFORMED),
        ((0, 2, 0, 0, 0, 0, 0, 0, 0), Reason.MALFORMED),
        ((0, 1, 0, 1, 0, 0, 0, 0, 0), Reason.IMPOSSIBLE),
        ((0, 1, 9_000_000, 0, 0, 0, 0, 0, 0), Reason.TOO_FAR_AHEAD),
    ):
        assert core.receive("a", MatrixPacket(0, 1, 1, stamp, b""), 0)[0] == Discard(("a", 1), "a", reason)


def test_a_forged_origin_is_refused_where_origins_are_neighbours() -> None:
    core = Matrix("b", "abc")
    core.link_up("a", 0)
    (effect,) = core.receive("a", MatrixPacket(2, 1, 1, (), b""), 0)
    assert isinstance(effect, Discard)
    assert effect.reason is Reason.FORGED


@pytest.mark.parametrize(
    ("params", "error", "words"),
    [
        ({"stamps": "some"}, ParameterError, "full, updates-scan, updates"),
        ({"size": -1}, ParameterError, "size"),
        ({"domains": "star"}, DomainGraphError, "flat, bus, daisy, tree"),
        ({"domains": [["a", "b"]]}, ParameterError, "'c' is a member without a domain"),
        ({"domains": [["a", "b"], ["b", "c"], ["c", "a"]]}, DomainGraphError, "cycle"),
    ],
)
def test_bad_parameters_are_named(params: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        registry.make("domains", "a", "abc", params)


def test_a_stranger_is_no_destination() -> None:
    for protocol in ("matrix", "domains"):
        with pytest.raises(MisuseError, match="not a member"):
            registry.make(protocol, "a", "ab").send("z", b"", 0)


def test_the_state_is_counted() -> None:
    flat, bus = (
        registry.make(
            "domains", "n00", [f"n{at:02d}" for at in range(36)], {"domains": kind, "stamps": "full"}
        )
        for kind in ("flat", "bus")
    )
    assert flat.entries() == 36 * 36 + 35
    assert bus.entries() == 2 * 36 + 35  # a router: two domains of six
