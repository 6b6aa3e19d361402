"""Print the tables of docs/explore.md: worlds per protocol, larger worlds, published modes, mutants, theorem.

python tools/explore_table.py worlds vector prc
python tools/explore_table.py --states-max 20000000 larger
python tools/explore_table.py published
python tools/explore_table.py mutants
python tools/explore_table.py theorem
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec.structs import replace

from whence.errors import WhenceError
from whence.explore.search import Options, Report, explore
from whence.explore.world import FaultBudget, Line, World, checked, load

ROOT = Path(__file__).parents[1]
FAULTS = ("losses", "duplicates", "crashes", "amnesias", "cuts", "clock_steps", "joins", "leaves")
KINDS = ("causal", "late", "duplicate", "fifo", "idle", "ended twice", "unexplained")


def variants(world: World) -> Iterator[tuple[str, World]]:
    """The world, and its first three messages with one fault of each kind that the protocol allows."""
    yield "none", world
    for fault in FAULTS:
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


def worlds(states_max: int, only: list[str]) -> None:
    """One line per protocol and fault."""
    print("| world | messages | fault | links | states | depth | CPU s | verdict |")
    print("|---|---|---|---|---|---|---|---|")
    for path in sorted((ROOT / "examples" / "worlds").glob("*.toml")):
        world = load(path)
        spent = any(getattr(world.budget, each) for each in FAULTS)
        if world.change or spent or "published" in world.name or (only and world.name not in only):
            continue
        modes = [world]
        if any(line.lifetime_us for line in world.say):
            modes.append(as_published(world))
        for mode in modes:
            for fault, each in variants(mode):
                row(mode.name, fault, each, states_max)


def row(name: str, fault: str, world: World, states_max: int) -> None:
    """One line. A world with a flaw is explored to its end nevertheless, for the number of its states."""
    first = explore(world, Options(states_max=states_max))
    whole = first
    if first.counterexample is not None:
        whole = explore(world, Options(states_max=states_max, kinds=frozenset()))
    size = f"{whole.states:,}" if whole.complete else f"over {states_max:,}"
    print(
        f"| {name} | {len(world.say)} | {fault} | {world.links} | {size} | {whole.depth} | "
        f"{whole.seconds:.1f} | {verdict(first)} |",
        flush=True,
    )


def larger(states_max: int, only: list[str]) -> None:
    """Worlds beyond three nodes and four messages, and groups that change."""
    print("| world | messages | faults | links | states | depth | CPU s | verdict |")
    print("|---|---|---|---|---|---|---|---|")
    for name, world in _larger():
        if not only or name in only:
            spent = {key: count for key, count in msgspec.structs.asdict(world.budget).items() if count}
            faults = ", ".join(f"{count} {key}" for key, count in spent.items()) or "none"
            row(name, faults, world, states_max)


def _larger() -> Iterator[tuple[str, World]]:
    folder = ROOT / "examples" / "worlds"
    for name in ("matrix", "domains", "vcube", "tdca"):
        world = load(folder / f"{name}.toml")
        say = [replace(world.say[at % 3], node=f"n{at}") for at in range(4)]
        if name == "domains":
            world = replace(world, params={"domains": [["n0", "n1"], ["n1", "n2"], ["n2", "n3"]]})
        yield f"{name}, 4 nodes", replace(world, nodes=4, say=say, budget=FaultBudget())
    alone = {"relay": False}
    for name in ("fifo", "vector", "barrier", "reliable"):
        world = load(folder / f"{name}.toml")
        four = [Line(node=f"n{at}") for at in range(4)]
        yield f"{name}, 4 nodes, origins alone send", replace(world, nodes=4, say=four, params=alone)
    overlay = load(folder / "prc-dynamic.toml")
    yield "prc-dynamic", overlay
    for faults in ({"ticks": 1}, {"cuts": 1}, {"leaves": 1}, {"crashes": 1, "ticks": 1}):
        two = replace(overlay, say=overlay.say[:2], budget=FaultBudget(**faults))
        yield "prc-dynamic", two
    group = load(folder / "vcube-detect.toml")
    for faults in ({"joins": 1}, {"leaves": 1}, {"crashes": 1}, {"amnesias": 1}):
        yield "vcube-detect, 2 nodes", replace(group, budget=FaultBudget(ticks=3, **faults))
    for faults in ({}, {"crashes": 1}, {"leaves": 1}, {"joins": 1}):
        three = replace(group, nodes=3, say=group.say[:1], budget=FaultBudget(ticks=1, **faults))
        yield "vcube-detect, 3 nodes", three
    four = [Line(node=f"n{at}") for at in range(4)]
    yield "vector, 4 nodes", World(protocol="vector", nodes=4, say=four[:2])
    yield "vector, 4 nodes", World(protocol="vector", nodes=4, say=four[:3])
    yield "vector, 4 nodes", World(protocol="vector", nodes=4, say=four)


def published() -> None:
    """The shortest counterexample of each kind in the modes `published`."""
    print("| protocol | script (node, lifetime in us) | kind | moves |")
    print("|---|---|---|---|")
    scripts = (
        ((0, 1000), (1, 100)), ((0, 100), (0, 100), (0, 100)), ((0, 1000), (0, 100)),
        ((0, 1000), (0, 100), (1, 500)),
    )  # fmt: skip
    for protocol in ("barrier", "oppnet", "tdca", "odca"):
        for kind in KINDS:
            found = next((each for script in scripts for each in shortest(protocol, script, kind)), None)
            print(f"| {protocol} | {found or f'| {kind} | not found in these worlds'} |", flush=True)


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


def mutants() -> None:
    """One line per mutant."""
    sys.path.insert(0, str(ROOT / "tests"))
    from explore.suspects import NOT_FOUND, convict, suspects

    print("| mutant | found | moves |")
    print("|---|---|---|")
    for suspect in suspects():
        report = convict(suspect).report
        found = None if report is None else report.counterexample
        if found is None:
            print(f"| {suspect.name} | no: {NOT_FOUND[suspect.name]} | |", flush=True)
        else:
            print(f"| {suspect.name} | {found.finding.kind} | {len(found.moves)} |", flush=True)


def theorem() -> None:
    """One line per number of servers."""
    sys.path.insert(0, str(ROOT / "tests"))
    from explore.theorem import hold

    print("| servers | arrangements without a cycle | with one | scripts of 3 messages | explored | CPU s |")
    print("|---|---|---|---|---|---|")
    for servers in (3, 4, 5):
        held = hold(servers)
        print(
            f"| {servers} | {held.acyclic} | {held.cyclic} | {held.scripts:,} | {held.explored:,} | "
            f"{held.seconds:.0f} |",
            flush=True,
        )


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    tables = {"published": published, "mutants": mutants, "theorem": theorem}
    parser.add_argument("table", choices=("worlds", "larger", *tables))
    parser.add_argument("only", nargs="*", help="worlds of these names")
    parser.add_argument("--states-max", type=int, default=5_000_000)
    given = parser.parse_args()
    if given.table == "worlds":
        worlds(given.states_max, given.only)
    elif given.table == "larger":
        larger(given.states_max, given.only)
    else:
        tables[given.table]()


if __name__ == "__main__":
    main()
