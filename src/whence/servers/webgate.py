"""A node's group for browsers and other languages: WebSocket and HTTP, JSON both ways.

    GET  /ws                       a conversation as with the daemon of `whence carry` (servers/carry.py):
                                   `broadcast`, `read`, `done` and `status`, one JSON object per message
    POST /messages                 {"text": ...} or {"base64": ...}, with `key`, `copies`, `timeout_s`
    GET  /messages?after=0&epoch=  what follows that place, and {"epoch", "after"} for the next call; `wait_s`
                                   lets the call wait for news
    GET  /status                   members, links, the log, what waits
    GET  /whence.js, GET /         a client for browsers, and a page that uses it (or the files of a folder)

Who may call: pages of the gateway's own address and of `origins`, and callers that show the token, if there
is one: as `Authorization: Bearer`, or as a WebSocket protocol `token.<token>`, because browsers can send no
header there. Without a token the gateway listens on this machine alone. A client that does not read is
waited for, alone: it holds up no one else, and the log is not copied for it.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from aiohttp import WSMsgType, web

from whence.errors import MisuseError, PlatformError, RequestError, WhenceError
from whence.servers.carry import Carrier, Conversation, Request
from whence.servers.door import CLIENTS_MAX
from whence.session.addresses import Address

OPS = frozenset({"broadcast", "read", "done", "status"})
WAIT_MAX_S = 60.0
HEARTBEAT_S = 20.0
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class GateRules:
    """Who may call, and what is served beside the group."""

    listen: Address
    token: str | None = None
    origins: tuple[str, ...] = ()
    static: Path | None = None

    def check(self) -> None:
        """Refuse what would let everyone in, or serve nothing."""
        if self.token is None and not self.listen.is_loopback:
            raise MisuseError(
                f"gateway at {self.listen}",
                "other machines reach it, and there is no token",
                "Give --token FILE",
            )
        for origin in self.origins:
            parts = urlsplit(origin)
            if parts.scheme not in ("http", "https") or origin != f"{parts.scheme}://{parts.netloc}":
                raise MisuseError(
                    f"origin {origin!r}",
                    "no page has it: an origin is a scheme, a host and at most a port",
                    "Write it as browsers do, as in https://notes.example or http://localhost:8000",
                )
        if self.static is not None and not self.static.is_dir():
            raise MisuseError(f"folder {self.static}", "it is not there", "Give the folder of a page")

    def admits(self, request: web.Request) -> str | None:
        """Why a call is refused; None if it may go on."""
        origin = request.headers.get("Origin")
        if origin is not None and origin not in self.origins and urlsplit(origin).netloc != request.host:
            return f"pages of {origin} may not call"
        if self.token is None:
            return None
        shown = request.headers.get("Authorization", "").removeprefix("Bearer ")
        offered = [each.strip() for each in request.headers.get("Sec-WebSocket-Protocol", "").split(",")]
        tokens = [shown, *(each.removeprefix("token.") for each in offered if each.startswith("token."))]
        if any(hmac.compare_digest(each.encode(), self.token.encode()) for each in tokens):
            return None
        return "the token is missing or wrong"


class WebGateway:
    """Serves a carrier's group until it is cancelled."""

    def __init__(self, carrier: Carrier, gate: GateRules) -> None:
        gate.check()
        self._carrier = carrier
        self._gate = gate
        self._clients = 0

    async def serve(self, ready: Callable[[], None] = lambda: None) -> None:
        """Listen, and carry."""
        app = web.Application(client_max_size=self._carrier.line_max, middlewares=[self._guard])
        app.add_routes(
            [
                web.get("/ws", self._talk),
                web.post("/messages", self._post),
                web.get("/messages", self._list),
                web.get("/status", self._status),
                web.get("/whence.js", self._client),
                web.get("/", self._page),
            ]
        )
        if self._gate.static is not None:
            app.router.add_static("/", self._gate.static)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        host, port = self._gate.listen
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            await runner.cleanup()
            raise PlatformError(
                f"gateway at {self._gate.listen}", str(error.strerror or error), "Give another port"
            ) from error
        ready()
        try:
            await self._carrier.serve()
        finally:
            await runner.cleanup()

    @web.middleware
    async def _guard(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        public = request.method == "GET" and request.path not in ("/ws", "/messages", "/status")
        if not public and (refused := self._gate.admits(request)) is not None:
            return _json({"error": refused, "fix": "Call from an allowed page, with the token"}, status=403)
        try:
            response = await handler(request)
        except WhenceError as error:
            return _json({"error": f"{error.what}: {error.reason}", "fix": error.fix}, status=400)
        origin = request.headers.get("Origin")
        if origin in self._gate.origins and not response.prepared:
            response.headers["Access-Control-Allow-Origin"] = origin
        return response

    async def _talk(self, request: web.Request) -> web.StreamResponse:
        if self._clients >= CLIENTS_MAX:
            return _json({"error": "too many clients", "fix": "Try again later"}, status=503)
        socket = web.WebSocketResponse(
            heartbeat=HEARTBEAT_S, max_msg_size=self._carrier.line_max, protocols=("whence",)
        )
        await socket.prepare(request)

        async def say(document: dict[str, Any]) -> None:
            if not socket.closed:
                await socket.send_str(_text(document))

        conversation = Conversation(self._carrier, say, OPS)
        self._clients += 1
        try:
            async for message in socket:
                if message.type == WSMsgType.TEXT:
                    await conversation.hear(message.data)
        finally:
            self._clients -= 1
            conversation.close()
        return socket

    async def _post(self, request: web.Request) -> web.StreamResponse:
        try:
            document = msgspec.json.decode(await request.read(), type=dict[str, Any])
            asked = msgspec.convert({**document, "op": "broadcast"}, Request)
        except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
            raise RequestError("body", str(error), 'Send {"text": ...} or {"base64": ...}') from None
        return _json(await self._carrier.broadcast(asked))

    async def _list(self, request: web.Request) -> web.StreamResponse:
        carrier, query = self._carrier, request.query
        try:
            after = int(query.get("after", "0"))
            wait_s = min(float(query.get("wait_s", "0")), WAIT_MAX_S)
        except ValueError as error:
            raise RequestError("query", str(error), "Give numbers for `after` and `wait_s`") from None
        lsn = after + 1 if query.get("epoch", carrier.epoch) == carrier.epoch else 1
        news = carrier.news
        behind, told = carrier.entries(lsn)
        if behind == lsn and wait_s > 0:
            try:
                async with asyncio.timeout(wait_s):
                    await news.wait()
            except TimeoutError:
                pass
            behind, told = carrier.entries(lsn)
        return _json({"epoch": carrier.epoch, "after": behind - 1, "told": told})

    async def _status(self, _: web.Request) -> web.StreamResponse:
        return _json(self._carrier.status())

    async def _client(self, _: web.Request) -> web.StreamResponse:
        return web.Response(text=_file("whence.js"), content_type="text/javascript")

    async def _page(self, _: web.Request) -> web.StreamResponse:
        if self._gate.static is not None:
            return web.FileResponse(self._gate.static / "index.html")
        return web.Response(text=_file("index.html"), content_type="text/html")


def _file(name: str) -> str:
    return (files("whence.servers") / "web" / name).read_text(encoding="utf-8")


def _text(document: object) -> str:
    return msgspec.json.encode(document).decode()


def _json(document: object, status: int = 200) -> web.Response:
    return web.Response(text=_text(document), content_type="application/json", status=status)


def gate_of(
    listen: Address, token_file: Path | None, origins: Sequence[str] | None, static: Path | None
) -> GateRules:
    """The gate that a command line asks for; a token is the first line of a file."""
    token = None
    if token_file is not None:
        try:
            token = token_file.read_text(encoding="utf-8").split("\n", 1)[0].strip()
        except OSError as error:
            raise MisuseError(f"token {token_file}", error.strerror or str(error), "Give a file") from error
        if len(token) < 16:
            raise MisuseError(f"token {token_file}", "it has under 16 characters", "Make it longer")
    return GateRules(listen, token, tuple(origins or ()), static)
