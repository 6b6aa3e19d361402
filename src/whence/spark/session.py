"""The one place that makes a Spark session.

Where it runs, first match: the caller's `master` or `remote`; `SPARK_REMOTE`; `SPARK_MASTER` or
`MASTER`; what the environment configures (spark-submit, `PYSPARK_SUBMIT_ARGS`, spark-defaults.conf);
else embedded, on all cores of this machine. How it runs: the caller's `conf`, then the environment's
settings, then the defaults below.

Spark allows one session per process: a second call gets the running one.
"""

from __future__ import annotations

import importlib
import logging
import os
import shlex
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from whence.errors import MisuseError, PlatformError, missing_extra
from whence.spark import java as jvm
from whence.spark.java import find_java
from whence.spark.shipping import package_zip, plugin_zips

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

# All cores; a task whose Python worker died is tried again (plain local[*] does not).
EMBEDDED = "local[*,4]"
CONNECT_SECONDS_MAX = 5.0  # for a TCP connection to a master or server
REMOTE_CORES = 8  # a Spark Connect client cannot know, and assumes a few
EXECUTOR_SECONDS_MAX = 60.0  # for the first worker of a cluster to offer an executor

# What pyspark's Connect client imports, and from which package. We ask first: pyspark would find one missing
# only when the process has been switched over to Connect, and ends a `python -c` without a word.
_CONNECT_PACKAGES = {
    "grpc": "grpcio",
    "grpc_status": "grpcio-status",
    "google.rpc": "googleapis-common-protos",
    "zstandard": "zstandard",
}

_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
}


def get_session(
    app_name: str,
    *,
    master: str | None = None,
    remote: str | None = None,
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """The process's Spark session, started if none runs (the module says where and how).

    On anything but a local master, the package itself is shipped to the executors; plug-ins always are.
    """
    if master and master.startswith("sc://"):  # what --master may be given, too
        master, remote = None, master
    if master and remote:
        raise MisuseError("get_session", "both a master and a remote are given", "Give one of them")
    try:
        import pyspark  # noqa: F401 - only to know that it is there
    except ImportError as error:
        raise missing_extra("Spark", "pyspark", "spark") from error
    running = _running()
    if running is not None:
        return _reuse(running, master or remote)
    if remote or (not master and os.environ.get("SPARK_REMOTE")):
        return _connect(app_name, remote or os.environ["SPARK_REMOTE"], conf or {})
    return _start(app_name, master or _environment_master(), conf or {})


def is_local(master: str) -> bool:
    """Whether executors live in the driver's own JVM."""
    return master == "local" or master.startswith("local[")


def _environment_master() -> str | None:
    """The master to set: named by a variable, None where the environment configures one, or embedded."""
    named = os.environ.get("SPARK_MASTER") or os.environ.get("MASTER")
    if named:
        return named
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return None
    submit = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))
    if any(argument.split("=")[0] in {"--master", "spark.master"} for argument in submit):
        return None
    folder = os.environ.get("SPARK_CONF_DIR") or f"{os.environ.get('SPARK_HOME', '')}/conf"
    try:
        lines = (Path(folder) / "spark-defaults.conf").read_text().splitlines()
    except OSError:
        return EMBEDDED
    return None if any(line.split()[:1] == ["spark.master"] for line in lines) else EMBEDDED


