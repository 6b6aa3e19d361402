"""Print the tables of docs/explore.md: worlds per protocol, larger worlds, published modes, mutants, theorem.

python tools/explore_table.py worlds --only vector prc
python tools/explore_table.py published theorem
python tools/explore_table.py --write             # all of them, into docs/explore.md

Every row is kept in build/explore-table/ with a digest of the source that decides it: the explorer, its
protocol, the mutant. After a stop, or from several processes each with tables of its own, the same command
takes the rows that this source has made and works out the others.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from hashlib import blake2b
from pathlib import Path
from subprocess import run
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from whence.errors import WhenceError
from whence.explore.search import Options, Report, explore
from whence.explore.world import FaultBudget, Line, World, checked, load
from whence.protocols.registry import lookup

if TYPE_CHECKING:
    from explore.suspects import Suspect


class Row(NamedTuple):
    """One line of a table."""

    key: str  # what it is of
    modules: tuple[str, ...]  # those that decide what it says, besides the explorer
    make: Callable[[], str]  # its line; empty: none
    why_not: str = ""  # of a mutant that is not found: the reason


ROOT = Path(__file__).parents[1]
KEPT = ROOT / "build" / "explore-table"
PLACES = (ROOT / "src", ROOT / "tests")  # where modules are
EXPLORER = "whence.explore.search"
# They import what no row needs (the package, the worlds of other tests), or what only some rows do.
NOT_FOLLOWED = ("whence", "whence.protocols.registry", "support.prc_worlds")
PAGE = ROOT / "docs" / "explore.md"
sys.path.insert(0, str(ROOT / "tests"))  # the mutants, and the theorem
FAULTS = ("losses", "duplicates", "crashes", "amnesias", "cuts", "clock_steps", "joins", "leaves")
WITH_TIMERS = ("log", "vcube-detect", "prc-dynamic")  # whose timers count without lifetimes, too
FOUR = (
    "matrix", "domains", "vcube", "vector", "fifo", "reliable", "barrier", "preventive", "link-memory", "prc",
    "tdca", "odca", "log", "barrier-lifetimes", "oppnet",
)  # fmt: skip
KINDS = ("causal", "late", "duplicate", "fifo", "idle", "ended twice", "unexplained")


def variants(world: World) -> Iterator[tuple[str, World]]:
    """The world, and its first three messages with one fault of each kind that the protocol allows."""
    yield "none", world
    for fault in (*FAULTS, "ticks") if world.name in WITH_TIMERS else FAULTS:
        faulty = replace(world, say=world.say[:3], budget=replace(world.budget, **{fault: 1}))
        try:
            yield fault, checked(faulty)
        except WhenceError:
            continue


def as_published(world: World) -> World:
    """The same in the mode of the printed code; paper 001's has one lifetime for all messages."""
    params = {**world.params, "mode": "published"}
    if world.protocol in ("tdca", "odca"):
        return replace(world, name=f"{world.name}, published", params=params)
    name, say = world.name.removesuffix("-lifetimes"), [replace(each, lifetime_us=None) for each in world.say]
    return replace(world, name=f"{name}, published", params={**params, "lifetime_us": 1000}, say=say)


def verdict(report: Report) -> str:
    """In a few words."""
    found = report.counterexample
    if found is not None:
        return f"{found.finding.kind}, {len(found.moves)} moves"
    return "clean" if report.complete else "not complete"


def worlds(states_max: int, only: list[str]) -> Iterator[Row]:
    """One row per protocol and fault."""
    for world in (*of_examples(), *as_live()):
        if only and world.name not in only:
            continue
        modes = [world]
        if any(line.lifetime_us for line in world.say):
            modes.append(as_published(world))
        for mode in modes:
            for fault, each in variants(mode):
                yield row_of(mode.name, fault, each, states_max)


def of_examples() -> Iterator[World]:
    """The examples of three nodes, four messages and no fault but a tick."""
    for path in sorted((ROOT / "examples" / "worlds").glob("*.toml")):
        world = load(path)
        spent = any(getattr(world.budget, each) for each in FAULTS)
        if not (world.change or spent or world.nodes != 3 or "published" in world.name):
            yield world


