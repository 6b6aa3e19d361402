"""Cores of VCube on the one net: the place of a node in the cube is its name, in base 36."""

from __future__ import annotations

import random
from typing import Any

from support.net import Net
from whence.core.effects import Deliver, Effects
from whence.protocols.vcube.core import VCube
from whence.protocols.vcube.wire import VCubeMessage

NAMES = "0123456789abcdefghijklmnopqrstuvwxyz"


def message(origin: int, number: int, after: tuple[int, ...] = (), payload: bytes = b"") -> VCubeMessage:
    """A message made by hand."""
    return VCubeMessage(origin, number, after, payload)


def cube(count: int, **params: Any) -> Net:
    """So many nodes, linked each to each."""
    return Net(VCube, NAMES[:count], step_us=1, **params)


def drive(net: Net, seed: int, *, replies: bool = False, copies: bool = False) -> None:
    """One random schedule: broadcasts with arrivals in any order between them, until all is quiet.

    With `replies`, applications answer what they are given; with `copies`, the network duplicates.
    """
    draw = random.Random(seed)
    count = len(net.names)
    left = 3 * count

    def answer(node: str, effects: Effects) -> None:
        nonlocal left
        for effect in effects:
            is_foreign = isinstance(effect, Deliver) and effect.message.origin != node
            if replies and left > 0 and is_foreign and draw.random() < 0.4:
                left -= 1
                net.broadcast(node)

    net.after = answer
    for _ in range(2 * count):
        net.broadcast(net.names[draw.randrange(count)])
        for _ in range(draw.randrange(6)):
            if net.flying:
                net.arrive(draw.randrange(len(net.flying)))
    while net.flying:
        net.arrive(draw.randrange(len(net.flying)), keep=copies and draw.random() < 0.1)
