"""What people and programs ask a running server: one JSON object per line, over its Unix socket.

    {"request": "status"}
    {"request": "send", "to": "b", "payload": "aGVsbG8="}      payload in base64
    {"request": "tail"}                                         then lines come until the connection ends
    {"request": "took"}                                         to each of them, where there is no agent
    {"request": "dead"}                                         messages at which the agent failed permanently
    {"request": "revive", "origin": "a", "number": 3}           try one of them again, after all that wait
    {"request": "drop", "origin": "a", "number": 3}             forget one
    {"request": "stop"}

Each request is answered with one line, its kind in `answer`; a tail with a line for each message as well.
What cannot be understood is answered with an error that has a type, a reason and a fix, and the connection
goes on.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from whence import errors
from whence.core.message import NodeId
from whence.errors import RequestError, WhenceError
from whence.live.stats import LinkStats, StoreStats

LINE_SLACK_BYTES = 4096  # of a request, beside its payload


class _AdminRequest(msgspec.Struct, frozen=True, tag_field="request", forbid_unknown_fields=True):
    """Any request."""


class AskStatus(_AdminRequest, frozen=True, tag="status"):
    """How are you?"""


class AskSend(_AdminRequest, frozen=True, tag="send"):
    """Send `payload` to the server or agent `to`; answered when the message is durable.

    If there is no room for it within `timeout_s`, that is an error, and nothing was sent; None: wait.
    """

    to: NodeId
    payload: bytes
    timeout_s: Annotated[float, msgspec.Meta(ge=0)] | None = None


class AskTail(_AdminRequest, frozen=True, tag="tail"):
    """Tell me every message from now on; where there is no agent, also those that wait."""


class Took(_AdminRequest, frozen=True, tag="took"):
    """The message of the last line is mine: where there is no agent, it leaves QueueIN now."""


class AskDead(_AdminRequest, frozen=True, tag="dead"):
    """At which messages did the agent fail permanently?"""


class AskRevive(_AdminRequest, frozen=True, tag="revive"):
    """Let the agent try a dead letter again."""

    origin: NodeId
    number: int


class AskDrop(_AdminRequest, frozen=True, tag="drop"):
    """Forget a dead letter."""

    origin: NodeId
    number: int


class AskRetire(_AdminRequest, frozen=True, tag="retire"):
    """A server is out of the system: wait for it no more. It may come back, as another life."""

    name: NodeId


class AskFlush(_AdminRequest, frozen=True, tag="flush"):
    """Put what was traced so far on the disk."""


class AskHold(_AdminRequest, frozen=True, tag="hold"):
    """Let the senders to `names` wait, for that many seconds or (None) until told otherwise."""

    names: list[NodeId]
    seconds: float | None = None


class AskQueued(_AdminRequest, frozen=True, tag="queued"):
    """How much is here that a change could strand: on its way to `names`; all that is of `leaving`."""

    names: list[NodeId]
    leaving: list[NodeId]


class AskLearn(_AdminRequest, frozen=True, tag="learn"):
    """The description was applied: take it over, as far as that needs no new start."""


class AskStop(_AdminRequest, frozen=True, tag="stop"):
    """Stop, in order; go on from the store at the next start, which follows now if `again`."""

    again: bool = False


Request: TypeAlias = (
    AskStatus
    | AskSend
    | AskTail
    | Took
    | AskDead
    | AskRevive
    | AskDrop
    | AskRetire
    | AskFlush
    | AskHold
    | AskQueued
    | AskLearn
    | AskStop
)


class _Answer(msgspec.Struct, frozen=True, tag_field="answer", kw_only=True, omit_defaults=True):
    """Any answer."""


class Refused(_Answer, frozen=True, kw_only=True, tag="error"):
    """The request was not carried out."""

    type: str
    what: str
    reason: str
    fix: str

    @classmethod
    def of(cls, error: WhenceError) -> Refused:
        """The answer that tells an error."""
        return cls(type=type(error).__name__, what=error.what, reason=error.reason, fix=error.fix)

    def error(self) -> WhenceError:
        """Return the error, of the type that it had."""
        kind = getattr(errors, self.type, None)
        if not (isinstance(kind, type) and issubclass(kind, WhenceError)) or kind is errors.InvariantError:
            kind = RequestError
        return kind(self.what, self.reason, self.fix)


class Accepted(_Answer, frozen=True, kw_only=True, tag="accepted"):
    """A message is on its way, and durable."""

    origin: NodeId
    number: int


class Done(_Answer, frozen=True, kw_only=True, tag="done"):
    """Agreed: to `tail`, `took` and `stop`. `takes` says that a tail must answer `took` to each message."""

    takes: bool = False


class Told(_Answer, frozen=True, kw_only=True, tag="message"):
    """A message at a tail, with what the agent sent in return."""

    origin: NodeId
    number: int
    payload: bytes
    outputs: list[tuple[NodeId | None, bytes]] = []
    to: str = ""  # the named agent that it is for
    missed: int = 0  # messages before this one for which the reader was too slow


class DeadShown(msgspec.Struct, frozen=True, kw_only=True):
    """A message at which the agent failed permanently."""

    origin: NodeId
    number: int
    payload: bytes
    since_s: float  # how long ago it was given up
    attempts: int
    reason: str
    to: str = ""  # the named agent that failed at it


class DeadLetters(_Answer, frozen=True, kw_only=True, tag="dead"):
    """All of them, oldest first."""

    letters: list[DeadShown]


class Queued(_Answer, frozen=True, kw_only=True, tag="queued"):
    """What a change could strand here; each line says what and how many."""

    lines: list[str]


class ClockShown(msgspec.Struct, frozen=True, kw_only=True):
    """The clock of one of the server's domains."""

    domain: str
    servers: int
    entries: int  # counters of its matrix


