"""Packets that arrive together have the effects that they have one by one, under every protocol.

Each node is a pair: one core is given every packet alone, its twin is given those that arrive together as
one input. Whatever else happens meets both; effects and saved states must be the same.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from random import Random
from typing import Any

import pytest

from property.test_waiting import MEMBERS, VARIANTS, World
from whence.core.effects import Deliver, Deliveries, Effects
from whence.core.message import NodeId, Packet
from whence.core.protocol import Protocol
from whence.protocols import registry
from whence.protocols.baselines import flooding, lives
from whence.session.wire import FrameReader, encode_packet, packets_frame

STEPS = 250
SEEDS, SEEDS_PLAIN = 6, 2  # plain: a core that takes what comes together one by one, as `Protocol` has it
INPUTS = ("broadcast", "broadcast_within", "send", "link_up", "link_down", "timer", "command")
MODES = {
    **VARIANTS,
    "fifo, direct": ("fifo", {"relay": False}),
    "fifo, by need": ("fifo", {"relay": "need"}),
    "vector, direct": ("vector", {"relay": False}),
    "vector, by need": ("vector", {"relay": "need"}),
}
RUNS = {name for name in MODES if name.startswith(("fifo, ", "vector, "))}


def one_by_one(effects: Effects) -> Effects:
    """Effects without runs."""
    return list(
        chain.from_iterable(
            map(Deliver, effect.messages) if isinstance(effect, Deliveries) else [effect]
            for effect in effects
        )
    )


def takes_runs(variant: str) -> bool:
    """Whether the core has more for packets that come together than to take them one by one."""
    return MODES[variant][0] in ("fifo", "vector")


class Pair:
    """A core and its twin, as one core."""

    def __init__(self, core: Protocol, twin: Protocol) -> None:
        self.core, self.twin = core, twin
        self.together: list[Packet] = []  # what the twin has not been given yet
        self.at: tuple[NodeId, int] = ("", 0)
        self.effects: Effects = []
        self.longest_run = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.core, name)
        if name not in INPUTS:
            return found

        def both(*given: Any) -> Effects:
            self.catch_up()
            effects: Effects = found(*given)
            assert getattr(self.twin, name)(*given) == effects
            return effects

        return both

    def receive(self, peer: NodeId, packet: Packet, now_us: int) -> Effects:
        if self.at != (peer, now_us):
            self.catch_up()
        self.at = (peer, now_us)
        self.together.append(packet)
        effects = self.core.receive(peer, packet, now_us)
        self.effects += effects
        return effects

    def catch_up(self) -> None:
        together, expected, self.together, self.effects = self.together, self.effects, [], []
        if together:
            effects = self.twin.receive_many(self.at[0], self.brought(together), self.at[1])
            runs = [len(effect.messages) for effect in effects if isinstance(effect, Deliveries)]
            self.longest_run = max([self.longest_run, *runs])
            assert one_by_one(effects) == expected
            assert self.twin.save() == self.core.save()
            self.twin.check()

    def brought(self, together: list[Packet]) -> list[Packet]:
        return together

    def save(self) -> Any:
        self.catch_up()
        return self.core.save()

    def restore(self, state: Any) -> None:
        self.core.restore(state)
        self.twin.restore(state)


class PairOverWire(Pair):
    """The twin is given packets with the bytes that they came in."""

    def brought(self, together: list[Packet]) -> list[Packet]:
        reader = FrameReader(self.core.packet_type, 1 << 20, keeps_encoded=True)
        return reader.feed(packets_frame(b"".join(map(encode_packet, together)), len(together)))


def spoilt(packet: Packet, draw: Random) -> Packet:
    """A packet that no correct node sends, or one of another time."""
    changes: dict[str, Any] = {}
    fields = getattr(packet, "_fields", ())
    if "number" in fields:
        changes["number"] = draw.choice([0, -1, packet.number + 1, packet.number + 2, 2**40, 1])  # type: ignore[attr-defined]
    if "after" in fields and draw.random() < 0.5:
        changes["after"] = tuple(draw.randrange(-1, 5) for _ in range(draw.randrange(6)))
    return packet._replace(**changes)  # type: ignore[attr-defined, no-any-return]


class PairedWorld(World):
    """What is on its way over a link arrives in bunches; some of it spoilt, or over another link."""

    def __init__(self, protocol: str, params: dict[str, Any], seed: int, make: Callable[..., Any]) -> None:
        super().__init__(protocol, params, seed, make)
        self.net.on_close = self.net.cut  # what is spoilt may end a link

    def _look(self, node: NodeId, effects: Effects) -> None:
        """Nothing but inputs: a core may count the work of explaining."""

    def _arrive(self) -> None:
        flight = self.draw.choice(self.net.flying)
        if self.draw.random() < 0.04:
            sender = self.draw.choice([flight.sender, *MEMBERS])
            if sender != flight.to and flight.to in self.there:
                self.net.receive(flight.to, sender, spoilt(flight.packet, self.draw))
        for _ in range(self.draw.choice([1, 2, 5, 12])):
            same = [each for each in self.net.flying if each[:2] == flight[:2]]
            if not same or flight.to not in self.there:
                return
            # Mostly in order, so that runs come about.
            chosen = same[0] if self.info.fifo_links or self.draw.random() < 0.8 else self.draw.choice(same)
            keep = not self.info.fifo_links and self.draw.random() < 0.05
            self.net.arrive(self.net.flying.index(chosen), keep=keep)


@pytest.mark.parametrize("variant", MODES)
def test_packets_that_arrive_together_have_the_effects_of_each(variant: str) -> None:
    compare(variant, range(SEEDS if takes_runs(variant) else SEEDS_PLAIN))


@pytest.mark.slow
@pytest.mark.parametrize("variant", MODES)
def test_they_do_in_more_worlds(variant: str) -> None:
    compare(variant, range(SEEDS_PLAIN, 5 * SEEDS))


def one_run(variant: str, seed: int) -> int:
    """Answers how many messages the longest run of deliveries had."""
    protocol, params = MODES[variant]

    def pair(name: NodeId, names: list[NodeId], **given: Any) -> Pair:
        return Pair(*(registry.make(protocol, name, names, given) for _ in range(2)))

    world = PairedWorld(protocol, params, seed, make=pair)
    for _ in range(STEPS):
        world.step()
    for core in world.net.cores.values():
        core.catch_up()
    return max((core.longest_run for core in world.net.cores.values()), default=0)


def compare(variant: str, seeds: range) -> None:
    longest = max(one_run(variant, seed) for seed in seeds)
    assert (longest > 2) == (variant in RUNS), "otherwise no run was tested"


@pytest.mark.parametrize("protocol", ["fifo", "vector"])
def test_what_is_kept_as_bytes_is_what_is_kept_otherwise(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flooding, "TOLD_EVERY", 9)
    monkeypatch.setattr(lives, "SPAN_MIN", 2)
    monkeypatch.setattr(lives, "KEPT_MESSAGES", 12)
    monkeypatch.setattr(lives, "KEPT_BYTES", 40)

    def pair(name: NodeId, names: list[NodeId], **given: Any) -> Pair:
        return PairOverWire(*(registry.make(protocol, name, names, given) for _ in range(2)))

    kept = pruned = 0
    for seed in range(3 * SEEDS):
        world = PairedWorld(protocol, {"relay": "need"}, seed, make=pair)
        for _ in range(STEPS):
            world.step()
            for core in world.net.cores.values():
                entries = [entry for of in core.twin.kept.of for entry in of]
                kept = max(kept, sum(isinstance(entry, lives.Span) for entry in entries))
                pruned += any(isinstance(entry, lives.Span) and entry.at for entry in entries)
        for core in world.net.cores.values():
            core.catch_up()
    assert kept > 2, "otherwise no bytes were kept"
    assert pruned, "otherwise none of them was cut"
