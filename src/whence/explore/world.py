"""A small world as data: who is there, what they say, and what may go wrong how often.

    protocol = "vector"
    nodes = 3                      # n0, n1, n2
    links = "fifo"                 # or "any": packets of a link may overtake each other

    [[say]]
    node = "n0"                    # one broadcast, at any moment; the lines of one node keep their order
    [[say]]
    node = "n1"
    lifetime_us = 5000             # where the protocol has lifetimes
    [[say]]
    node = "n2"
    to = "n0"                      # where messages go to one node

    [[change]]                     # what the overlay does, in this order, at any moment
    link = ["n0", "n1"]            # also: cut = [..], command = ["n1", "open", "n0", "n2"],
                                   # join = "n2" (its links come only then), leave = "n2", restart = "n2"

    [budget]                       # how often at most, in one schedule, at any moment
    losses = 1
    crashes = 1
    joins = 1                      # the last node is not there from the start

Every interleaving within the budgets is explored (`explore/search.py`). Time stands still but for a
tick, which goes to the next moment for which a timer is set: `budget.ticks` says how many there may be.
"""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, field

from whence.core.message import NodeId
from whence.errors import ScenarioError
from whence.protocols.registry import lookup
from whence.toml import read_toml

NODES_MAX = 8
MESSAGES_MAX = 16

Count = Annotated[int, Meta(ge=0, le=64)]


