"""A standalone Spark cluster on loopback, and a job on it in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyspark

from spark import cluster_job
from support.quick_java import QUICK_JAVA
from whence.spark.java import find_java

START_SECONDS_MAX = 60
# Small queries are over before their code is compiled.
INTERPRETED = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
# prctl(PR_SET_PDEATHSIG, SIGTERM): even if the tests are killed, no JVM stays behind.
DIE_WITH_PARENT = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 15); os.execv(sys.argv[1], sys.argv[1:])"
)


def start(
    folder: Path, name: str, *arguments: str, memory: str = "256m", python: Path | str = sys.executable
) -> tuple[subprocess.Popen[bytes], Path]:
    """Start a Spark daemon in a clean folder, with a clean environment."""
    home = Path(pyspark.__file__).parent
    environment = {
        "PATH": os.environ["PATH"],
        "JAVA_HOME": str(find_java()),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": memory,
        "PYSPARK_PYTHON": str(python),
        "SPARK_DAEMON_JAVA_OPTS": QUICK_JAVA,
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


class Cluster(NamedTuple):
    """A running cluster."""

    master: str  # its URL
    workers: list[subprocess.Popen[bytes]]


def kill(worker: subprocess.Popen[bytes]) -> None:
    """A machine of the cluster is gone: the worker and its executors, without a word."""
    os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()


@contextmanager
def standalone(folder: Path) -> Iterator[Cluster]:
    """A master with two workers of one core each."""
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    common = ("--host", "127.0.0.1", "--webui-port", "0")
    started = []
    try:
        head = start(folder, "master", f"{deploy}.master.Master", *common, "--port", str(port))
        started.append((*head, "New state: ALIVE"))
        for name in ("worker-1", "worker-2"):  # they try again until the master is up
            worker = (f"{deploy}.worker.Worker", *common, "--cores", "1", "--memory", "1g", master)
            started.append((*start(folder, name, *worker), "Successfully registered"))
        for process, log, line in started:
            await_line(process, log, line)
        yield Cluster(master, [process for process, _, _ in started[1:]])
    finally:
        for process, _, _ in reversed(started):
            end(process)


def python_without_whence(folder: Path, **environment: str) -> Path:
    """This Python with its packages, but without the one under test.

    `-S` leaves out the .pth file of an editable installation, so only what Spark ships can be found.
    """
    script = folder / "python-without-whence"
    packages = Path(pyspark.__file__).parents[1]
    variables = " ".join(f"{name}={value}" for name, value in environment.items())
    script.write_text(
        f'#!/bin/sh\n{variables} PYTHONPATH="$PYTHONPATH:{packages}" exec {sys.executable} -S "$@"\n',
        encoding="utf-8",
    )
    script.chmod(0o755)
    return script


def run_on(
    master: str, out: Path, python: Path, *, seeds: int = 3, meanwhile: Callable[[], None] | None = None
) -> dict[str, Any]:
    """Run the job of `cluster_job` there; `meanwhile` is called once it is under way."""
    tests = Path(cluster_job.__file__).parents[1]
    environment = os.environ | {"PYTHONPATH": str(tests), "PYSPARK_PYTHON": str(python)}
    for name in ("SPARK_LOCAL_IP", "JAVA_HOME", "SPARK_REMOTE", "SPARK_MASTER"):
        environment.pop(name, None)
    command = [sys.executable, cluster_job.__file__, master, str(out), str(seeds)]
    with subprocess.Popen(
        command, cwd=out.parent, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as job:
        try:
            if meanwhile is not None:
                meanwhile()
            printed, said = job.communicate(timeout=400)
        finally:
            job.kill()
    assert job.returncode == 0, said[-3000:]
    if meanwhile is None:
        assert said == "", "a session says nothing"
    result: dict[str, Any] = json.loads(printed)
    return result
