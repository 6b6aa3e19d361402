"""The explorer: states and moves per second of CPU time, beside the bare cost of a core's step.

Three broadcasts of `vector` with relaying over links in any order, with and without symmetry; four of
`link_memory` over FIFO links, with both reductions; with `--large` three of `vector` among four nodes.
The bare step is restore, receive, check, save: what a move would cost without the table of local steps.
"""

from __future__ import annotations

import sys
import time

from whence.explore.machine import Machine
from whence.explore.search import Options, explore
from whence.explore.world import Line, World

WORLD = World(
    protocol="vector", links="any", params={"relay": True}, say=[Line(node=f"n{at}") for at in range(3)]
)
REPEATS = 20_000


LINKS = World(protocol="link_memory", say=[Line(node=f"n{at % 3}") for at in range(4)])
LARGE = World(protocol="vector", nodes=4, say=[Line(node=f"n{at}") for at in range(3)])


def rate(options: Options, world: World = WORLD) -> str:
    """What one search does per second."""
    report = explore(world, options)
    return (
        f"{report.states:,} states, {report.states / report.seconds:,.0f} states/s, "
        f"{report.steps / report.seconds:,.0f} moves/s"
    )


def bare_step_us() -> float:
    """The cost of one receipt with its restore, check and save."""
    machine = Machine(WORLD)
    local = machine.step(0, machine.fresh(0), ("up", 1, 0)).after
    said = machine.step(1, machine.step(1, machine.fresh(1), ("up", 0, 0)).after, ("say", 1, 0))
    what = ("receive", 1, said.sends[0][1], 0)
    began = time.process_time()
    for _ in range(REPEATS):
        machine.steps.clear()
        machine.step(0, local, what)
    return (time.process_time() - began) / REPEATS * 1e6


def main() -> None:
    """Print a line each."""
    print(f"every state:     {rate(Options(symmetry=False, stale=False))}")
    print(f"with symmetry:   {rate(Options(stale=False))}")
    print(f"with both:       {rate(Options(), LINKS)}")
    if "--large" in sys.argv:
        print(f"with both, large: {rate(Options(), LARGE)}")
    step_us = bare_step_us()
    print(f"bare step of a core: {step_us:.1f} us, {1e6 / step_us:,.0f} steps/s")


if __name__ == "__main__":
    main()