class RouteShown(msgspec.Struct, frozen=True, kw_only=True):
    """Where messages for `to` go next."""

    to: NodeId
    hop: NodeId
    domain: str


class HeldShown(msgspec.Struct, frozen=True, kw_only=True):
    """A message that came too early."""

    message: str
    since_s: float
    missing: list[str]


class Status(_Answer, frozen=True, kw_only=True, tag="status"):
    """One server, now. Counters are since the process started, or since ever where there is a store."""

    server: NodeId
    pid: int
    restarts: int  # by `whence mom up`, after the process died
    up_s: float
    agent: str | None
    agents: list[str]  # the named ones that live here
    shape: int  # the newest change of the system that this server knows
    durable: bool
    queue_in: int  # delivered, and not yet reacted to or taken
    queue_out: int  # unacknowledged, over all peers; `links` has each
    held: int
    held_first: list[HeldShown]  # the oldest ones
    sent: int
    delivered: int
    reactions: int
    dead: int  # messages at which the agent failed permanently
    control_entries: int
    clocks: list[ClockShown]
    routes: list[RouteShown]
    links: dict[NodeId, LinkStats]
    full: list[NodeId]  # destinations that take no more, here or beyond: a sender to them waits
    problems: dict[str, int]  # peers' faults by type, and discarded packets by reason
    store: StoreStats | None = None


Answer: TypeAlias = Refused | Accepted | Done | Told | DeadLetters | Queued | Status

_REQUESTS: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)
_ANSWERS: msgspec.json.Decoder[Answer] = msgspec.json.Decoder(Answer)
_encoder = msgspec.json.Encoder()


def encode(line: _AdminRequest | _Answer) -> bytes:
    """One line."""
    return _encoder.encode(line) + b"\n"


def decode_request(line: bytes) -> Request:
    """What a line asks for, or a `RequestError` that says what is wrong with it."""
    try:
        return _REQUESTS.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(
            "a request",
            f"it cannot be understood ({error})",
            'Send one JSON object per line, as {"request": "status"}; see docs/mom.md',
        ) from error


def decode_answer(line: bytes) -> Answer:
    """What a server said, or a `RequestError` if that is not a server of ours."""
    try:
        return _ANSWERS.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(
            "an answer", f"it cannot be understood ({error})", "Use one version of Whence for all servers"
        ) from error
