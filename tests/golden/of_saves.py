"""Goldens of saved states: what every core of every scripted talk saves at 20 steps of it."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import msgspec

from golden.talks import TALKS, Run, Talk

POINTS = 20
WHOLE = 9  # of the points: there every state is kept as it is


def saved(talk: Talk) -> list[dict[str, bytes]]:
    """The states of all cores as bytes at 20 points, which divide the talk evenly."""
    steps = Run(talk).run().steps
    wanted = {steps * (point + 1) // POINTS for point in range(POINTS)}
    found: list[dict[str, bytes]] = []

    def look(run: Run) -> None:
        if run.steps in wanted:
            found.append({name: msgspec.msgpack.encode(core.save()) for name, core in run.cores.items()})

    Run(talk, look).run()
    return found


def in_short(states: list[dict[str, bytes]]) -> list[Any]:
    """Length and hash of every state; at one point the states themselves."""
    return [
        {name: [len(state), sha256(state).hexdigest()] for name, state in point.items()}
        if at != WHOLE
        else {name: state.hex() for name, state in point.items()}
        for at, point in enumerate(states)
    ]


GOLDENS = {"saves": lambda: {name: in_short(saved(talk)) for name, talk in TALKS.items()}}
