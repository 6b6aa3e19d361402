"""The same pipeline on a standalone cluster (a master and two workers on loopback) as on this machine."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession

from support import cluster_job
from whence.spark.java import find_java

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

START_SECONDS_MAX = 60
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# prctl(PR_SET_PDEATHSIG, SIGTERM): even if the tests are killed, no JVM stays behind.
DIE_WITH_PARENT = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 15); os.execv(sys.argv[1], sys.argv[1:])"
)


def start(folder: Path, name: str, *arguments: str) -> tuple[subprocess.Popen[bytes], Path]:
    """Start a Spark daemon in a clean folder, with a clean environment."""
    home = Path(pyspark.__file__).parent
    environment = {
        "PATH": os.environ["PATH"],
        "JAVA_HOME": str(find_java()),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS,
    }
    work = folder / name
    work.mkdir()
    log = work / "log"
    command = [str(home / "bin" / "spark-class"), *arguments]
    if sys.platform == "linux":
        command = [sys.executable, "-c", DIE_WITH_PARENT, *command]
    with log.open("wb") as file:
        process = subprocess.Popen(
            command,
            cwd=work,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    return process, log


def await_line(process: subprocess.Popen[bytes], log: Path, line: str) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while line not in log.read_text(errors="replace"):
        assert process.poll() is None, log.read_text(errors="replace")[-2000:]
        assert time.monotonic() < deadline, log.read_text(errors="replace")[-2000:]
        time.sleep(0.1)


def end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()  # a worker ends its executors first
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """The URL of a master with two workers of one core each."""
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    common = ("--host", "127.0.0.1", "--webui-port", "0")
    started = []
    try:
        head = start(tmp_path, "master", f"{deploy}.master.Master", *common, "--port", str(port))
        started.append((*head, "New state: ALIVE"))
        for name in ("worker-1", "worker-2"):  # they try again until the master is up
            worker = (f"{deploy}.worker.Worker", *common, "--cores", "1", "--memory", "1g", master)
            started.append((*start(tmp_path, name, *worker), "Successfully registered"))
        for process, log, line in started:
            await_line(process, log, line)
        yield master
    finally:
        for process, _, _ in reversed(started):
            end(process)


def python_without_whence(folder: Path) -> Path:
    """This Python with its packages, but without the one under test.

    `-S` leaves out the .pth file of an editable installation, so only what Spark ships can be found.
    """
    script = folder / "python-without-whence"
    packages = sysconfig.get_path("purelib")
    script.write_text(
        f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec {sys.executable} -S "$@"\n', encoding="utf-8"
    )
    script.chmod(0o755)
    return script


def run_on(master: str, out: Path, python: Path) -> dict[str, Any]:
    tests = Path(cluster_job.__file__).parents[1]
    environment = os.environ | {"PYTHONPATH": str(tests), "PYSPARK_PYTHON": str(python)}
    for name in ("SPARK_LOCAL_IP", "JAVA_HOME", "SPARK_REMOTE", "SPARK_MASTER"):
        environment.pop(name, None)
    done = subprocess.run(
        [sys.executable, cluster_job.__file__, master, str(out)],
        cwd=out.parent,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stderr == "", "a session says nothing"
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_a_cluster_gives_the_same_rows(cluster: str, spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "cluster-out"
    there = run_on(cluster, out, python_without_whence(tmp_path))
    places = there.pop("places")
    assert there.pop("master") == cluster
    # The package came to the executors in the zip that the session ships, and both took part.
    assert all(".zip/whence/" in path for place in places for path in place[1:]), places
    assert len({place[0] for place in places}) == 2, places
    here = json.loads(json.dumps(cluster_job.pipeline(spark, tmp_path / "local-out")))
    for table in ("statuses", "reports", "summary"):
        assert len(there[table]) == len(here[table]) == 6
        for remote, local in zip(there[table], here[table], strict=True):
            assert remote == local
    assert there.keys() == here.keys()
    # Only the run folders and the sweep's own are there, and nothing half-made.
    assert {path.name.partition("=")[0] for path in out.iterdir()} == {"run", "_failed", "_sweep.lock"}