def as_live() -> Iterator[World]:
    """The same for protocols that live nodes run with other parameters than the simulator's."""
    folder, four = ROOT / "examples" / "worlds", [Line(node=f"n{at % 3}") for at in range(4)]
    for protocol in ("fifo", "vector"):
        yield World(name=f"{protocol}, live", protocol=protocol, params={"relay": "need"}, say=four)
    yield replace(load(folder / "prc-dynamic.toml"), say=four)
    yield replace(load(folder / "vcube-detect.toml"), nodes=3, say=four, budget=FaultBudget())


def row_of(name: str, fault: str, world: World, states_max: int) -> Row:
    """One row, known by its world."""
    key = msgspec.json.encode((name, states_max, world)).decode()
    return Row(key, protocol_modules(world.protocol), partial(explored, name, fault, world, states_max))


def explored(name: str, fault: str, world: World, states_max: int) -> str:
    """One line. A world with a flaw is explored to its end nevertheless, for the number of its states."""
    first = explore(world, Options(states_max=states_max))
    whole = first
    if first.counterexample is not None:
        whole = explore(world, Options(states_max=states_max, kinds=frozenset()))
    size = f"{whole.states:,}" if whole.complete else f"over {states_max:,}"
    return (
        f"| {name} | {len(world.say)} | {fault} | {world.links} | {size} | {whole.depth} | "
        f"{whole.seconds:.1f} | {verdict(first)} |"
    )


def larger(states_max: int, only: list[str]) -> Iterator[Row]:
    """Worlds beyond three nodes and four messages, and groups that change."""
    for name, world in _larger():
        if not only or name in only:
            spent = {key: count for key, count in msgspec.structs.asdict(world.budget).items() if count}
            faults = ", ".join(f"{count} {key}" for key, count in spent.items()) or "none"
            yield row_of(name, faults, world, states_max)


def _larger() -> Iterator[tuple[str, World]]:
    folder = ROOT / "examples" / "worlds"
    for name in FOUR:
        world = load(folder / f"{name}.toml")
        four = [replace(world.say[at % 3], node=f"n{at}") for at in range(4)]
        chain = [(f"n{at}", f"n{at + 1}") for at in range(3)]
        if name == "domains":
            world = replace(world, params={"domains": [list(pair) for pair in chain]})
        if world.edges is not None:
            world = replace(world, edges=chain)
        yield f"{name}, 4 nodes", replace(world, nodes=4, say=four)
    five = [Line(node=f"n{at % 4}") for at in range(5)]
    yield "vector, 4 nodes", World(protocol="vector", nodes=4, say=five)
    overlay = load(folder / "prc-dynamic.toml")
    two = replace(overlay, say=overlay.say[:2], budget=FaultBudget(crashes=1, ticks=1))
    yield "prc-dynamic", two
    group = load(folder / "vcube-detect.toml")
    for faults in ({"joins": 1}, {"leaves": 1}, {"crashes": 1}, {"amnesias": 1}):
        yield "vcube-detect, 2 nodes", replace(group, budget=FaultBudget(ticks=3, **faults))
    for faults in ({}, {"crashes": 1}, {"leaves": 1}, {"joins": 1}):
        three = replace(group, nodes=3, say=group.say[:1], budget=FaultBudget(ticks=1, **faults))
        yield "vcube-detect, 3 nodes", three
    members = load(folder / "log-stable.toml")
    yield "log-stable", members
    for faults in ({"retirements": 1}, {"cuts": 1}, {"crashes": 1}, {"amnesias": 1}, {"leaves": 1}):
        one = replace(members, say=members.say[:1], budget=replace(members.budget, **faults))
        yield "log-stable", one
    three = replace(members, nodes=3, say=members.say[:1], settle_ticks=8)
    yield "log-stable, 3 nodes", three


