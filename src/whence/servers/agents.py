"""Ready-made agents, for descriptions of systems, tests and measurements.

An agent takes its state and a message and returns its new state and what it sends:

    [servers.mirror]
    agent = "whence.servers.agents:echo"

    [servers.front]
    agent = "whence.servers.agents:forward"
    options = { to = "back" }           # with options the function is called with them, and makes the agent
"""

from __future__ import annotations

from collections.abc import Sequence

from whence.core.message import Message
from whence.errors import ParameterError
from whence.session.durable import Agent
from whence.session.records import Output

Reaction = tuple[bytes, list[Output]]


def ignore(state: bytes, message: Message) -> Reaction:
    """Take every message, and do nothing."""
    return state, []


def echo(state: bytes, message: Message) -> Reaction:
    """Send every message back to where it came from. Between two of these a message never ends."""
    return state, [Output(message.origin, message.payload)]


def counter(state: bytes, message: Message) -> Reaction:
    """Count: the state is the number of messages so far. An empty message is answered with the number."""
    count = int(state or b"0") + 1
    answer = [] if message.payload else [Output(message.origin, b"%d" % count)]
    return b"%d" % count, answer


def ping_pong(state: bytes, message: Message) -> Reaction:
    """A ball that knows how many times it is still to be hit: b"3" comes back as b"2", b"0" stays here.

    The state is how often it was hit here. What is no number is left alone.
    """
    hits = int(state or b"0")
    if not message.payload.isdigit() or int(message.payload) == 0:
        return state, []
    return b"%d" % (hits + 1), [Output(message.origin, b"%d" % (int(message.payload) - 1))]


def forward(to: str | Sequence[str]) -> Agent:
    """An agent that passes every message on to one server, or to each of several in this order."""
    targets = [to] if isinstance(to, str) else list(to)
    if not targets or not all(isinstance(each, str) for each in targets):
        raise ParameterError("to", f"{to!r} is no server", 'Write to = "name" or to = ["one", "other"]')

    def pass_on(state: bytes, message: Message) -> Reaction:
        return state, [Output(each, message.payload) for each in targets]

    return pass_on