def _running() -> SparkSession | None:
    """The session that this process already has, made by us or not."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql.utils import is_remote as is_connect

    # Not the active session alone: that one is per thread.
    if is_connect():
        connect: Any = sys.modules.get("pyspark.sql.connect.session")
        remote = connect and connect.SparkSession
        return (remote and (remote.getActiveSession() or remote._get_default_session())) or None
    return SparkSession.builder.getOrCreate() if SparkContext._active_spark_context else None


def _reuse(running: SparkSession, wanted: str | None) -> SparkSession:
    if wanted is None or "SPARK_LOCAL_REMOTE" in os.environ:  # pyspark's own server, in this process
        return running
    client: Any = running.client if is_remote(running) else None
    master = str(running.sparkContext.master) if client is None else f"sc://{client._builder.endpoint}"
    there = client is not None and wanted.startswith("sc://") and _endpoints(wanted) == _endpoints(master)
    if wanted != master and not there:
        raise MisuseError(
            f"Spark session on {_shown(wanted)}",
            f"this process already has one on {master}, and Spark allows one per process",
            "Stop the other session first, or use another process",
        )
    return running


# A classic session: this process holds the driver


def _start(app_name: str, master: str | None, conf: Mapping[str, str]) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    if master:
        _check_reachable(master)
    # A master was chosen: pyspark must not look at the one, nor think of a Connect session that was stopped.
    os.environ.pop("SPARK_REMOTE", None)
    os.environ.pop("SPARK_CONNECT_MODE_ENABLED", None)
    py4j = importlib.import_module("py4j.protocol")  # it has no type hints
    where = f"Spark session on {master or 'the configured master'}"
    try:
        launch = SparkConf(loadDefaults=False)
        for key, value in {**conf, **({"spark.master": master} if master else {})}.items():
            launch.set(key, value)
        gateway = jvm.ensure_gateway(
            launch, embedded=bool(master and is_local(master)), loopback=bool(master and _is_loopback(master))
        )
        settings = SparkConf(loadDefaults=True, _jvm=gateway.jvm).setAppName(app_name)
        _fill(settings, master, conf)
        context = SparkContext(conf=settings, gateway=gateway)
    except (py4j.Py4JError, PySparkException, ValueError) as error:
        reason = _reason(error)
        raise PlatformError(where, reason, _start_fix(master, reason)) from error
    _end_quietly(context)
    context.setLogLevel(jvm.log_level())
    if not is_local(str(context.master)):
        _await_executor(context, where)
        context.addPyFile(str(package_zip(jvm.scratch())))
    for plugin in plugin_zips(jvm.scratch()):  # a worker on this machine need not have our working folder
        context.addPyFile(str(plugin))
    return SparkSession(context)


_OUTCRY = "KeyboardInterrupt while sending command."


def _end_quietly(context: Any) -> None:
    """Let Ctrl-C end the jobs, and be a `KeyboardInterrupt` and nothing else.

    PySpark's own handler talks to the JVM over the connection that is just in use: two pages of errors.
    """
    if threading.current_thread() is not threading.main_thread():
        return  # then PySpark has no handler either

    def stop(number: int, frame: object) -> None:
        threading.Thread(target=cancel, daemon=True).start()  # a thread has a connection of its own
        raise KeyboardInterrupt

    def cancel() -> None:
        with suppress(Exception):  # the process may have ended meanwhile
            context.cancelAllJobs()

    signal.signal(signal.SIGINT, stop)
    logging.getLogger().addFilter(lambda record: record.msg != _OUTCRY)


def _fill(settings: SparkConf, master: str | None, conf: Mapping[str, str]) -> None:
    """The caller's settings over the environment's (already in `settings`) over our defaults."""
    if master:
        settings.setMaster(master)
    chosen = settings.get("spark.master") or EMBEDDED
    settings.set("spark.ui.showConsoleProgress", "false")  # spark-submit turns it on, over our own bars
    for key, value in conf.items():
        settings.set(key, value)
    defaults = dict(_DEFAULTS)
    if _is_loopback(chosen):
        defaults |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if is_local(chosen):
        defaults["spark.sql.shuffle.partitions"] = str(2 * (os.cpu_count() or 1))
        defaults["spark.sql.warehouse.dir"] = str(jvm.scratch() / "warehouse")
    for key, value in defaults.items():
        settings.setIfMissing(key, value)


def _await_executor(context: Any, where: str) -> None:
    """Wait for the cluster's first executor: without one every job would wait in silence, forever.

    Only where we know that executors come immediately: not with dynamic allocation, not in a queue of YARN.
    """
    dynamic = context.getConf().get("spark.dynamicAllocation.enabled", "false") == "true"
    if dynamic or not context.master.startswith("spark://"):
        return
    deadline = time.monotonic() + EXECUTOR_SECONDS_MAX
    tracker = context._jsc.sc().statusTracker()
    while len(tracker.getExecutorInfos()) < 2:  # the driver itself is listed too
        if context._jsc.sc().isStopped():
            reason = jvm.last_words() or "the master ended the application"
            raise PlatformError(where, reason, _start_fix(context.master))
        if time.monotonic() > deadline:
            master = context.master
            context.stop()
            raise PlatformError(
                where,
                f"no worker offered an executor within {EXECUTOR_SECONDS_MAX:.0f} s",
                f"Start workers (spark-class org.apache.spark.deploy.worker.Worker {master}), "
                "or wait until the running applications free their cores and memory",
            )
        time.sleep(0.1)


# A remote session: Spark Connect


def _connect(app_name: str, remote: str, conf: Mapping[str, str]) -> SparkSession:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    where = f"Spark session on {_shown(remote)}"
    _check_reachable(remote)
    for module, package in _CONNECT_PACKAGES.items():
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise missing_extra("Spark Connect", package, "connect") from error
    local = is_local(remote)
    builder = SparkSession.builder.appName(app_name).remote(remote)
    for key, value in conf.items():
        builder = builder.config(key, value)
    if local:  # pyspark starts a server with a separate JVM from this process
        os.environ["JAVA_HOME"] = str(find_java())
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    try:
        if not local:
            _check_speaks_connect(remote)
        session = builder.getOrCreate()
        session_wide = session.conf.getAll  # what is set there; Spark's own defaults are not in it
        for key, value in _DEFAULTS.items():
            if key.startswith("spark.sql.") and key not in session_wide:
                session.conf.set(key, value)
        if not local:
            _give_up_sooner(session)
            session.addArtifacts(str(package_zip(jvm.scratch())), pyfile=True)
        for plugin in plugin_zips(jvm.scratch()):
            session.addArtifacts(str(plugin), pyfile=True)
    except PySparkException as error:
        raise PlatformError(where, _reason(error), _start_fix(remote)) from error
    return session


def _check_speaks_connect(remote: str) -> None:
    """Fail in seconds, where pyspark would ask the listener there again and again for ten minutes."""
    from pyspark.sql.connect.client import DefaultChannelBuilder

    grpc: Any = importlib.import_module("grpc")  # it has no type hints
    with DefaultChannelBuilder(remote).toChannel() as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=CONNECT_SECONDS_MAX)
        except grpc.FutureTimeoutError as error:
            raise PlatformError(
                f"Spark at {_shown(remote)}",
                "somebody listens there, but it does not answer as a Spark Connect server",
                "Give the server's spark.connect.grpc.binding.port (15002 by default; sc://HOST:PORT/;"
                "use_ssl=true behind TLS), or --master spark://HOST:7077 for a standalone master",
            ) from error


def _give_up_sooner(session: Any) -> None:
    """Report a server that is gone within a minute; pyspark's own ten, and twice of them, look like work."""
    from pyspark.sql.connect.client.retries import DefaultPolicy

    warnings.filterwarnings("ignore", r"\[RETRIES_EXCEEDED\]")  # the error that follows says it
    session.client.set_retry_policies([DefaultPolicy(max_retries=6, max_backoff=10_000)])


