"""`whence.order` stands alone: it needs none of the packages that the rest of the laboratory needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from whence import order
from whence.errors import MisuseError

PAGE = (Path(__file__).parents[2] / "docs" / "order.md").read_text()

ALONE = """
import sys

for blocked in ("pyspark", "numpy", "pyarrow", "pandas", "numba", "asyncio", "socket", "random"):
    sys.modules[blocked] = None  # an import of it now fails

from whence.order import Arrival, CausalOrder

order = CausalOrder("drop", remember_us=1000)
endings = order.offer(Arrival("answer", 0, 100, {"question": None}, "answer"))
assert endings == [] and order.waiting == 1, endings
order = CausalOrder("drop", remember_us=1000, saved=order.save())
endings = order.offer(Arrival("question", 1, 100, {}, "question"))
assert [end.payload for end in endings] == ["question", "answer"], endings
order.offer(Arrival("thanks", 2, 100, {"lost": None}, "thanks"))
assert [end.outcome for end in order.advance(200)] == ["predecessor expired"]
assert order.waiting == 0
print(sorted(name for name in sys.modules if name.startswith("whence")))
"""


def test_it_runs_without_spark_numpy_and_pyarrow() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ALONE], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "['whence', 'whence.errors', 'whence.order']"


def test_every_public_name_is_on_the_page() -> None:
    absent = [name for name in order.__all__ if f"`{name}" not in PAGE]
    assert absent == []


def test_the_page_names_every_method() -> None:
    methods = {name for name in vars(order.CausalOrder) if not name.startswith("_")}
    inner = {"check", "now_us", "horizon_us", "forgotten_us"}  # for tests, and for Spark's timers
    assert [name for name in sorted(methods - inner) if f"`{name}" not in PAGE] == []


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(MisuseError, match=r"policy 'keep': no such policy\. Choose from: emit, drop"):
        order.CausalOrder("keep")  # type: ignore[arg-type]
