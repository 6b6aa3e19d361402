"""A gateway: programs in any language speak STOMP to it, and send and receive as a server of the system.

    CONNECT      login is the server that the client acts for; passcode is the token, if the gateway has one
    SEND         destination:/queue/NAME; with `receipt`, the RECEIPT follows when the message is on the disk
    SUBSCRIBE    destination:/queue/LOGIN: the messages that wait for that server, in causal order; with
                 ack:client or client-individual a message leaves the queue at its ACK, and comes again after
                 a NACK or the end of the connection

Why STOMP and not MQTT: a queue with acknowledgements is what STOMP speaks of, where MQTT has topics and
levels of delivery that would promise something else; its frames are a page of code (stomp.py), and clients
for it are maintained in many languages. It listens on this machine only: put a TLS proxy before it for more.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
from collections.abc import Mapping
from itertools import count
from typing import TypeVar

from whence.errors import FrameError, PeerError, RequestError, ServerDownError, WhenceError
from whence.servers.requests import (
    LINE_SLACK_BYTES,
    Accepted,
    AskSend,
    AskTail,
    Done,
    Refused,
    Request,
    Told,
    Took,
    decode_answer,
    encode,
)
from whence.servers.stomp import VERSIONS, StompFrame, StompReader
from whence.servers.system import System

log = logging.getLogger("whence.servers")

PORT = 61613  # STOMP's own
CLIENTS_MAX = 256
CONNECT_TIMEOUT_S = 10.0
QUEUE = "/queue/"

_T = TypeVar("_T")


class Gateway:
    """Listens until it is closed."""

    def __init__(self, system: System, max_payload_bytes: int, token: str | None = None) -> None:
        self._system = system
        self._max_payload_bytes = max_payload_bytes
        self._token = token
        self._clients: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self, port: int = PORT) -> int:
        """Listen on this machine; returns the port."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", port)
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """End every connection; what was not acknowledged waits in its queue."""
        if self._server is not None:
            self._server.close()
        for client in self._clients:
            client.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._clients) >= CLIENTS_MAX:
            log.warning("gateway: a client is refused: there are %d", CLIENTS_MAX)
            writer.close()
            return
        made = _StompClient(self._system, self._max_payload_bytes, self._token, writer)
        task = asyncio.get_running_loop().create_task(made.serve(reader))
        self._clients.add(task)
        task.add_done_callback(self._clients.discard)


class _StompClient:
    """One connection of a client."""

    def __init__(
        self, system: System, max_payload_bytes: int, token: str | None, writer: asyncio.StreamWriter
    ) -> None:
        self._system = system
        self._max_payload_bytes = max_payload_bytes
        self._token = token
        self._writer = writer
        self._login: str | None = None
        self._sender: _ServerTalk | None = None
        self._subscriptions: dict[str, _Subscription] = {}
        self._open = True

    async def serve(self, reader: asyncio.StreamReader) -> None:
        frames = StompReader(self._max_payload_bytes)
        try:
            while self._open:
                limit_s = CONNECT_TIMEOUT_S if self._login is None else None
                async with asyncio.timeout(limit_s):
                    data = await reader.read(65536)
                if not data:
                    return
                for frame in frames.feed(data):
                    await self._obey(frame)
        except WhenceError as error:
            await self.fail(error)
        except (ConnectionError, TimeoutError):
            pass  # the client is gone, or never said who it is
        finally:
            for subscription in self._subscriptions.values():
                subscription.close()
            if self._sender is not None:
                self._sender.close()
            self._writer.close()

    async def _obey(self, frame: StompFrame) -> None:
        if not self._open:
            return
        if self._login is None:
            await self._connect(frame)
            return
        match frame.command:
            case "SEND":
                await self._send(frame)
            case "SUBSCRIBE":
                await self._subscribe(frame)
            case "UNSUBSCRIBE":
                self._subscription(frame.need("id")).close()
                del self._subscriptions[frame.headers["id"]]
            case "ACK" | "NACK":
                id_ = frame.need("id")
                await self._subscription(id_.rpartition("#")[0]).settle(id_, taken=frame.command == "ACK")
            case "DISCONNECT":
                self._open = False
            case _:
                raise FrameError(
                    f"command {frame.command!r}", "the gateway does not know it", "Send without transactions"
                )
        if "receipt" in frame.headers:
            await self._say("RECEIPT", {"receipt-id": frame.headers["receipt"]})

    async def _connect(self, frame: StompFrame) -> None:
        if frame.command not in ("CONNECT", "STOMP"):
            raise FrameError(frame.command, "nobody has connected", "Begin with CONNECT")
        offered = frame.headers.get("accept-version", "1.0").split(",")
        version = next((each for each in VERSIONS if each in offered), None)
        if version is None:
            raise FrameError("CONNECT", f"versions {offered} are not spoken here", "Use STOMP 1.2 or 1.1")
        if self._token is not None and not hmac.compare_digest(
            frame.headers.get("passcode", "").encode(), self._token.encode()
        ):
            raise PeerError("CONNECT", "the passcode is wrong", "Give the gateway's token")
        login = frame.need("login")
        self._system.require(login)
        self._sender = await _ServerTalk.open(self._system, login, self._max_payload_bytes)
        self._login = login
        await self._say("CONNECTED", {"version": version, "server": "whence", "heart-beat": "0,0"})

    async def _send(self, frame: StompFrame) -> None:
        if "transaction" in frame.headers:
            raise FrameError("SEND", "the gateway has no transactions", "Send without one")
        assert self._sender is not None
        to = self._queue_of(frame)
        await self._sender.ask(AskSend(to, frame.body), Accepted)

    async def _subscribe(self, frame: StompFrame) -> None:
        id_, queue = frame.need("id"), self._queue_of(frame)
        mode = frame.headers.get("ack", "auto")
        if queue != self._login:
            raise RequestError(
                f"queue {queue!r}", f"this client acts for {self._login!r}", "Connect with its name as login"
            )
        if id_ in self._subscriptions or mode not in ("auto", "client", "client-individual"):
            raise FrameError(
                "SUBSCRIBE", f"id {id_!r} or ack {mode!r} is wrong", "Use a new id, and ack:client"
            )
        made = _Subscription(id_, queue, self._system, self._max_payload_bytes, self, auto=mode == "auto")
        self._subscriptions[id_] = made
        await made.start()

    def _queue_of(self, frame: StompFrame) -> str:
        destination = frame.need("destination")
        if not destination.startswith(QUEUE):
            raise FrameError(f"destination {destination!r}", "it is not a queue", f"Write {QUEUE}NAME")
        name = destination.removeprefix(QUEUE)
        self._system.server_of(name)
        return name

    def _subscription(self, id_: str) -> _Subscription:
        if id_ not in self._subscriptions:
            raise FrameError(f"subscription {id_!r}", "there is none", "SUBSCRIBE first, and use its id")
        return self._subscriptions[id_]

    async def fail(self, error: WhenceError) -> None:
        """Say what is wrong; after that a connection ends."""
        with contextlib.suppress(ConnectionError):
            await self._say("ERROR", {"message": error.reason}, str(error))
        self._writer.close()

    async def tell(self, headers: Mapping[str, str], body: bytes) -> None:
        """Write a message of a subscription."""
        self._writer.write(StompFrame("MESSAGE", headers, body).encode())
        await self._writer.drain()

    async def _say(self, command: str, headers: Mapping[str, str], text: str = "") -> None:
        self._writer.write(StompFrame(command, headers, text.encode()).encode())
        await self._writer.drain()