# Problems of the place, found before Spark would


def _endpoints(url: str) -> list[tuple[str, int]]:
    """The hosts and ports in `spark://a:1,b:2` or `sc://a:3/;token=...`; none for other kinds of URL."""
    scheme, _, rest = url.partition("://")
    if scheme not in {"spark", "sc"}:
        return []
    endpoints = []
    for part in rest.split("/")[0].split(","):
        try:
            host, port = urlsplit(f"//{part}").hostname, urlsplit(f"//{part}").port
        except ValueError:
            host, port = None, None
        if not host:
            raise MisuseError(
                f"Spark URL {_shown(url)!r}",
                "it names no host and port",
                "Write spark://HOST:7077 or sc://HOST:15002",
            )
        endpoints.append((host, port or (7077 if scheme == "spark" else 15002)))
    return endpoints


def _check_reachable(url: str) -> None:
    """Fail in seconds, where Spark would try for a minute and then name an inner class."""
    endpoints = _endpoints(url)
    reasons = []
    for host, port in endpoints:
        try:
            socket.create_connection((host, port), timeout=CONNECT_SECONDS_MAX).close()
        except OSError as error:
            reasons.append(f"{host}:{port} {error.strerror or error}")
        else:
            return
    if reasons:
        raise PlatformError(
            f"Spark at {_shown(url)}", "nobody answers: " + "; ".join(reasons), _start_fix(url)
        )


def _shown(url: str) -> str:
    """The URL without its parameters, among which may be a token."""
    return url.partition("/;")[0]


def _is_loopback(master: str) -> bool:
    if is_local(master):
        return True
    hosts = {host for host, _ in _endpoints(master)}
    return bool(hosts) and all(host == "localhost" or host.startswith("127.") for host in hosts)


def _reason(error: Exception) -> str:
    """One line: the Java exception's own message, else the last error that the JVM printed."""
    java = getattr(error, "java_exception", None)
    if java is not None:
        return str(java.toString()).splitlines()[0]
    said = str(error).strip().splitlines()
    first = said[0] if said else type(error).__name__
    words = jvm.last_words()
    return f"{first} ({words})" if words else first


def _start_fix(where: str | None, reason: str = "") -> str:
    if "memory" in reason or "heap" in reason:
        return (
            "Set the memory of Spark's JVM with the variable SPARK_DRIVER_MEMORY, e.g. SPARK_DRIVER_MEMORY=2g"
        )
    if where is None or is_local(where):
        return "See the reason; WHENCE_SPARK_LOG=FILE keeps all that Spark's JVM says"
    who = "Spark Connect server" if where.startswith("sc://") else "master"
    return (
        f"Check the address and that the {who} runs and is reachable from here; "
        "without --master, Whence uses this machine alone"
    )


def is_remote(session: SparkSession) -> bool:
    """Whether this is a Spark Connect client, which has no JVM."""
    return not hasattr(session, "_jvm")


def cores_of(session: SparkSession) -> int:
    """How many tasks run at a time."""
    return REMOTE_CORES if is_remote(session) else int(session.sparkContext.defaultParallelism)
