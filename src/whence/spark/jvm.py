"""Start the JVM of a classic Spark session quietly, and keep what it says for the day it fails.

Spark greets every start with a dozen lines (a JVM warning, log4j's profile, the log level) that no
logging setting removes, because some are printed before there is any. So the JVM's two output streams
go to a file: nothing of it disturbs a terminal or a `--json` document, and when the start fails, its
last error line becomes the reason that the user reads. `WHENCE_SPARK_LOG=FILE` keeps that file, and
`whence -v` (`WHENCE_DEBUG=1`) shows the JVM's output on stderr, warnings included.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whence.spark.java import find_java

if TYPE_CHECKING:
    from pyspark import SparkConf

_LOG4J = """\
rootLogger.level = {level}
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{{HH:mm:ss}} %p %c{{1}}: %m%n%ex
"""

_scratch: Path | None = None


def scratch() -> Path:
    """This process's folder for what a session leaves behind; it is removed when Python ends."""
    global _scratch  # noqa: PLW0603 - one JVM per process, so one folder per process
    if _scratch is None:
        _scratch = Path(tempfile.mkdtemp(prefix="whence-spark-"))
        atexit.register(shutil.rmtree, _scratch, ignore_errors=True)
    return _scratch


def log_level() -> str:
    """How much Spark says: warnings where the user asked for them, else errors."""
    return "WARN" if os.environ.get("WHENCE_DEBUG", "") not in ("", "0") else "ERROR"


def log_file() -> Path:
    """Where the JVM's output goes."""
    kept = os.environ.get("WHENCE_SPARK_LOG")
    return Path(kept) if kept else scratch() / "jvm.log"


def ensure_gateway(conf: SparkConf, *, embedded: bool, loopback: bool) -> Any:
    """The process's JVM gateway; started with `conf` if there is none yet.

    `conf` matters for the start only: Java options and memory cannot change later.
    """
    from pyspark import SparkContext, java_gateway

    launch: Any = java_gateway.launch_gateway  # it has no type hints
    if SparkContext._gateway is not None:
        return SparkContext._gateway
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # started by spark-submit: the JVM is its, and is running
        return launch(conf)
    with _environment(_launch_variables(embedded=embedded, loopback=loopback)), log_file().open("ab") as file:
        shown = log_level() == "WARN" and "WHENCE_SPARK_LOG" not in os.environ
        log = 2 if shown else file  # stdout belongs to the command's own answer
        return launch(conf, {"stdout": log, "stderr": log})


def _launch_variables(*, embedded: bool, loopback: bool) -> dict[str, str]:
    """Settings by environment variable: the only ones that rank below spark-defaults.conf and `conf`."""
    quiet = scratch() / "log4j2.properties"
    quiet.write_text(_LOG4J.format(level=log_level().lower()))
    options = f"-Dlog4j2.configurationFile=file:{quiet}"
    variables = {"JAVA_HOME": str(find_java())}
    if loopback:
        variables["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", "127.0.0.1")
    if embedded:
        # Most embedded jobs are short: the quick compiler alone saves some 10 CPU-seconds of the start and
        # first query, and makes long SQL work slower (docs/spark.md has the figures).
        options += " -XX:TieredStopAtLevel=1"
        variables["SPARK_DRIVER_MEMORY"] = os.environ.get("SPARK_DRIVER_MEMORY", f"{_memory_mib()}m")
    variables["SPARK_SUBMIT_OPTS"] = f"{options} {os.environ.get('SPARK_SUBMIT_OPTS', '')}".strip()
    return variables


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables for a child process, and put back what was there."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _memory_mib() -> int:
    """A quarter of the machine's memory, 1 to 8 GiB: the Python workers need the rest."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    except (ValueError, OSError, AttributeError):  # not every system can say
        return 1024
    return max(1024, min(total // 4, 8192))


def last_error() -> str | None:
    """The last line in the JVM's log that names a Java error, such as OutOfMemoryError."""
    named = [line.strip() for line in _log_lines() if re.search(r"java\.lang\.\w+Error", line)]
    return named[-1] if named else None


def _log_lines() -> list[str]:
    try:
        return log_file().read_text(errors="replace").splitlines()
    except OSError:
        return []


def last_words() -> str | None:
    """The last line in the JVM's log that looks like the cause of a failure."""
    lines = _log_lines()
    telling = [line.strip() for line in lines if re.search(r"error|exception|caused by", line, re.IGNORECASE)]
    return telling[-1] if telling else None
