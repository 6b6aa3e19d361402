"""Agents: a reaction, what it sends and the agent's new state are one atomic step (paper 004, section 3).

Reactions are computed one after the other, each on the state that the one before left, and written together:
one sync for many. Until they are on the disk nothing of them has happened; if they cannot be written, they
are computed again later, so an agent must have no other effects than its state and its outputs.
"""

from __future__ import annotations

import inspect
from typing import Any

from whence.core.message import Message
from whence.errors import AgentError, GroupClosedError, MisuseError, StoreError
from whence.live.durable import DurableMembership
from whence.session.durable import Agent
from whence.session.records import Output, Reacted

REACTIONS = 256  # at most that many share a commit


async def serve(member: DurableMembership, agent: Agent) -> None:
    """Let the agent react until the group is closed."""
    if member.serving or member.host.hand:
        raise MisuseError("serve", "something else reads this group", "Let one agent, or one task, read it")
    member.serving = True
    try:
        while await _wait(member):
            await _react_to_some(member, agent)
    finally:
        member.serving = False


async def _wait(member: DurableMembership) -> bool:
    """Wait for a message and room for replies; False when the group is closed."""
    member.node.waiters.reads()
    while not member.host.inbox:
        if member.node.flow.closed is not None:
            return False
        await member.node.waiters.arrival()
    if member.node.flow.room <= 0:  # its outputs may go anywhere
        try:
            await member.node.waiters.room()
        except GroupClosedError:
            return False
    return member.node.flow.closed is None


async def _react_to_some(member: DurableMembership, agent: Agent) -> None:
    host = member.host
    state, failure = host.agent_state, None
    records: list[Reacted] = []
    while host.inbox and len(records) < REACTIONS:
        message = host.hand_out()
        try:
            state, outputs = await _reaction(member, agent, state, message)
        except AgentError as error:
            failure = error
            break
        records.append(Reacted(host.now_us(), state, outputs))
    try:
        await member.log.submit_all(records)
    except StoreError:
        host.take_all_back()
        await member.log.pause()
        return
    if failure is not None:
        host.take_all_back()
        raise failure


async def _reaction(
    member: DurableMembership, agent: Agent, state: bytes, message: Message
) -> tuple[bytes, tuple[Output, ...]]:
    try:
        answer: Any = agent(state, message)
        new_state, outputs = (await answer) if inspect.isawaitable(answer) else answer
        if not isinstance(new_state, bytes):
            raise TypeError(f"its state is {type(new_state).__name__}, not bytes")
        return new_state, tuple(_checked(member, *output) for output in outputs)
    except Exception as error:
        raise AgentError(
            f"the agent of node {member.node.settings.node!r}",
            f"it failed at message {message.origin}:{message.number} ({type(error).__name__}: {error})",
            "Repair the agent and start the node again: the message waits",
        ) from error


def _checked(member: DurableMembership, to: str | None, payload: bytes) -> Output:
    """Refuse what the core would refuse: a reaction happens as a whole or not at all."""
    if not isinstance(payload, bytes) or len(payload) > member.node.identity.max_payload_bytes:
        raise ValueError(f"an output must be at most {member.node.identity.max_payload_bytes} bytes")
    if (to is None) == member.is_point_to_point or (to is not None and to not in member.members):
        raise ValueError(f"no output can go to {to!r}")
    return Output(to, payload)
