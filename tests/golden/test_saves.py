"""Saved states are what they were, byte for byte, and those of the recorded release can be restored."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from golden.files import as_stored, load
from golden.of_saves import POINTS, WHOLE, in_short, saved
from golden.talks import TALKS
from whence.protocols.registry import names

GOLDEN: dict[str, Any] = load("saves")


def test_every_protocol_is_saved() -> None:
    assert {TALKS[name].protocol for name in GOLDEN} == set(names()) - {
        "log"
    }  # a new life takes up a book, not a state
    for points in GOLDEN.values():
        assert len(points) == POINTS
        assert len({str(point) for point in points}) > POINTS // 2  # no talk stands still


@pytest.mark.parametrize("name", TALKS)
def test_cores_save_what_they_saved(name: str) -> None:
    assert as_stored(in_short(saved(TALKS[name]))) == GOLDEN[name]


@pytest.mark.parametrize("name", TALKS)
def test_stored_states_can_be_restored(name: str) -> None:
    for node, stored in GOLDEN[name][WHOLE].items():
        state = bytes.fromhex(stored)
        core = TALKS[name].core(node)
        assert msgspec.msgpack.encode(core.save()) != state
        core.restore(msgspec.msgpack.decode(state))
        core.check()
        assert msgspec.msgpack.encode(core.save()) == state
