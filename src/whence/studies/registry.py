"""Every study by name. A study is imported when it is asked for; to add one, add a line."""

from __future__ import annotations

import difflib
from importlib import import_module

from whence import plugins
from whence.errors import MisuseError
from whence.studies.base import Study

# Each with its line in `whence study --help`; the study of a name is STUDY in `whence.studies.<name>.grid`.
STUDIES = {
    "vcube": "Paper 000, VCube: aggregation on a hypercube, every table and figure.",
    "oppnet": "Paper 001, causal barriers: buses, walkers and real contacts, every table and figure.",
    "deadline": "Paper 002, TDCA and ODCA: Figure 9 under two readings, bounds, improvements and flaws.",
    "prc": (
        "Paper 003, PRC-broadcast: Figures 5a and 5b, Table 1 measured, the frontier to vector and barrier."
    ),
    "domains": (
        "Paper 004, causality domains: what clocks cost, times on real servers, cycles, planned domains."
    ),
}


class UnknownStudyError(MisuseError):
    """There is no study, or no scale of it, of that name."""


def names() -> list[str]:
    """All names, in the order in which a reader should meet them; those of plug-ins last."""
    return list(lines())


def lines() -> dict[str, str]:
    """Every study with its line in `whence study --help`."""
    return STUDIES | {name: study.title for name, study in _plugged().items()}


def _plugged() -> dict[str, Study]:
    return plugins.declared("STUDIES", Study, STUDIES)


def lookup(name: str) -> Study:
    """The study of that name."""
    if name not in STUDIES:
        plugged = _plugged().get(name)
        if plugged is not None:
            return plugged
        raise UnknownStudyError(f"study {name!r}", "there is none of that name", _choose(name, names()))
    found: Study = import_module(f"whence.studies.{name}.grid").STUDY
    return found


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
