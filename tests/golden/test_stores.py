"""Stores of the recorded release open, give the nodes that wrote them, and their group goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from golden.files import load
from golden.of_stores import KINDS, NAMES, continued, recovered, unpack
from whence.live.store import Store

GOLDEN: dict[str, Any] = load("stores")


@pytest.mark.parametrize("protocol", KINDS)
def test_a_store_gives_the_node_that_wrote_it(protocol: str, tmp_path: Path) -> None:
    golden = GOLDEN[protocol]
    assert asyncio.run(recovered(protocol, unpack(golden["files"], tmp_path))) == golden["recovered"]


@pytest.mark.parametrize("protocol", KINDS)
def test_the_group_goes_on_where_it_was(protocol: str, tmp_path: Path) -> None:
    golden = GOLDEN[protocol]
    counts = {name: len(golden["continued"][name]) for name in NAMES}
    assert asyncio.run(continued(protocol, unpack(golden["files"], tmp_path), counts)) == golden["continued"]


@pytest.mark.parametrize("protocol", KINDS)
def test_the_stores_have_a_past_worth_recovering(protocol: str, tmp_path: Path) -> None:
    """A snapshot with a log after it, messages for one who is away, unread ones, an agent's state."""
    golden = GOLDEN[protocol]
    store = Store(unpack(golden["files"], tmp_path) / "a.db")
    snapshot, batches = store.recover()
    store.close()
    assert snapshot is not None
    assert len(batches) > 3
    assert golden["recovered"]["a"]["inbox"]
    assert sum(node["for"].get("c", 0) for node in golden["recovered"].values()) > 0
    assert "a" in golden["recovered"]["b"]["agent"]
    last = [text for _, text in golden["continued"]["c"]]
    assert {"for c 2", "on we go"} <= set(last)
