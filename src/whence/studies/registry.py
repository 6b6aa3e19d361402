"""Every study by name. A study is imported when it is asked for; to add one, add a line."""

from __future__ import annotations

import difflib
from importlib import import_module
from typing import NamedTuple

from whence.errors import MisuseError
from whence.studies.base import Study


class Entry(NamedTuple):
    """Where a study is, and its line in `whence study --help`."""

    where: str  # module:class
    help: str


STUDIES = {
    "demo": Entry(
        "whence.studies.demo.grid:Demo", "FIFO against vector clocks: what order costs, what it saves."
    ),
    "vcube": Entry(
        "whence.studies.vcube.grid:VCubeStudy",
        "Paper 000, VCube: aggregation on a hypercube, every table and figure.",
    ),
    "oppnet": Entry(
        "whence.studies.oppnet.grid:OppnetStudy",
        "Paper 001, causal barriers: buses, walkers and real contacts, every table and figure.",
    ),
    "deadline": Entry(
        "whence.studies.deadline.grid:DeadlineStudy",
        "Paper 002, TDCA and ODCA: Figure 9 under two readings, bounds, improvements and flaws.",
    ),
    "prc": Entry(
        "whence.studies.prc.grid:PrcStudy",
        "Paper 003, PRC-broadcast: Figures 5a and 5b, Table 1 measured, the frontier to vector and barrier.",
    ),
    "domains": Entry(
        "whence.studies.domains.grid:DomainsStudy",
        "Paper 004, causality domains: what clocks cost, times on real servers, cycles, planned domains.",
    ),
}


class UnknownStudyError(MisuseError):
    """There is no study, or no scale of it, of that name."""


def names() -> list[str]:
    """All names, in the order in which a reader should meet them."""
    return list(STUDIES)


def lookup(name: str) -> Study:
    """The study of that name."""
    entry = STUDIES.get(name)
    if entry is None:
        raise UnknownStudyError(f"study {name!r}", "there is none of that name", _choose(name, names()))
    module, _, attribute = entry.where.partition(":")
    made: Study = getattr(import_module(module), attribute)()
    return made


def check_scale(study: Study, scale: str | None) -> str:
    """The scale to run: the study's first when none is named."""
    if scale is None:
        return next(iter(study.scales))
    if scale not in study.scales:
        raise UnknownStudyError(
            f"scale {scale!r} of study {study.name!r}",
            "there is none of that name",
            _choose(scale, list(study.scales)),
        )
    return scale


def _choose(given: str, known: list[str]) -> str:
    near = difflib.get_close_matches(given, known, n=1)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    return f"{hint}Choose from: {', '.join(known)}"
