"""Print the tables of docs/explore.md: worlds per protocol, published modes, mutants of the zoo.

python tools/explore_table.py --states-max 300000 worlds vector prc
python tools/explore_table.py published
python tools/explore_table.py mutants
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from whence.errors import WhenceError
from whence.explore.search import Options, Report, explore
from whence.explore.world import FaultBudget, Line, World, checked, load

ROOT = Path(__file__).parents[1]
FAULTS = ("losses", "duplicates", "crashes", "amnesias", "cuts", "clock_steps")
KINDS = ("causal", "late", "duplicate", "fifo", "idle")


def variants(world: World) -> Iterator[tuple[str, World]]:
    """The world, and its first three messages with one fault of each kind that the protocol allows."""
    yield "none", world
    for fault in FAULTS:
        budget = FaultBudget(**{fault: 1})
        faulty = replace(world, say=world.say[:3], budget=budget)
        try:
            yield fault, checked(faulty)
        except WhenceError:
            continue


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
        if world.change or any(getattr(world.budget, each) for each in (*FAULTS, "ticks")):
            continue
        if only and world.name not in only:
            continue
        for fault, each in variants(world):
            report = explore(each, Options(states_max=states_max))
            print(
                f"| {world.name} | {len(each.say)} | {fault} | {each.links} | {report.states:,} | "
                f"{report.depth} | {report.seconds:.1f} | {verdict(report)} |",
                flush=True,
            )


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


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("table", choices=("worlds", "published", "mutants"))
    parser.add_argument("only", nargs="*", help="worlds of these names")
    parser.add_argument("--states-max", type=int, default=1_000_000)
    given = parser.parse_args()
    if given.table == "worlds":
        worlds(given.states_max, given.only)
    elif given.table == "published":
        published()
    else:
        mutants()


if __name__ == "__main__":
    main()
