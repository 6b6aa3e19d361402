"""The agents of one server: who a message is for, and how what they send finds its way.

An agent has a name in the whole system, and lives at one server; the server's own has none. Nobody needs to
know where another lives: a name is looked up when something is sent to it.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Mapping
from typing import Any

from whence.core.message import Message
from whence.errors import ConfigError
from whence.servers.letters import Letter, opened_letter, sealed
from whence.servers.system import System
from whence.session.durable import Agent
from whence.session.records import Output


class Post:
    """Finds agents, here and elsewhere. `react` is one agent to whoever runs it."""

    def __init__(self, system: System, server: str, agents: Mapping[str, Agent]) -> None:
        self.system = system  # as it was applied last: names may move
        self.server = server
        self.agents = agents

    def who(self, message: Message) -> str:
        """The name of the agent that a message is for."""
        return opened_letter(message.payload).to

    def attempts(self, name: str) -> int:
        """How often an agent may fail at one message."""
        table = self.system.agents.get(name) if name else self.system.servers[self.server]
        return 1 if table is None else table.attempts

    def outgoing(self, to: str, payload: bytes, sender: str = "") -> Output:
        """A message to a server or an agent, as it leaves this server."""
        server = self.system.server_of(to)
        return Output(server, sealed(Letter(to if to != server else "", sender, payload)))

    def react(self, state: bytes, message: Message) -> Any:
        """Let the agent react that the message is for. A coroutine if the agent is one."""
        letter = opened_letter(message.payload)
        agent = self.agents.get(letter.to)
        if agent is None:
            what = f"agent {letter.to!r}" if letter.to else f"server {self.server!r}"
            reason = "it does not live here" if letter.to else "it has no agent of its own"
            raise ConfigError(what, reason, "Describe it, and apply; then try the dead letter again")
        answer: Any = agent(state, Message(letter.sender or message.origin, message.number, letter.payload))
        return (
            self._later(answer, letter.to) if inspect.isawaitable(answer) else self._sent(answer, letter.to)
        )

    async def _later(self, answer: Awaitable[Any], sender: str) -> Any:
        return self._sent(await answer, sender)

    def _sent(self, answer: Any, sender: str) -> Any:
        state, outputs = answer
        return state, [
            self.outgoing(to, payload, sender) if isinstance(payload, bytes) else Output(to, payload)
            for to, payload in outputs
        ]