def published() -> Iterator[Row]:
    """The shortest counterexample of each kind in the modes `published`; no line where there is none."""
    scripts = (
        ((0, 1000), (1, 100)), ((0, 100), (0, 100), (0, 100)), ((0, 1000), (0, 100)),
        ((0, 1000), (0, 100), (1, 500)),
    )  # fmt: skip
    for protocol in ("barrier", "oppnet", "tdca", "odca"):
        for kind in KINDS:
            make = partial(first_shown, protocol, scripts, kind)
            yield Row(f"{protocol} {kind} {scripts}", protocol_modules(protocol), make)


def first_shown(protocol: str, scripts: tuple[tuple[tuple[int, int], ...], ...], kind: str) -> str:
    """The line of the first script that shows a finding of this kind; nothing, if none does."""
    found = next((each for script in scripts for each in shortest(protocol, script, kind)), None)
    return "" if found is None else f"| {protocol} | {found} |"


def shortest(protocol: str, script: tuple[tuple[int, int], ...], kind: str) -> Iterator[str]:
    """The columns of a finding, if there is one. Paper 001's codes have one lifetime for all messages."""
    one_for_all = protocol in ("barrier", "oppnet")
    params: dict[str, object] = {"mode": "published"}
    if one_for_all:
        params["lifetime_us"] = script[-1][1]
    say = [Line(node=f"n{node}", lifetime_us=None if one_for_all else life_us) for node, life_us in script]
    world = World(
        protocol=protocol, links="any", params=params, say=say, budget=FaultBudget(ticks=2, duplicates=1)
    )
    report = explore(world, Options(kinds=frozenset({kind}), states_max=20_000))
    if report.counterexample is not None:
        said = ", ".join(f"n{node} {script[-1][1] if one_for_all else life_us}" for node, life_us in script)
        yield f"{said} | {kind} | {len(report.counterexample.moves)}"


def mutants() -> Iterator[Row]:
    """One row per mutant."""
    from explore.suspects import NOT_FOUND, STATES_MAX, convict, suspects

    for suspect in suspects():
        about = (suspect.name, suspect.worlds, STATES_MAX, inspect.getsource(convict))
        modules = (*protocol_modules(suspect.worlds[0].protocol), suspect.module)
        why_not = NOT_FOUND.get(suspect.name, "")
        yield Row(msgspec.json.encode(about).decode(), modules, partial(convicted, suspect), why_not)


def convicted(suspect: Suspect) -> str:
    """What gives a mutant away, if anything does."""
    from explore.suspects import convict

    report = convict(suspect).report
    found = None if report is None else report.counterexample
    if found is None:
        return f"| {suspect.name} | no | |"
    return f"| {suspect.name} | {found.finding.kind} | {len(found.moves)} |"


THEOREM = ("explore.theorem", "whence.protocols.domains.domains")


def theorem() -> Iterator[Row]:
    """One row per number of servers."""
    for servers in (3, 4, 5):
        yield Row(str(servers), THEOREM, partial(held_to, servers))


def held_to(servers: int) -> str:
    """How often the theorem was held to; each arrangement is kept, since there are many."""
    from explore.theorem import Held, arrangements, hold_one, summed

    parts = []
    for groups in arrangements(servers):
        held = partial(hold_one, groups, servers)
        one = Row(str(groups), THEOREM, lambda held=held: msgspec.json.encode(held()).decode())
        parts.append(msgspec.json.decode(worked_out("theorem", one), type=Held))
    held = summed(parts)
    return (
        f"| {servers} | {held.acyclic} | {held.cyclic} | {held.scripts:,} | {held.explored:,} | "
        f"{held.seconds:.0f} |"
    )


HEADS = {
    "worlds": "world | messages | fault | links | states | depth | CPU s | verdict",
    "larger": "world | messages | faults | links | states | depth | CPU s | verdict",
    "published": "protocol | script (node, lifetime in us) | kind | moves",
    "mutants": "mutant | found | moves",
    "theorem": "servers | arrangements without a cycle | with one | scripts of 3 messages | states | CPU s",
}


def protocol_modules(name: str) -> tuple[str, ...]:
    """The modules of the package that has a protocol."""
    package = lookup(name).packet_type.__module__.rpartition(".")[0]
    return tuple(f"{package}.{path.stem}" for path in sorted(file_of(package).parent.glob("*.py")))


