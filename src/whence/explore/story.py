"""A schedule for people and for other tools: a story in words, a trace, a file that can be repeated.

    kept = Kept.of(world, report.counterexample)       # `kept.write(path)`, `read(path)`
    again = repeat(kept)                               # again.finding, again.lines
    write_trace(kept, folder)                          # for `whence verify`, `replay`, `trace`

A file names a move by what can be seen of it (nodes, the message that a packet carries), not by digests: it
outlives changes of packets and of saved states, and so can be kept as a regression test. A schedule that a
repaired core does not allow any more is followed as far as it goes.

In a trace, the time of an event is what its node's clock shows. A node that comes back without state is
written as a crash and a restart, which `whence replay` takes for a restart with state: it then differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct

from whence.core.message import Message, NodeId, Packet
from whence.core.protocol import LEAVE
from whence.errors import InvariantError, ScenarioError, writing
from whence.explore.machine import Input, Make, Step
from whence.explore.state import Counterexample, Flaw, Move, Rules, State
from whence.explore.world import World, checked
from whence.sim.driver import Driver
from whence.trace.rows import About
from whence.trace.schema import Level, PromisesMade, Recorder
from whence.trace.writer import TraceWriter

WRITER = "explore"
_ON_A_LINK = ("receive", "lose", "double")


class Kept(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A world and a schedule of it, as a file has them."""

    world: World
    moves: list[list[str | int]]
    found: str = ""  # the kind of the finding at its end

    @classmethod
    def of(cls, world: World, found: Counterexample, make: Make | None = None) -> Kept:
        """The schedule of a counterexample."""
        rules = Rules(world, make)
        state, _ = rules.first()
        moves = []
        for move in found.moves:
            moves.append(_named(rules, state, move))
            state, _ = rules.apply(state, move)
        return cls(world=world, moves=moves, found=found.finding.kind)

    def write(self, path: Path) -> None:
        """Write the file."""
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")


def read(path: Path) -> Kept:
    """Read a file that `Kept.write` has written."""
    try:
        kept = msgspec.json.decode(path.read_bytes(), type=Kept)
    except (OSError, msgspec.DecodeError) as error:
        raise ScenarioError(str(path), str(error), "Give a file that `whence explore --out` wrote") from error
    checked(kept.world)
    return kept


class Repeat(NamedTuple):
    """What a schedule does when it is followed again."""

    lines: list[str]  # the story
    followed: int  # moves that were possible
    finding: Flaw | None


class _Taken(NamedTuple):
    """One move of a schedule: itself, and the local steps that it takes."""

    move: Move | None  # None: how the world begins
    state: State  # before it
    steps: list[tuple[int, int, Input, Step]]
    found: list[Flaw]


def repeat(kept: Kept, make: Make | None = None) -> Repeat:
    """Follow a schedule as far as it is possible, and tell it."""
    rules = Rules(kept.world, make)
    lines: list[str] = []
    followed = 0
    finding: Flaw | None = None
    for taken in _follow(rules, kept.moves):
        if taken.move is not None:
            followed += 1
            lines.append(f"{followed}. {_told(rules, taken)}")
        if taken.found:
            finding = taken.found[0]
            break
    if finding is not None:
        lines.append(f"{finding.kind}: {finding.text}")
    elif followed < len(kept.moves):
        lines.append(f"move {followed + 1} is not possible any more: {kept.moves[followed]}")
    return Repeat(lines, followed, finding)


def _follow(rules: Rules, moves: Sequence[list[str | int]]) -> Iterator[_Taken]:
    """The moves of a schedule while they are possible, and at its end what is wrong with a final state."""
    state, found = rules.first()
    yield _Taken(None, state, list(rules.taken), found)
    for wanted in moves:
        move = next((each for each in rules.moves(state) if _named(rules, state, each) == wanted), None)
        if move is None:
            return
        after, found = rules.apply(state, move)
        yield _Taken(move, state, list(rules.taken), found)
        state = after
    if all(map(rules.is_optional, rules.moves(state))):
        yield _Taken(None, state, [], rules.judge_final(state))


# Names


def _named(rules: Rules, state: State, move: Move) -> list[str | int]:
    """A move by names: packets by what they carry, and by place among those of one link that carry it too."""
    names, verb = rules.machine.names, move[0]
    if verb in _ON_A_LINK:
        _, node, sender, packet = move
        alike = [
            each
            for each in dict.fromkeys(state.flight[sender * rules.nodes + node])
            if _carried(rules, sender, each) == _carried(rules, sender, packet)
        ]
        return [verb, names[node], names[sender], _carried(rules, sender, packet), alike.index(packet)]
    if verb in ("cut", "mend"):
        return [verb, names[move[1]], names[move[2]]]
    if verb == "change":
        return [verb, move[1]]
    if verb == "retire":
        return [verb, names[move[1]], names[move[2]]]
    return [verb, *(names[node] for node in move[1:2]), *move[2:]]


def _carried(rules: Rules, sender: int, packet: int) -> str:
    core, content = rules.machine.core(sender), rules.machine.packets[packet]
    about = [str(core.message_of(content) or "control"), core.detail_of(content)]
    return " ".join(filter(None, about))


# Words


def _told(rules: Rules, taken: _Taken) -> str:
    names, verb = rules.machine.names, taken.move[0] if taken.move else ""
    ends = [
        f"{names[node]} {'delivers' if delivered else 'gives up'} message {at}"
        for node, _, _, step in taken.steps
        for at, delivered in step.ends
    ]
    after = rules.apply(taken.state, taken.move)[0] if taken.move == ("tick",) else taken.state
    text = f"time goes on to {after.now_us} us" if verb == "tick" else _happened(rules, taken, verb)
    return f"{text}; {', '.join(ends)}" if ends else text


