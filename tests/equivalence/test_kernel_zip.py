"""A cluster's executors import the package from a zip: kernels must compile and run there too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from whence.kernels.vcube import kernel as vcube
from whence.sim.files import from_dict
from whence.spark.shipping import package_zip

SCENARIO = {
    "nodes": 16,
    "protocol": "vcube",
    "workloads": [{"kind": "window", "count": 1, "stop_us": 500_000}],
    "stop": {"duration_us": 500_000},
}
PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import whence
assert whence.__file__.startswith(sys.argv[1]), whence.__file__
import pytest

from whence.kernels.vcube import kernel as vcube
from whence.sim.files import from_dict
print(vcube.run(from_dict(%r)).detail.measures.packets)
"""


@pytest.mark.slow  # it compiles the kernel anew, some 20 CPU seconds
def test_the_kernel_runs_from_a_zip(tmp_path: Path) -> None:
    shipped = package_zip(tmp_path)
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM % SCENARIO, str(shipped)],
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) == vcube.run(from_dict(SCENARIO)).detail.measures.packets