def file_of(module: str) -> Path:
    """Where a module is, if it is ours; the last of the places where it might be, if not."""
    paths = [place / module.replace(".", "/") for place in PLACES]
    every = [path for each in paths for path in (each.with_suffix(".py"), each / "__init__.py")]
    return next((path for path in every if path.exists()), every[-1])


@cache
def parsed(module: str) -> ast.Module:
    """The code of a module."""
    return ast.parse(file_of(module).read_bytes())


@cache
def imported(module: str) -> frozenset[str]:
    """Our modules that a module imports, wherever it does."""
    found: set[str] = set()
    for node in ast.walk(parsed(module)):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
    return frozenset(each for each in found if file_of(each).exists())


@cache
def source(modules: tuple[str, ...]) -> str:
    """A digest of what decides a row of these modules: they, the explorer, and what all of them import."""
    found = [EXPLORER, *modules]
    for module in found:
        if module not in NOT_FOLLOWED:
            found += sorted(imported(module) - set(found))
    digest = blake2b(digest_size=16)
    for module in sorted(set(found) - {"whence"}):
        digest.update(ast.dump(parsed(module)).encode())  # without comments
    return digest.hexdigest()


def kept(table: str) -> dict[tuple[str, str], str]:
    """The lines of a table that were worked out, by what made them and what they are of."""
    path = KEPT / f"{table}.jsonl"
    lines = path.read_bytes().splitlines() if path.exists() else []
    rows = [msgspec.json.decode(line, type=tuple[str, str, str]) for line in lines]
    return {(made_by, key): line for made_by, key, line in rows}


def lines_of(table: str, rows: Iterator[Row]) -> Iterator[str]:
    """The lines of a table, those that are not kept worked out and kept."""
    columns = HEADS[table].split(" | ")
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    for row in rows:
        line = worked_out(table, row)
        if line:
            yield line.replace("| no |", f"| no: {row.why_not} |")


def worked_out(table: str, row: Row) -> str:
    """What is kept of a row, or else made and kept."""
    made_by = source(row.modules)
    line = kept(table).get((made_by, row.key))
    if line is None:
        line = row.make()
        KEPT.mkdir(parents=True, exist_ok=True)
        with (KEPT / f"{table}.jsonl").open("ab") as file:
            file.write(msgspec.json.encode((made_by, row.key, line)) + b"\n")
    return line


def commit() -> str:
    """What the tree is, before a table is written into it."""
    words = ["git", "describe", "--always", "--dirty"]
    return run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def write(name: str, head: str, lines: list[str]) -> None:
    """Put a table where the document has it, with the commit that made it."""
    before, begin, rest = PAGE.read_text(encoding="utf-8").partition(f"<!-- begin {name} -->\n")
    _, end, after = rest.partition(f"<!-- end {name} -->")
    made = f"By `python tools/explore_table.py {name}` on {time.strftime('%Y-%m-%d')} at {head}:"
    table = "\n".join(lines)
    PAGE.write_text(f"{before}{begin}{made}\n\n{table}\n{end}{after}", encoding="utf-8")


def main() -> None:
    """Print tables."""
    tables: dict[str, Callable[[], Iterator[Row]]] = {
        "worlds": lambda: worlds(given.states_max, given.only),
        "larger": lambda: larger(given.states_max // 10, given.only),
        "published": published,
        "mutants": mutants,
        "theorem": theorem,
    }
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"of {', '.join(tables)}; all by default")
    parser.add_argument("--only", nargs="*", default=[], help="worlds of these names")
    parser.add_argument(
        "--states-max", type=int, default=20_000_000, help="of a world; of a larger one a tenth"
    )
    parser.add_argument("--write", action="store_true", help="put them into docs/explore.md, too")
    given = parser.parse_args()
    head = commit()
    for name in given.tables or tables:
        lines = []
        for line in lines_of(name, tables[name]()):
            print(line, flush=True)
            lines.append(line)
        if given.write:
            write(name, head, lines)


if __name__ == "__main__":
    main()
