"""Watching what runs: doors, `whence node status|retire`, and the screen of `whence top`."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

import whence
from support.living import in_a_loop, loopback
from whence.errors import RequestError, ServerDownError
from whence.servers.door import Door, knock, talking_at
from whence.servers.watch import NodeLook, cells, look_at, rows

OUT = Path(__file__).parents[2] / "out" / "looked-at"


@in_a_loop
async def test_a_door_tells_and_retires(tmp_path: Path) -> None:
    peers = loopback(("ann", "bob", "cid"))
    ann = whence.join("room", node="ann", peers=peers, protocol="vector")
    bob = whence.join("room", node="bob", peers=peers, protocol="vector")
    door = tmp_path / "ann.door"
    async with ann as at_ann, bob as at_bob, talking_at(door, partial(Door, at_ann)):
        await at_ann.broadcast(b"x")
        await at_bob.receive()
        ask = partial(asyncio.to_thread, knock, door)
        told = await ask(op="status")
        assert (told["node"], told["protocol"], told["stats"]["broadcasts"]) == ("ann", "vector", 1)
        assert told["links"] == {"bob": "connected", "cid": "disconnected"}
        await ask(op="retire", name="cid")
        assert (await ask(op="status"))["links"].get("cid") != "disconnected"
        for request in ({"op": "dance"}, {"op": "retire", "name": "nobody"}, {"up": 1}):
            with pytest.raises(RequestError):
                await ask(**request)
    with pytest.raises(ServerDownError, match="no node opens it"):
        knock(door, op="status")


@in_a_loop
async def test_the_screen_shows_nodes_and_the_one_that_is_chosen(tmp_path: Path) -> None:
    pytest.importorskip("textual")
    from whence.cli.screen import Screen

    peers = loopback(("ann", "bob"))
    async with (
        whence.join("room", node="ann", peers=peers, protocol="vector") as ann,
        whence.join("room", node="bob", peers=peers, protocol="vector") as bob,
        talking_at(tmp_path / "ann.door", partial(Door, ann)),
        talking_at(tmp_path / "bob.door", partial(Door, bob)),
    ):
        await ann.broadcast(b"x")
        await bob.receive()
        look = look_at([tmp_path / "ann.door", tmp_path / "bob.door", tmp_path / "gone.door"])
        screen = Screen(look, 0.1, time.monotonic)
        async with screen.run_test(size=(120, 36)) as pilot:
            for _ in range(100):
                await pilot.pause(0.05)
                if screen.query_one("DataTable").row_count == 3:
                    break
            await pilot.press("down")
            await pilot.pause(0.2)
            detail = str(screen.query_one("#detail").render())
            assert "bob in room: up" in detail
            assert "link  ann: connected" in detail
            assert "connected: connected to ann" in detail
            await pilot.press("down")
            await pilot.pause(0.2)
            assert "no node opens it" in str(screen.query_one("#detail").render())
            await pilot.press("up", "p")
            await pilot.pause(0.1)
            assert screen.sub_title == "paused"
            OUT.mkdir(parents=True, exist_ok=True)
            screen.save_screenshot(str(OUT / "top.svg"))


def test_rates_are_of_the_time_between_two_looks() -> None:
    before = [NodeLook("ann", "room", "up", sent=10, delivered=100)]
    now = [NodeLook("ann", "room", "up", sent=30, delivered=500), NodeLook("bob", "room", "it does not run")]
    ann, bob = rows(now, before, 2.0)
    assert (ann.sent_per_s, ann.delivered_per_s) == (10.0, 200.0)
    assert (bob.sent_per_s, cells(bob)[-1]) == (None, "it does not run")
    (again,) = rows([NodeLook("ann", "room", "up", sent=1)], before, 2.0)
    assert again.sent_per_s is None  # another life: its counters began again


def test_the_commands(tmp_path: Path) -> None:
    door = tmp_path / "n.door"
    (address,) = loopback(("ann",)).values()
    whence_ = [sys.executable, "-m", "whence"]
    node = subprocess.Popen(
        [*whence_, "node", "--group", "room", "--node", "ann", "--listen", address, "--door", str(door)],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert "takes part" in node.stderr.readline()
        run = partial(subprocess.run, capture_output=True, text=True, timeout=60, check=True)
        assert "ann in 'room', protocol log" in run([*whence_, "node", "status", "--door", str(door)]).stdout
        (seen,) = json.loads(run([*whence_, "top", str(door), "--json"]).stdout)
        assert (seen["name"], seen["state"], seen["lag"]) == ("ann", "up", 0)
        assert "ann" in run([*whence_, "top", str(door), "--once"]).stdout
    finally:
        node.terminate()
        node.wait(30)
