"""The gateway for browsers: conversations, HTTP, who is let in, and a page in a real browser."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path

import aiohttp
import pytest

import whence
from support.browser import BROWSER, DRIVER, NO_BROWSER, Browser
from support.living import free_ports, in_a_loop
from whence.errors import MisuseError
from whence.servers.carry import carrier_of
from whence.servers.webgate import GateRules, WebGateway
from whence.session.addresses import Address

TOKEN = "sesame-sesame-sesame"


@asynccontextmanager
async def gateway(**options):
    """A node `ann` with a gateway, a node `bob` beside it, and a client of HTTP."""
    port, http = free_ports(2)
    base = f"http://127.0.0.1:{http}"
    gate = GateRules(Address("127.0.0.1", http), **options)
    ann = whence.join("room", node="ann", listen=f"127.0.0.1:{port}")
    bob = whence.join("room", node="bob", contact=f"127.0.0.1:{port}")
    async with ann as at_ann, bob as at_bob, aiohttp.ClientSession(base) as client:
        ready = asyncio.Event()
        serving = asyncio.create_task(WebGateway(carrier_of(at_ann, on_disk=False), gate).serve(ready.set))
        await asyncio.wait({serving, asyncio.create_task(ready.wait())}, return_when="FIRST_COMPLETED")
        try:
            yield client, at_bob
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)


async def told(socket, word):
    while True:
        document = await socket.receive_json(timeout=20)
        if word in document:
            return document[word]


@in_a_loop
async def test_a_browser_talks_and_resumes_where_it_was() -> None:
    async with gateway() as (client, bob):
        async with client.ws_connect("/ws", protocols=["whence"]) as socket:
            await socket.send_json({"op": "read", "after": 0, "epoch": ""})
            begin = await told(socket, "begin")
            await socket.send_json({"op": "broadcast", "text": "hello", "key": "1", "ref": 5})
            assert (await told(socket, "message"))["text"] == "hello"
            await bob.broadcast(b"\xff\x00")
            last = await told(socket, "message")
            assert (last["origin"], last["base64"]) == ("bob", "/wA=")
            assert last["id"] == f"bob/{last['life']}:{last['number']}"
        await bob.broadcast(b"while it was away")
        async with client.ws_connect("/ws") as socket:
            await socket.send_json({"op": "read", "after": last["lsn"], "epoch": begin["epoch"]})
            assert (await told(socket, "message"))["text"] == "while it was away"
        async with client.ws_connect("/ws") as socket:
            await socket.send_json({"op": "read", "after": last["lsn"], "epoch": "of another opening"})
            assert (await told(socket, "message"))["text"] == "hello"  # from the beginning


@in_a_loop
async def test_mistakes_are_answered_and_the_conversation_goes_on() -> None:
    async with gateway() as (client, _), client.ws_connect("/ws") as socket:
        for line in (
            "no json",
            '{"op": "retire", "name": "bob"}',
            '{"op": "broadcast"}',
            '{"op": "done", "lsn": 3}',
        ):
            await socket.send_str(line)
            assert await told(socket, "error")
        await socket.send_json({"op": "read", "reader": "index"})
        assert "no store" in await told(socket, "error")
        await socket.send_json({"op": "status", "ref": 9})
        assert (await told(socket, "ok"))["node"] == "ann"


@in_a_loop
async def test_http_posts_and_lists() -> None:
    async with gateway() as (client, bob):
        async with client.post("/messages", json={"text": "one", "key": "k"}) as response:
            first = await response.json()
        async with client.post("/messages", json={"text": "one", "key": "k"}) as response:
            assert await response.json() == first
        async with client.post("/messages", json={"nonsense": 1}) as response:
            assert response.status == 400
            assert "fix" in await response.json()
        async with client.get("/messages") as response:
            found = await response.json()
        assert [each["message"]["text"] for each in found["told"]] == ["one"]
        query = {"after": found["after"], "epoch": found["epoch"], "wait_s": 20}
        later = asyncio.create_task(client.get("/messages", params=query))
        await bob.broadcast(b"two")
        news = await (await later).json()
        assert [each["message"]["text"] for each in news["told"]] == ["two"]
        async with client.get("/messages", params={"after": "x"}) as response:
            assert response.status == 400


@in_a_loop
async def test_strangers_are_not_let_in() -> None:
    async with gateway(token=TOKEN, origins=("https://app.example",)) as (client, _):
        for headers in ({}, {"Authorization": "Bearer wrong"}):
            async with client.get("/status", headers=headers) as response:
                assert response.status == 403
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        async with client.get("/status", headers=bearer) as response:
            assert response.status == 200
        async with client.get("/status", headers={**bearer, "Origin": "https://evil.example"}) as response:
            assert response.status == 403
        async with client.get("/status", headers={**bearer, "Origin": "https://app.example"}) as response:
            assert response.headers["Access-Control-Allow-Origin"] == "https://app.example"
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await client.ws_connect("/ws")
        async with client.ws_connect("/ws", protocols=["whence", f"token.{TOKEN}"]) as socket:
            assert socket.protocol == "whence"


def test_other_machines_need_a_token(tmp_path: Path) -> None:
    with pytest.raises(MisuseError, match="no token"):
        GateRules(Address("0.0.0.0", 1)).check()
    with pytest.raises(MisuseError, match="not there"):
        GateRules(Address("127.0.0.1", 1), static=tmp_path / "nothing").check()


@in_a_loop
async def test_a_client_that_does_not_read_holds_up_no_one() -> None:
    async with gateway() as (client, bob), client.ws_connect("/ws") as deaf:
        await deaf.send_json({"op": "read", "after": 0, "epoch": ""})
        for _ in range(300):
            await bob.broadcast(b"x" * 50_000)
        async with client.ws_connect("/ws") as socket:
            await socket.send_str(json.dumps({"op": "broadcast", "text": "still here", "ref": 1}))
            assert await told(socket, "ok")


@pytest.mark.skipif(BROWSER is None or DRIVER is None, reason=NO_BROWSER)
def test_numbers_beyond_those_of_javascript_are_two_messages(tmp_path: Path) -> None:
    """The page with a socket that says two ids which a JavaScript number cannot tell apart."""
    web = files("whence.servers") / "web"
    script = (web / "whence.js").read_text().replace("export ", "")
    page = (web / "index.html").read_text().replace('import { Whence } from "./whence.js";', script)
    (tmp_path / "page.html").write_text(page.replace('<script type="module">', f"<script>{SOCKET}", 1))
    with Browser() as browser:
        browser.visit((tmp_path / "page.html").as_uri())
        numbers = (2**53, 2**53 + 1, 2**53 + 1)
        for number in numbers:
            told = {"lsn": 1, "id": f"ann/0f:{number}", "origin": "ann", "number": number, "text": "x"}
            browser.run("socket.onmessage({data: arguments[0]})", json.dumps({"message": told}))
        assert browser.run("return document.querySelectorAll('#messages li').length") == 2


SOCKET = """
  class WebSocket { static OPEN = 1; readyState = 1; constructor() { window.socket = this; } send() {} }
"""
