"""Real data sets. They are not part of the repository: tests that need one are skipped where it is not.

WHENCE_DATA names their folder, as it does for the studies (docs/studies-oppnet.md).
"""

from __future__ import annotations

import os
from pathlib import Path

from whence.studies.oppnet.data import VARIABLE

DATA = Path(os.environ.get(VARIABLE, "/work/shared/data"))
LOGS = DATA / "shiviz_logs"
INFOCOM = "haggle_infocom05/contacts.Exp3.dat"
INTEL, LABORATORY = (
    f"haggle_one_intel/Datasets__haggle-one-{name}__haggle-one-{name}__haggle-one-{name}.tsv"
    for name in ("intel", "computer-lab")
)
