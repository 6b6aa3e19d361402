"""`whence mom apply`: takes a changed description over while the system runs.

Only servers whose domains, agents or tables change start anew; the others learn of new names and ways, and
run on. What could be overtaken or stranded is drained first: a sender to a server that goes, or that is
reached over another way than before, waits until all that is under way has arrived (overlay/shape.py says why
that is enough). If it does not arrive in time, nothing is changed.

    plan        what changes; a cycle, or what cannot change at all, is refused
    drain       hold, and count until nothing is under way
    commit      write FOLDER/applied.json: from here on the change is made, and another `apply` completes it
    follow      servers that go stop, those whose domains change start anew, the others learn; new ones start
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple

from whence.core.message import NodeId
from whence.errors import ConfigError, MisuseError, PlatformError, ServerDownError
from whence.overlay.shape import rerouted
from whence.servers.applied import Applied, write_applied
from whence.servers.client import Client
from whence.servers.processes import holder_of
from whence.servers.system import System, read_as_applied, read_description

POLL_S = 0.05
LEASE_S = 30.0  # so long senders wait if the process that changes the system dies before anything was changed
FIXED = ("name", "folder", "stamps", "durable")
FOR_ALL = ("limits", "trace", "keys", "plaintext")


class SystemChange(NamedTuple):
    """What is different in a description."""

    old: System
    new: System
    added: tuple[NodeId, ...]
    removed: tuple[NodeId, ...]
    anew: tuple[NodeId, ...]  # these start again
    drained: tuple[str, ...]  # servers and agents to which nothing may be under way
    leaving: tuple[str, ...]  # servers and agents that go

    def lines(self) -> list[str]:
        """What to tell people."""
        lines = [f"{server} is new" for server in self.added]
        lines += [f"{name} goes" for name in self.leaving]
        lines += [f"{server} starts again: its domains, agents or settings change" for server in self.anew]
        ways = sorted(set(self.drained) - set(self.leaving))
        lines += [f"{server} is reached over another way" for server in ways]
        return lines


def plan(described: System) -> SystemChange:
    """What a description changes in the system that was applied; refused if it cannot change."""
    old, new = read_as_applied(described), described
    for field in FIXED:
        before, after = getattr(old, field), getattr(new, field)
        if before != after:
            raise ConfigError(
                f"{new.path}: {field}",
                f"it was {before!r}, and cannot become {after!r} while the system lives",
                "Put it back, or start another system in another folder",
            )
    if not new.durable:
        raise ConfigError(
            f"{new.path}: durable", "servers without stores forget everything", "Start the system anew"
        )
    for name in old.agents.keys() & new.agents.keys():
        before, after = old.agents[name].server, new.agents[name].server
        if before != after and after in old.servers:
            raise ConfigError(
                f"{new.path}: [agents.{name}] server",
                f"it lives at {before!r} with its state, which does not travel to {after!r}",
                "Remove it, apply, and add it again: it begins without a state",
            )
    both = old.servers.keys() & new.servers.keys()
    leaving = [*(old.servers.keys() - new.servers.keys()), *(old.agents.keys() - new.agents.keys())]
    return SystemChange(
        old=old,
        new=new,
        added=tuple(sorted(new.servers.keys() - old.servers.keys())),
        removed=tuple(sorted(old.servers.keys() - new.servers.keys())),
        anew=tuple(sorted(server for server in both if _starts_again(old, new, server))),
        drained=tuple(sorted({*rerouted(old.shape, new.shape), *leaving})),
        leaving=tuple(sorted(leaving)),
    )


def _starts_again(old: System, new: System, server: NodeId) -> bool:
    near = new.shape.neighbours(server)
    return (
        any(getattr(old, field) != getattr(new, field) for field in FOR_ALL)
        or old.shape.of(server) != new.shape.of(server)
        or old.servers[server] != new.servers[server]
        or old.agents_at(server) != new.agents_at(server)
        or any(old.addresses.get(each) != new.addresses[each] for each in (server, *near))
    )


def apply(described: System, timeout_s: float, say: Callable[[str], None]) -> SystemChange:
    """Change the running system into the one that is described; what cannot be done is refused."""
    change = plan(described)
    running = {server for server in change.old.servers if holder_of(change.old.lock_of(server)) is not None}
    if change.drained:
        _drain(change, running, timeout_s)
    description = read_description(change.new.path)
    write_applied(change.new.folder, Applied(change.new.shape, description))
    for line in change.lines():
        say(line)
    _follow(change, running, timeout_s)
    for server in sorted(running - set(change.removed)):  # a new one holds nothing, and may not listen yet
        with Client(change.new, server) as client:
            client.hold(())
    return change


# Drain


def _drain(change: SystemChange, running: set[NodeId], timeout_s: float) -> None:
    """Return when nothing is under way to where the way changes; otherwise nothing has changed."""
    absent = [server for server in change.old.servers if server not in running]
    absent = [server for server in absent if not _is_retired(change.old, server, running)]
    if absent:
        raise ServerDownError(
            f"server {absent[0]!r}",
            f"it does not run: what waits there for {', '.join(change.drained)} cannot be seen",
            f"Start it; if it is lost, `whence mom retire {change.old.path} {absent[0]}`",
        )
    deadline_s = time.monotonic() + timeout_s
    clean = 0  # polls in a row that found nothing: a message can hide from one by moving, hop by hop
    try:
        while clean <= len(change.old.shape.domains):
            found = _found(change, running)
            clean = 0 if found else clean + 1
            if found and time.monotonic() > deadline_s:
                raise PlatformError(
                    f"system {change.old.name!r}",
                    f"this change would strand messages: {'; '.join(found)}",
                    "Let them be taken (`whence mom tail`, `whence mom dead`), then apply again",
                )
            if found:
                time.sleep(POLL_S)
        _hold(change.old, running, change.drained, None)
    except BaseException:
        with suppress(ServerDownError):
            _hold(change.old, running, (), None)
        raise


def _is_retired(system: System, server: NodeId, running: set[NodeId]) -> bool:
    """Whether all its neighbours that run have done with it."""
    states = []
    for peer in system.shape.neighbours(server) & running:
        with Client(system, peer) as client:
            states.append(client.status().links[server].state)
    return bool(states) and set(states) == {"retired"}


def _found(change: SystemChange, running: Iterable[NodeId]) -> list[str]:
    """Hold, then ask every server: a line for each that has something."""
    _hold(change.old, running, change.drained, LEASE_S)
    found = []
    for server in sorted(running):
        with Client(change.old, server) as client:
            found += [f"{line} at {server}" for line in client.queued(change.drained, change.leaving)]
    return found


def _hold(system: System, running: Iterable[NodeId], names: Iterable[str], seconds: float | None) -> None:
    for server in running:
        with Client(system, server) as client:
            client.hold(tuple(names), seconds)


# Follow


def _follow(change: SystemChange, running: set[NodeId], timeout_s: float) -> None:
    """Let every server that runs take the change over; a server that is down does so when it starts."""
    old, new = change.old, change.new
    asked_s = time.monotonic()
    for server in change.removed:
        if server in running:
            with Client(old, server) as client:
                client.stop()
    _until(lambda: not any(holder_of(old.lock_of(each)) for each in change.removed), timeout_s, "stop")
    for server in change.removed:  # kept, and not read again: the server may come back as another life
        with suppress(FileNotFoundError):
            kept = old.store_of(server).with_suffix(f".store.{new.shape.number}")
            old.store_of(server).replace(kept)
    started = set()
    for server in sorted(running - set(change.removed)):
        with Client(new, server) as client:
            if server in change.anew or not _learns(client):
                client.stop(again=True)
                started.add(server)
    supervisor = holder_of(new.up_lock)
    if supervisor is not None:
        os.kill(supervisor, signal.SIGHUP)
    expected = started | (running - set(change.removed))
    _until(
        lambda: all(_is_there(new, each, each in started, asked_s) for each in expected), timeout_s, "start"
    )


def _learns(client: Client) -> bool:
    try:
        client.learn()
    except MisuseError:  # an earlier `apply` was interrupted: this server's own domains have changed
        return False
    return True


def _is_there(system: System, server: NodeId, is_new: bool, since_s: float) -> bool:
    try:
        with Client(system, server) as client:
            status = client.status()
    except ServerDownError:
        return False
    is_young = status.up_s <= time.monotonic() - since_s
    return status.shape == system.shape.number and (is_young or not is_new)


def _until(condition: Callable[[], bool], timeout_s: float, what: str) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline_s:
            raise ServerDownError(
                "a server",
                f"it did not {what} within {timeout_s:g} s, and the change is made",
                "See `whence mom status` and its log, and apply again: that completes the change",
            )
        time.sleep(POLL_S)
