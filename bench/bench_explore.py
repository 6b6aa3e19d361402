"""The explorer: states and moves per second of CPU time, beside the bare cost of a core's step.

Three broadcasts of `vector` with relaying over links in any order, with and without symmetry. The bare step
is restore, receive, check, save: what a move would cost without the table of local steps.
"""

from __future__ import annotations

import time

from whence.explore.machine import Machine
from whence.explore.search import Options, explore
from whence.explore.world import Line, World

WORLD = World(
    protocol="vector", links="any", params={"relay": True}, say=[Line(node=f"n{at}") for at in range(3)]
)
REPEATS = 20_000


def rate(options: Options) -> str:
    """What one search does per second."""
    report = explore(WORLD, options)
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
    """Print three lines."""
    print(f"every state:   {rate(Options(symmetry=False))}")
    print(f"with symmetry: {rate(Options())}")
    step_us = bare_step_us()
    print(f"bare step of a core: {step_us:.1f} us, {1e6 / step_us:,.0f} steps/s")


if __name__ == "__main__":
    main()
