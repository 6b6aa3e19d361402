"""Lemmas 1 to 3 of paper 003: what the three buffers of a handshake hold, in runs with links that open under
traffic; and what they are for, while processes come and go."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import pytest

from whence.core.effects import Deliver, Effects
from whence.core.message import NodeId
from whence.lab.run import run
from whence.protocols.prc.prc import Prc
from whence.protocols.prc.wire import PrcPacket
from whence.studies.prc.grid import churn, opening
from whence.verify.run import verify_trace

Keys = list[tuple[NodeId, int]]


class Watched(Prc):
    """Keeps its own log of deliveries, and compares the buffers with it."""

    seen: ClassVar[Counter[str]] = Counter()

    def __init__(self, me: NodeId, members: Any, **given: Any) -> None:
        super().__init__(me, members, **given)
        self.log: Keys = []
        self.marks: dict[tuple[str, NodeId], int] = {}

    def _logged(self, effects: Effects) -> Effects:
        self.log += [(one.message.origin, one.message.number) for one in effects if isinstance(one, Deliver)]
        return effects

    def broadcast(self, payload: bytes, now_us: int) -> Effects:
        return self._logged(super().broadcast(payload, now_us))

    def receive(self, peer: NodeId, packet: Any, now_us: int) -> Effects:
        return self._logged(super().receive(peer, packet, now_us))

    def _since(self, mark: str, other: NodeId) -> Keys:
        return self.log[self.marks[mark, other] :]

    def _compare(self, lemma: str, held: Keys, delivered: Keys) -> None:
        assert held == delivered
        self.seen[lemma] += 1
        self.seen[f"{lemma} entries"] += len(held)

    def _on_alpha(self, peer: NodeId, packet: PrcPacket, now_us: int) -> Effects:
        effects = super()._on_alpha(peer, packet, now_us)
        self.marks["alpha", packet.origin] = len(self.log)  # β goes out
        return effects

    def _on_pi(self, peer: NodeId, packet: PrcPacket, now_us: int) -> Effects:
        accepting = self.accepting.get(packet.origin)
        is_open = accepting is not None and not accepting.has_pi
        effects = super()._on_pi(peer, packet, now_us)
        if is_open and accepting is not None and accepting.has_pi:
            self._compare("1", accepting.before, self._since("alpha", packet.origin))
            self.marks["pi", packet.origin] = len(self.log)  # ρ goes out
        return effects

    def _on_beta(self, peer: NodeId, packet: PrcPacket, now_us: int) -> Effects:
        effects = super()._on_beta(peer, packet, now_us)
        self.marks["beta", packet.route[-1]] = len(self.log)  # π goes out
        return effects

    def _on_rho(self, peer: NodeId, packet: PrcPacket, now_us: int) -> Effects:
        target = packet.route[-1]
        mine = self.opening.get(target)
        effects = super()._on_rho(peer, packet, now_us)
        if mine is not None and effects:
            held = [(each.origin, each.number) for each in mine.delivered[: mine.cut]]
            self._compare("2", held, self._since("beta", target))
        return effects

    def _on_buffer(self, peer: NodeId, packet: PrcPacket, now_us: int) -> Effects:
        accepting = self.accepting.get(peer)
        if accepting is not None and accepting.has_pi:
            held = [(each.origin, each.number) for each in accepting.after]
            self._compare("3", held, self._since("pi", peer))
        return super()._on_buffer(peer, packet, now_us)


@pytest.fixture(scope="module")
def compared() -> Counter[str]:
    """Runs with handshakes that last as long as twelve broadcasts; every comparison has held."""
    Watched.seen.clear()
    for seed in (1, 2, 3):
        scenario = opening("prc", 10, 40, seed, "deliveries")
        run(scenario, make=lambda me, members: Watched(me, members, links="dynamic"))
    return Watched.seen


def test_lemma_1_what_the_target_delivers_between_alpha_and_pi(compared: Counter[str]) -> None:
    assert compared["1"] > 50
    assert compared["1 entries"] > compared["1"]


def test_lemma_2_what_the_opener_delivers_between_beta_and_rho(compared: Counter[str]) -> None:
    assert compared["2"] > 50
    assert compared["2 entries"] > compared["2"]


def test_lemma_3_what_the_target_delivers_since_pi(compared: Counter[str]) -> None:
    """The paper prints "receiving π" for the end, which would make it empty: it ends when Bβ is in."""
    assert compared["3"] > 50
    assert compared["3 entries"] > compared["3"]


@pytest.mark.parametrize("seed", [1, 2])
def test_exactly_once_while_links_open_and_processes_come_and_go(tmp_path: Path, seed: int) -> None:
    outcome = run(churn(18, seed, "deliveries"), tmp_path)
    (report,) = verify_trace(tmp_path)
    assert report.ok
    assert report.counts.duplicate == report.counts.causal == 0
    assert outcome.deliveries > 1_000
