"""Keep what a study measured as what later runs are compared with: `ours.toml` beside its claims.

    python tools/ours.py deadline --scale demo --seeds 10 --where part=main,map,printed
    python tools/ours.py vcube --scale paper --seeds 10 --where profile=R0 part=main
    python tools/ours.py oppnet --where part=main plan=buses lifetime=120,60,40,10 --without I max min

Runs the points of a scale in this process, with seeds from 1001 on, which no scale has: a regression is never
judged by the runs that it was recorded with. Kept is every mean over five runs or more that a claim of the
paper or a regression is judged by (whence.studies.verdicts), but for claims whose id has a word that is given
`--without`: a run's greatest and least have tails, and their deviation over ten runs says little of the next.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from support.tiny_study import carried_out  # noqa: E402 - of the tests, which are beside
from whence.sim.model import Contacts, Scenario  # noqa: E402
from whence.studies import registry  # noqa: E402
from whence.studies.base import Point, Study  # noqa: E402
from whence.studies.claims import OURS_FILE, Ours  # noqa: E402
from whence.studies.environment import git_commit  # noqa: E402
from whence.studies.oppnet.grid import size_of  # noqa: E402
from whence.studies.results import Results  # noqa: E402
from whence.studies.verdicts import judge, recordable  # noqa: E402

STUDIES = ROOT / "src" / "whence" / "studies"
FIRST_SEED = 1001


def with_other_seeds(study: Study, scale: str, wanted: dict[str, set[str]], seeds: int) -> list[Point]:
    """The points of a scale that are wanted, each with that many seeds that no scale has."""
    places: dict[tuple[object, ...], Point] = {}
    for point in study.grid(scale):
        labels = dict(point.labels)
        labels.pop(study.repetition)
        if all(str(labels[name]) in values for name, values in wanted.items()):
            places[tuple(labels.items())] = point  # the last: the first one may record a trace
    return [
        replace(
            point,
            labels={**point.labels, study.repetition: seed},
            scenario=reseeded(point.scenario, seed),
        )
        for point in places.values()
        for seed in range(FIRST_SEED, FIRST_SEED + seeds)
    ]


def reseeded(scenario: Scenario, seed: int) -> Scenario:
    """The same run with another seed: another plan of contacts has other nodes, and another end.

    Not for clocks that are wrong, which are drawn by the seed too.
    """
    made = msgspec.structs.replace(scenario, seed=seed)
    topology = scenario.topology
    if not isinstance(topology, Contacts) or topology.generator is None:
        return made
    nodes, stop_us = size_of(topology, seed)
    stop = msgspec.structs.replace(scenario.stop, duration_us=stop_us)
    return msgspec.structs.replace(made, nodes=nodes, stop=stop)


def kept(study: Study, results: Results, without: Iterable[str] = ()) -> dict[str, Ours]:
    """What the runs say of every claim, whatever was recorded before, but for those with such a word."""
    whole = replace(results, derived=tuple(study.derived(results)))
    found = recordable(judge((replace(claim, ours=None) for claim in study.claims), whole))
    return {name: one for name, one in found.items() if not set(without) & set(name.split("-"))}


def text(found: dict[str, Ours], seeds: int, command: str) -> str:
    """The file."""
    lines = [f"# `python tools/ours.py {command}`, commit {git_commit()}\n\n"]
    for name, one in sorted(found.items()):
        lines.append(
            f'"{name}" = {{ mean = {one.mean:.6g}, deviation = {one.deviation:.3g}, runs = {one.runs}, '
            f"seeds = [{FIRST_SEED}, {FIRST_SEED + seeds - 1}] }}\n"
        )
    return "".join(lines)


def main(given: Iterable[str] | None = None) -> int:
    """Run and write."""
    parser = argparse.ArgumentParser(description="Keep what a study measures for its regressions.")
    parser.add_argument("study", choices=registry.names())
    parser.add_argument("--scale", default="demo")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument(
        "--where", nargs="*", default=[], metavar="LABEL=VALUE[,VALUE]", help="only these points"
    )
    parser.add_argument("--without", nargs="*", default=[], metavar="WORD", help="no claim with it in its id")
    asked = parser.parse_args(given)
    wanted = {name: set(values.split(",")) for name, values in (each.split("=") for each in asked.where)}
    study = registry.lookup(asked.study)
    points = with_other_seeds(study, asked.scale, wanted, asked.seeds)
    if study.preparation is not None:
        study.preparation()
    with tempfile.TemporaryDirectory() as folder:
        results = carried_out(study, points, Path(folder))
    path = STUDIES / study.name / OURS_FILE
    command = f"{asked.study} --scale {asked.scale} --seeds {asked.seeds}"
    command += f" --where {' '.join(asked.where)}" if asked.where else ""
    command += f" --without {' '.join(asked.without)}" if asked.without else ""
    path.write_text(text(kept(study, results, asked.without), asked.seeds, command), encoding="utf-8")
    print(f"{path}: written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