class _Subscription:
    """The messages of a queue, one at a time: the next one follows when this one is taken."""

    def __init__(
        self,
        id_: str,
        queue: str,
        system: System,
        max_payload_bytes: int,
        client: _StompClient,
        *,
        auto: bool,
    ) -> None:
        self._id = id_
        self._queue = queue
        self._system = system
        self._max_payload_bytes = max_payload_bytes
        self._client = client
        self._auto = auto
        self._numbers = count(1)
        self._told = ""  # the `ack` of the message that the client has
        self._talk: _ServerTalk | None = None
        self._telling: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._talk = await _ServerTalk.open(self._system, self._queue, self._max_payload_bytes)
        await self._talk.ask(AskTail(), Done)
        self._telling = asyncio.get_running_loop().create_task(self._tell(self._talk))

    async def _tell(self, talk: _ServerTalk) -> None:
        try:
            while True:
                await self._hand_over(talk, await talk.next(Told))
        except ConnectionError:
            pass  # the client is gone: the reading side finds out, too
        except WhenceError as error:
            await self._client.fail(error)

    async def _hand_over(self, talk: _ServerTalk, told: Told) -> None:
        self._told = f"{self._id}#{next(self._numbers)}"
        headers = {
            "subscription": self._id,
            "message-id": f"{told.origin}:{told.number}",
            "destination": f"{QUEUE}{self._queue}",
            "origin": told.origin,
        }
        if not self._auto:
            headers["ack"] = self._told
        await self._client.tell(headers, told.payload)
        if self._auto:
            await talk.write(Took())

    async def settle(self, id_: str, *, taken: bool) -> None:
        """The client has a message, or does not want it: then it comes again."""
        if self._talk is None or id_ != self._told or self._auto:
            raise FrameError(f"message {id_!r}", "it does not wait for an ACK", "Use the header `ack`, once")
        self._told = ""
        if taken:
            await self._talk.write(Took())
        else:
            self.close()
            await self.start()

    def close(self) -> None:
        if self._telling is not None:
            self._telling.cancel()
        if self._talk is not None:
            self._talk.close()


class _ServerTalk:
    """A connection to the administration of a server, for an event loop."""

    def __init__(self, server: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._server = server
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, system: System, server: str, max_payload_bytes: int) -> _ServerTalk:
        limit = max_payload_bytes * 4 // 3 + LINE_SLACK_BYTES
        try:
            path = str(system.socket_of(server))
            return cls(server, *await asyncio.open_unix_connection(path, limit=limit))
        except OSError as error:
            raise ServerDownError(
                f"server {server!r}", "it does not run", f"Start it with `whence mom up {system.path}`"
            ) from error

    async def ask(self, request: Request, kind: type[_T]) -> _T:
        await self.write(request)
        return await self.next(kind)

    async def write(self, request: Request) -> None:
        self._writer.write(encode(request))
        await self._writer.drain()

    async def next(self, kind: type[_T]) -> _T:
        while True:
            line = await self._reader.readline()
            if not line.endswith(b"\n"):
                raise ServerDownError(f"server {self._server!r}", "it stopped", "Start it again")
            answer = decode_answer(line)
            if isinstance(answer, Refused):
                raise answer.error()
            if isinstance(answer, kind):
                return answer

    def close(self) -> None:
        self._writer.close()
