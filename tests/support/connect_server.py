"""A Spark Connect server on loopback, and a client of it in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from support import connect_job
from support.standalone import JAVA_OPTIONS, await_line, end, python_without_whence, start

QUICK = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
_STARTED = "Spark Connect server started at: 127.0.0.1:"


class Server(NamedTuple):
    """A running server."""

    url: str
    process: subprocess.Popen[bytes]
    python: Path  # of its workers: a script


@contextmanager
def connect_server(folder: Path, *, quick: bool = False) -> Iterator[Server]:
    """A server whose Python has the libraries but not the package; `quick` starts fast and runs slowly."""
    python = python_without_whence(folder)
    scratch = folder / "scratch"
    scratch.mkdir()
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(scratch),
        "spark.sql.shuffle.partitions": "1" if quick else "2",
        "spark.ui.enabled": "false",
    }
    if quick:
        settings |= QUICK
    process, log = start(
        folder,
        "connect-server",
        "org.apache.spark.deploy.SparkSubmit",
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        *("--master", "local[1]" if quick else "local[2]"),
        *("--driver-java-options", f"{JAVA_OPTIONS} -Djava.io.tmpdir={scratch}"),
        *(word for pair in settings.items() for word in ("--conf", "=".join(pair))),
        memory="1g",
        python=python,
    )
    try:
        await_line(process, log, _STARTED)
        port = re.findall(re.escape(_STARTED) + r"(\d+)", log.read_text(errors="replace"))[0]
        yield Server(f"sc://127.0.0.1:{port}", process, python)
    finally:
        end(process)


def client(*arguments: object, program: str = connect_job.__file__) -> subprocess.CompletedProcess[str]:
    """Run a Python program, with no Java and no Spark variables in its environment."""
    tests = Path(connect_job.__file__).parents[1]
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SPARK_", "PYSPARK_", "JAVA_"))
    }
    return subprocess.run(
        [sys.executable, program, *map(str, arguments)],
        env=environment | {"PYTHONPATH": f"{tests}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
