"""What is broadcast together has the effects that it has one by one, where a core can do it together."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from property.test_waiting import VARIANTS
from whence.core.effects import Deliver, Effects, Send
from whence.core.message import Packet
from whence.protocols import registry

MEMBERS = ["a", "b", "c"]
TOGETHER = ("fifo", "vector")
MODES: dict[str, tuple[str, dict[str, Any]]] = {
    f"{protocol}, relay {relay}": (protocol, {"relay": relay})
    for protocol in TOGETHER
    for relay in (True, False, "need")
}


@pytest.mark.parametrize("mode", MODES)
def test_what_is_broadcast_together_has_the_effects_of_each(mode: str) -> None:
    protocol, params = MODES[mode]
    draw = Random(mode)
    for linked in (MEMBERS[1:], MEMBERS[1:2], []):
        one, many, peer = (
            registry.make(protocol, name, MEMBERS, params) for name in (MEMBERS[0], MEMBERS[0], MEMBERS[1])
        )
        for each in linked:
            assert one.link_up(each, 0) == many.link_up(each, 0)
        peer.link_up(MEMBERS[0], 0)
        for now_us in range(30):
            payloads = [b"%d" % draw.randrange(9) for _ in range(draw.randrange(1, 5))]
            effects: Effects = [effect for payload in payloads for effect in one.broadcast(payload, now_us)]
            spoken = many.broadcast_many(payloads, now_us)
            assert spoken is not None
            messages, to, packets = spoken
            assert messages == [effect.message for effect in effects if isinstance(effect, Deliver)]
            assert [(to, packet) for packet in packets if to] == [
                (effect.to, effect.packet) for effect in effects if isinstance(effect, Send)
            ]
            assert one.save() == many.save()
            many.check()
            for packet in sent(peer.broadcast(b"x", now_us)) if linked else []:
                assert one.receive(MEMBERS[1], packet, now_us) == many.receive(MEMBERS[1], packet, now_us)


def sent(effects: Effects) -> list[Packet]:
    return [effect.packet for effect in effects if isinstance(effect, Send)]


def test_who_cannot_says_so_and_has_not_begun() -> None:
    for protocol, params in VARIANTS.values():
        if protocol in TOGETHER:
            continue
        core = registry.make(protocol, MEMBERS[0], [*MEMBERS, "d"], params)
        before = core.save()
        assert core.broadcast_many([b"x", b"y"], 0) is None
        assert core.save() == before