def _happened(rules: Rules, taken: _Taken, verb: str) -> str:
    names, world, move = rules.machine.names, rules.world, taken.move
    assert move is not None
    if verb in _ON_A_LINK:
        _, node, sender, packet = move
        what, name, peer = _carried(rules, sender, packet), names[node], names[sender]
        return {
            "receive": f"{name} receives {what} from {peer}",
            "lose": f"{what} from {peer} to {name} is lost",
            "double": f"{name} receives a copy of {what} from {peer}, which stays in flight",
        }[verb]
    if verb == "change":
        change = msgspec.to_builtins(world.change[move[1]])
        return ", ".join(f"{key} {value}" for key, value in change.items() if value is not None)
    if verb in ("cut", "mend"):
        how = "goes" if verb == "cut" else "comes back"
        return f"the link of {names[move[1]]} and {names[move[2]]} {how}"
    name = names[move[1]]
    if verb == "say":
        line = world.say[move[2]]
        to = "" if line.to is None else f" to {line.to}"
        lives = "" if line.lifetime_us is None else f", which lives {line.lifetime_us} us"
        return f"{name} says message {move[2]}{to}{lives}"
    if verb == "jump":
        return f"the clock of {name} jumps by {world.clock_step_us} us"
    return {
        "timer": f"timer {move[-1]!r} of {name} fires",
        "crash": f"{name} crashes",
        "restart": f"{name} restarts with its state",
        "forget": f"{name} crashes and comes back without its state",
        "join": f"{name} joins",
        "leave": f"{name} leaves",
        "retire": f"{name} retires {names[move[-1]] if verb == 'retire' else ''}",
    }[verb]


# The trace


def write_trace(kept: Kept, folder: Path, make: Make | None = None, *, overwrite: bool = False) -> None:
    """Write the run that a schedule is, for `whence verify`, `whence replay` and the viewer."""
    world = kept.world
    rules = Rules(world, make)
    promised = rules.info.promises
    promises = PromisesMade(
        causal=promised.causal and not world.params.get("unsafe_cycles"),
        fifo=promised.fifo,
        no_duplicates=promised.no_duplicates,
        complete=kept.found == "incomplete",
        timely=promised.timely,
    )
    with TraceWriter(
        folder,
        run=f"{WRITER}-{world.protocol}-{kept.found or 'schedule'}",
        writer=WRITER,
        protocol=world.protocol,
        parameters={"protocol": world.protocol, "params": world.params, "world": msgspec.to_builtins(world)},
        promises=promises,
        seed=None,
        nodes=world.names,
        level=Level.ALL,
        overwrite=overwrite,
    ) as writer:
        _record(rules, kept, writer)


def _record(rules: Rules, kept: Kept, recorder: Recorder) -> None:
    """Give the inputs of a schedule to drivers, which write their rows."""
    machine, nobody = rules.machine, _Nobody()
    drivers = [
        Driver(node, machine.core(node), nobody, recorder=recorder, level=Level.ALL)
        for node in range(rules.nodes)
    ]
    try:
        for taken in _follow(rules, kept.moves):
            for node, _, what, _ in taken.steps:
                _give(rules, drivers[node], what)
    except Exception as error:
        # The finding itself: a core that raises has no effects to write.
        if kept.found != "raised" and not isinstance(error, InvariantError):
            raise


def _give(rules: Rules, driver: Driver, what: Input) -> None:
    machine, verb, now_us = rules.machine, what[0], what[-1]
    if verb == "receive":
        driver.receive(machine.names[what[1]], machine.packets[what[2]], now_us)
    elif verb == "say":
        line, payload = rules.world.say[what[1]], machine.payloads[what[1]]
        if line.to is not None:
            driver.send(line.to, payload, now_us)
        else:
            driver.broadcast(payload, now_us, line.lifetime_us)
    elif verb == "up":
        driver.link_up(machine.names[what[1]], now_us)
    elif verb == "down":
        driver.link_down(machine.names[what[1]], now_us)
    elif verb in ("timer", "leave"):
        driver.timer(LEAVE if verb == "leave" else what[1], now_us)
    elif verb == "command":
        driver.command(what[1], what[2], now_us)
    elif verb in ("crash", "stop"):
        driver.crash(now_us)
    elif verb == "restart":
        driver.restart(machine.core(driver.index), now_us)
    else:  # forget
        driver.core = machine.core(driver.index)
        driver.crash(now_us)
        driver.restart(machine.core(driver.index, what[1]), now_us)


class _Nobody:
    """A `DriverHost` that does nothing: the schedule says what comes next."""

    def send(
        self, node: int, to: tuple[NodeId, ...], packet: Packet, time_us: int, about: About | None
    ) -> None:
        """Leave the packet to the schedule."""

    def delivered(self, node: int, message: Message, time_us: int) -> None:
        """Leave the delivery to the trace."""

    def set_timer(self, node: int, key: str, at_us: int) -> None:
        """Leave the timer to the schedule."""

    def cancel_timer(self, node: int, key: str) -> None:
        """Leave the timer to the schedule."""

    def stop(self, node: int, time_us: int) -> None:
        """Leave the node to the schedule."""

    def close_link(self, node: int, peer: NodeId, time_us: int) -> None:
        """Leave the link to the schedule."""
