"""The other end of a server's administration: what `whence mom status`, `send`, `tail` and `down` use."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Self, TypeVar

from whence.core.message import MessageId, NodeId
from whence.errors import RequestError, ServerDownError
from whence.servers.requests import (
    Accepted,
    Answer,
    AskDead,
    AskDrop,
    AskFlush,
    AskHold,
    AskLearn,
    AskQueued,
    AskRetire,
    AskRevive,
    AskSend,
    AskStatus,
    AskStop,
    AskTail,
    DeadLetters,
    DeadShown,
    Done,
    Queued,
    Refused,
    Request,
    Status,
    Told,
    Took,
    decode_answer,
    encode,
)
from whence.servers.system import System

TIMEOUT_S = 30.0
_T = TypeVar("_T")


class Client:
    """A connection to one server. Blocking; for programs that have no event loop."""

    def __init__(self, system: System, server: str, timeout_s: float = TIMEOUT_S) -> None:
        self.server = system.require(server)
        self._system = system
        self._timeout_s = timeout_s
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(timeout_s)
        try:
            self._socket.connect(str(system.socket_of(server)))
        except OSError as error:  # no such file, or no server behind it
            self._socket.close()
            raise self._down("it does not run") from error
        self._lines = self._socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection."""
        self._lines.close()
        self._socket.close()

    def status(self) -> Status:
        """How the server is."""
        return self._ask(AskStatus(), Status)

    def send(self, to: NodeId, payload: bytes, *, timeout_s: float | None = None) -> MessageId:
        """Let the server send a message; returns its id when it is durable.

        `NoRoomError` if there was no room for it within `timeout_s`, or while this connection waits at all.
        """
        patience_s = 0.8 * self._timeout_s if timeout_s is None else timeout_s
        self._socket.settimeout(max(self._timeout_s, 2 * patience_s))
        accepted = self._ask(AskSend(to, payload, patience_s), Accepted)
        return MessageId(accepted.origin, accepted.number)

    def dead(self) -> list[DeadShown]:
        """The messages at which the server's agent failed permanently, oldest first."""
        return self._ask(AskDead(), DeadLetters).letters

    def revive(self, id_: MessageId) -> None:
        """Let the agent try a dead letter again, after all messages that wait."""
        self._ask(AskRevive(id_.origin, id_.number), Done)

    def drop(self, id_: MessageId) -> None:
        """Forget a dead letter."""
        self._ask(AskDrop(id_.origin, id_.number), Done)

    def retire(self, name: NodeId) -> None:
        """Let the server, and all that it tells, wait for another no more."""
        self._ask(AskRetire(name), Done)

    def flush(self) -> None:
        """Let the server put what it traced so far on the disk."""
        self._ask(AskFlush(), Done)

    def hold(self, names: Sequence[NodeId], seconds: float | None = None) -> None:
        """Let the senders to `names` there wait, for a time or until told otherwise."""
        self._ask(AskHold(list(names), seconds), Done)

    def queued(self, names: Sequence[NodeId], leaving: Sequence[NodeId]) -> list[str]:
        """What is there that a change could strand: on its way to `names`, and all that is of `leaving`."""
        return self._ask(AskQueued(list(names), list(leaving)), Queued).lines

    def learn(self) -> None:
        """Let the server take over what was applied, as far as that needs no new start."""
        self._ask(AskLearn(), Done)

    def stop(self, *, again: bool = False) -> None:
        """Let the server stop, in order; it starts again at once if `again`."""
        self._ask(AskStop(again), Done)

    def tail(self, count: int | None = None) -> Iterator[Told]:
        """Messages from now on (at most `count`) until the server stops; without an agent those that wait.

        Where there is no agent, a message counts as taken when the caller comes back for the next one.
        """
        takes = self._ask(AskTail(), Done).takes
        self._socket.settimeout(None)
        seen = 0
        while count is None or seen < count:
            told = self._next(Told)
            yield told
            seen += 1
            if takes:
                self._write(Took())
        if takes and seen:
            self._next(Done)  # or we might be gone before the server has read it

    def _next(self, kind: type[_T]) -> _T:
        """The next answer of a kind; the others are between."""
        while True:
            answer = self._read()
            if isinstance(answer, Refused):
                raise answer.error()
            if isinstance(answer, kind):
                return answer

    def _ask(self, request: Request, kind: type[_T]) -> _T:
        self._write(request)
        answer = self._read()
        if isinstance(answer, Refused):
            raise answer.error()
        if not isinstance(answer, kind):
            raise RequestError(
                f"server {self.server!r}",
                f"it answered {type(answer).__name__} to {type(request).__name__}",
                "Use one version of Whence for all servers",
            )
        return answer

    def _write(self, request: Request) -> None:
        try:
            self._socket.sendall(encode(request))
        except OSError as error:
            with contextlib.suppress(ServerDownError):  # it may have said why it would not read on
                refused = self._read()
                if isinstance(refused, Refused):
                    raise refused.error() from error
            raise self._down(f"it has gone ({error})") from error

    def _read(self) -> Answer:
        try:
            line = self._lines.readline()
        except TimeoutError as error:
            raise self._down(f"it did not answer within {self._socket.gettimeout():g} s") from error
        except OSError as error:
            raise self._down(f"it has gone ({error})") from error
        if not line.endswith(b"\n"):
            raise self._down("it stopped before it answered")
        return decode_answer(line)

    def _down(self, reason: str) -> ServerDownError:
        return ServerDownError(
            f"server {self.server!r}",
            reason,
            f"Start it with `whence mom serve {self._system.path} {self.server}`, or all with "
            f"`whence mom up {self._system.path}`; see {self._system.log_of(self.server)}",
        )
