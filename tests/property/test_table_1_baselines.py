"""The baselines of Table 1: `reliable` under any order of arrival, `preventive` under PRC's schedules."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

from support.net import Net
from support.prc_worlds import one_run
from whence.protocols.prc.preventive import Preventive


def test_reliable_delivers_everything_once_in_whatever_order():
    out_of_order = 0
    for seed in range(60):
        draw = random.Random(seed)
        net = Net("reliable", "abcd")
        for _ in range(12):
            net.broadcast(draw.choice("abcd"))
            for _ in range(draw.randrange(6)):
                if net.flying:
                    net.arrive(draw.randrange(len(net.flying)), keep=draw.random() < 0.2)
            net.restart(draw.choice("abcd"))
        while net.flying:
            net.arrive(draw.randrange(len(net.flying)))
        everything = {f"{node}:{number}" for node in "abcd" for number in range(1, net.cores[node].last + 1)}
        for node, core in net.cores.items():
            assert sorted(net.ids(node)) == sorted(everything)
            core.check()
            assert core.entries() == len({id_[0] for id_ in everything})  # every origin, for ever
            own = [id_ for id_ in net.ids(node) if id_[0] == "a"]
            out_of_order += own != sorted(own, key=lambda id_: int(id_[2:]))
    assert out_of_order, "no order is promised, and none is kept"


class Plain(Preventive):
    """Takes the parameters that the schedules draw for PRC."""

    def __init__(self, me: str, members: Iterable[str], **params: Any) -> None:
        super().__init__(me, members, links=params["links"], timeout_us=params["timeout_us"])

    def entries(self) -> int:
        """Its memory of origins is no leak: it is what Table 1 says of it."""
        return super().entries() - len(self.seen)


def test_preventive_keeps_order_over_changing_links():
    for seed in range(100):
        net = one_run(seed, make=Plain)
        assert net.problems() == set(), seed
