"""Agents: a reaction, what it sends and the agent's new state are one atomic step (paper 004, section 3).

Reactions are computed one after the other, each on the state that the one before left, and written together:
one sync for many. Until they are on the disk nothing of them has happened; if they cannot be written, they
are computed again later, so an agent must have no other effects than its state and its outputs.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from whence.core.message import Message
from whence.errors import AgentError, GroupClosedError, MisuseError, StoreError
from whence.live.durable import DurableMembership
from whence.session.durable import Agent
from whence.session.records import Buried, Output, Reacted

REACTIONS = 256  # at most that many share a commit
AGAIN_S, AGAIN_MAX_S = 0.1, 10.0  # before a message at which the agent failed is tried again
DEAD_MAX = 10_000  # dead letters: with so many the agent itself is broken, and says so


async def serve(
    member: DurableMembership,
    agent: Agent,
    attempts: Callable[[str], int | None],
    who: Callable[[Message], str] = lambda _: "",
) -> None:
    """Let the agents react until the group is closed.

    `who` names the one that a message is for: each has a state of its own. `attempts` says how often it may
    fail at one message; None: the first failure ends all.
    """
    if member.serving or member.host.in_hand:
        raise MisuseError("serve", "something else reads this group", "Let one agent, or one task, read it")
    member.serving = True
    failures = 0  # in a row, at one message
    try:
        while await _wait(member):
            failure = await _react_to_some(member, agent, who)
            if failure is None:
                failures = 0
                continue
            failures = failures + 1 if failure.is_first else 1
            allowed = attempts(failure.name)
            if allowed is None or len(member.host.dead) >= DEAD_MAX:
                raise failure.error
            if failures < allowed:
                await asyncio.sleep(min(AGAIN_S * 2 ** (failures - 1), AGAIN_MAX_S))
            elif await _bury(member, failures, failure.error):
                failures = 0
    finally:
        member.serving = False


class _Failure(NamedTuple):
    """The agent failed at a message; `is_first`: no other message was reacted to before it this time."""

    error: AgentError
    is_first: bool
    name: str


async def _bury(member: DurableMembership, attempts: int, error: AgentError) -> bool:
    """The first message becomes a dead letter; False if that could not be written."""
    try:
        await member.log.submit(Buried(member.host.now_us(), attempts, error.reason))
    except StoreError:
        await member.log.pause()
        return False
    member.node.journal.note("dead letter", None, f"{error.reason}; tried {attempts} times", logging.ERROR)
    return True


async def _wait(member: DurableMembership) -> bool:
    """Wait for a message and room for replies; False when the group is closed."""
    member.node.waiters.reads()
    while not member.host.inbox:
        if member.node.flow.closed is not None:
            return False
        await member.node.waiters.arrival()
    if member.node.flow.room <= 0 and not member.is_point_to_point:
        try:
            await member.node.waiters.room()
        except GroupClosedError:
            return False
    return member.node.flow.closed is None


async def _react_to_some(
    member: DurableMembership, agent: Agent, who: Callable[[Message], str]
) -> _Failure | None:
    host = member.host
    states: dict[str, bytes] = {}  # after the reactions that are not written yet
    failure = None
    records: list[Reacted] = []
    sends, sends_max = 0, max(1, member.node.limits.queue_messages // 4)  # nobody has them before the commit
    while host.inbox and len(records) < REACTIONS and sends < sends_max:
        message = host.hand_out()
        name = who(message)
        state = states.get(name, host.agent_states.get(name, b""))
        try:
            state, outputs = await _reaction(member, agent, state, message)
        except AgentError as error:
            failure = _Failure(error, not records, name)
            break
        if not _has_room(member, outputs):
            if not await _write(member, records) or not await _room(member, outputs):
                host.take_all_back()
                return None
            records = []
        records.append(Reacted(host.now_us(), state, outputs, name))
        states[name] = state
        sends += len(outputs)
    if await _write(member, records) and failure is not None:
        host.take_all_back()
        return failure
    return None


async def _write(member: DurableMembership, records: list[Reacted]) -> bool:
    """The reactions happen; False if they could not be written, and nothing of them has."""
    try:
        await member.log.submit_all(records)
    except StoreError:
        member.host.take_all_back()
        await member.log.pause()
        return False
    return True


def _has_room(member: DurableMembership, outputs: tuple[Output, ...]) -> bool:
    flow, way_to = member.node.flow, member.node.way_to
    return all(to is None or flow.may_go(way_to(to), reading=True, waited=False) for to, _ in outputs)


async def _room(member: DurableMembership, outputs: tuple[Output, ...]) -> bool:
    """Wait for room at each destination; False when the group is closed."""
    try:
        for to, _ in outputs:
            if to is not None:
                await member.node.waiters.room(member.node.way_to(to))
    except GroupClosedError:
        return False
    return True


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
    rooms = member.node.rooms
    if rooms is not None and to is not None:
        rooms.sent(to)
    return Output(to, payload)
