"""Where the study finds traces of real contacts. They are not part of this package.

The environment variable WHENCE_DATA names a folder with the files below in it, as their publishers name
them. What is not there is left out of the study, which says so.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

VARIABLE = "WHENCE_DATA"


class DataSet(NamedTuple):
    """One trace."""

    file: str  # inside the folder
    format: str  # as `whence contacts --from` calls it
    about: str


_ONE = "haggle_one_intel/Datasets__haggle-one-intel__haggle-one-intel__haggle-one-intel.tsv"
DATA_SETS = {
    "Infocom 2005": DataSet("haggle_infocom05/contacts.Exp3.dat", "haggle", "41 devices at a conference"),
    "Intel": DataSet(_ONE, "the-one", "9 devices in a laboratory"),
    "WS16": DataSet("gesis_ws16/tij_WS16.dat", "sociopatterns", "138 badges at a winter school"),
    "Cairns": DataSet("gtfs_cairns/cairns_gtfs.zip", "gtfs", "buses of one day, by their timetable"),
}


def find() -> dict[str, Path]:
    """The data sets that are there."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        return {}
    paths = {name: (Path(folder) / each.file).resolve() for name, each in DATA_SETS.items()}
    return {name: path for name, path in paths.items() if path.is_file()}


def skipped(present: set[str]) -> list[str]:
    """Why data sets that are not `present` in the runs are not: sentences."""
    absent = [name for name in DATA_SETS if name not in present]
    if not absent:
        return []
    folder = os.environ.get(VARIABLE)
    reason = f"{VARIABLE} is not set" if not folder else f"their files are not in {folder} ({VARIABLE})"
    return [
        f"Real traces left out: {', '.join(absent)}: {reason}. They are not part of Whence; "
        "docs/studies-oppnet.md says which files belong into that folder."
    ]