class Line(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One message that a node says at any moment after its earlier lines."""

    node: NodeId
    to: NodeId | None = None
    lifetime_us: Annotated[int, Meta(ge=1)] | None = None
    after: list[int] = field(default_factory=list)  # places of lines that the node must have delivered


class WorldChange(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing that the overlay or the operator does; exactly one field is given."""

    link: tuple[NodeId, NodeId] | None = None
    cut: tuple[NodeId, NodeId] | None = None
    command: list[str] | None = None  # the node, the verb, the names
    join: NodeId | None = None  # it gets its links, to all that are there
    leave: NodeId | None = None
    restart: NodeId | None = None  # it stops, and comes back immediately with what it has kept


class FaultBudget(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often each fault may happen in one schedule."""

    losses: Count = 0
    duplicates: Count = 0
    crashes: Count = 0  # a node stops; it comes back with its state, at any moment or never
    amnesias: Count = 0  # a node stops; it comes back as a fresh process without state
    cuts: Count = 0  # a link goes, with what is in flight on it, and comes back at any moment or never
    ticks: Count = 0  # time goes on to the next timer
    clock_steps: Count = 0  # the clock of one node jumps forward by `clock_step_us`
    joins: Count = 0  # this many of the last nodes come at any moment or never
    leaves: Count = 0  # a node leaves; where the protocol knows no leaving, its links go and it stops
    retirements: Count = 0  # a node says that another does not count any more (command "retire")


class World(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One world, complete."""

    protocol: str
    nodes: Annotated[int, Meta(ge=1, le=NODES_MAX)] = 3
    links: str = "fifo"
    params: dict[str, Any] = field(default_factory=dict)
    say: list[Line] = field(default_factory=list)
    change: list[WorldChange] = field(default_factory=list)
    budget: FaultBudget = field(default_factory=FaultBudget)
    edges: list[tuple[NodeId, NodeId]] | None = None  # the links that there are from the start; None: all
    clock_step_us: Annotated[int, Meta(ge=1)] = 1_000
    settle_ticks: Count = 0  # before the first state: everything arrives, and time goes on that often
    said_first: Count = 0  # after that, before the first state: the first lines are said
    run_on_ticks: Count = 0  # the same behind every final state, before it is judged
    name: str = "world"

    @property
    def late(self) -> frozenset[NodeId]:
        """Who is not there from the start."""
        joining = {each.join for each in self.change if each.join is not None}
        return frozenset(joining | set(self.names[self.nodes - self.budget.joins :]))

    @property
    def names(self) -> tuple[NodeId, ...]:
        """The names of the nodes."""
        return tuple(f"n{at}" for at in range(self.nodes))


def load(path: Path) -> World:
    """Read a world from a TOML file."""
    data = read_toml(path, "a world", ScenarioError)
    try:
        return checked(msgspec.convert(data, World))
    except msgspec.ValidationError as error:
        raise ScenarioError(str(path), str(error), "docs/explore.md has the fields of a world") from error


def checked(world: World) -> World:
    """The same world, if it can be explored."""
    info = lookup(world.protocol)
    _demand(world.links in ("fifo", "any"), "links", f"{world.links!r} is not known", "fifo or any")
    fifo = world.links == "fifo" or not info.fifo_links
    _demand(fifo, "links", f"{world.protocol} needs links that keep the order", 'Set links = "fifo"')
    _demand(len(world.say) <= MESSAGES_MAX, "say", f"{len(world.say)} messages", f"At most {MESSAGES_MAX}")
    lossy = world.budget.losses + world.budget.duplicates
    _demand(
        not (lossy and info.fifo_links),
        "budget",
        f"{world.protocol} needs links that bring everything just once",
        "Leave losses and duplicates out; cuts are allowed",
    )
    _demand(
        not (world.budget.cuts + world.budget.amnesias + world.budget.joins) or not _is_static(world),
        "budget",
        f"the links of {world.protocol} are there from the start and stay",
        "Leave cuts, amnesias and joins out, or choose protocol 'prc' with links = \"dynamic\"",
    )
    said = 0 <= world.said_first <= len(world.say)
    _demand(said, "said_first", f"there are {len(world.say)} lines", "Give no more than these")
    _demand(world.budget.joins < world.nodes, "budget.joins", "nobody is there from the start", "Leave one")
    for name in chain.from_iterable(world.edges or ()):
        _named(world, "edges", name)
    for at, line in enumerate(world.say):
        where = f"say[{at}]"
        _named(world, f"{where}.node", line.node)
        if info.point_to_point:
            _demand(line.to is not None, f"{where}.to", "its messages go to one node", "Name the node")
            _named(world, f"{where}.to", line.to)
        else:
            _demand(line.to is None, f"{where}.to", "its messages go to all nodes", "Leave it out")
        _demand(
            line.lifetime_us is None or info.lifetimes,
            f"{where}.lifetime_us",
            f"{world.protocol} has no lifetimes",
            "Leave it out",
        )
        for other in line.after:
            _demand(0 <= other < len(world.say), f"{where}.after", f"no line {other}", "Use places from 0")
    for at, change in enumerate(world.change):
        given = [field for field in change.__struct_fields__ if getattr(change, field) is not None]
        one = "Give link, cut, command, join, leave or restart"
        _demand(len(given) == 1, f"change[{at}]", "it is not one change", one)
        pair = change.link or change.cut or ()
        for name in pair:
            _named(world, f"change[{at}]", name)
        _demand(len(set(pair)) != 1, f"change[{at}]", "a node has no link to itself", "Name two nodes")
        command = change.command
        said = command is None or len(command) > 1
        _demand(said, f"change[{at}].command", "it is too short", 'Give ["n0", "the verb", "names", ...]')
        whom = [change.join, change.leave, change.restart]
        for name in change.command[:1] if change.command else filter(None, whom):
            _named(world, f"change[{at}]", name)
    return world


def _is_static(world: World) -> bool:
    """Whether the protocol's links have to stay (paper 003, Algorithm 1)."""
    info = lookup(world.protocol)
    return info.fifo_links and not info.lives and world.params.get("links") != "dynamic"


def _named(world: World, where: str, name: NodeId | None) -> None:
    _demand(name in world.names, where, f"no node {name!r}", f"Choose from: {', '.join(world.names)}")


def _demand(fine: bool, where: str, reason: str, fix: str) -> None:
    if not fine:
        raise ScenarioError(f"world field {where!r}", reason, fix)
