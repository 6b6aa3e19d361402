"""Other ways to start a job than our commands, as docs/stream.md and docs/cluster.md tell them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pyspark
import pytest

from spark.standalone import python_without_whence
from spark.streaming import write_batches
from whence.spark.java import find_java
from whence.spark.shipping import package_zip

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]

HOME = Path(pyspark.__file__).parent
ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys
from pyspark.sql import SparkSession
from whence.spark.ordering.stream import causal_order
source, out = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
rows = spark.readStream.schema("room string, id string, after array<string>, at timestamp").json(source)
ordered = causal_order(rows, key="room", id="id", depends_on="after", event_time="at", lifetime="10s")
query = ordered.writeStream.option("checkpointLocation", out + ".checkpoint").trigger(availableNow=True)
query.start(out).awaitTermination()
"""


EARLY = [{"id": "answer", "after": ["question"], "at": 1}, {"id": "question", "at": 2}]
LATER = [{"id": "later", "after": ["answer"], "at": 15}]  # while `answer` is remembered


def run(folder: Path, *line: object, python: Path | str = sys.executable) -> subprocess.CompletedProcess[str]:
    """One of Spark's own programs, in a clean environment."""
    kept = {name: os.environ[name] for name in ("PATH", "SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS")}
    java = {"JAVA_HOME": str(find_java()), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": str(python)}
    done = subprocess.run(
        [*map(str, line)],
        cwd=folder,
        env=kept | java | {"SPARK_HOME": str(HOME)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done


def write_talk(folder: Path) -> None:
    """An answer that comes before its question, and a later word."""
    write_batches(folder, EARLY, LATER)


def placed(folder: Path) -> list[str]:
    """The ids of an ordered table by position."""
    rows = [row for path in folder.glob("*.parquet") for row in pq.read_table(path).to_pylist()]
    return [row["id"] for row in sorted(rows, key=lambda row: row["position"])]


def test_spark_submit_with_the_package_as_a_zip(tmp_path: Path) -> None:
    write_talk(tmp_path / "in")
    (tmp_path / "program.py").write_text(PROGRAM)
    archive = package_zip(tmp_path)
    words = ("--master", "local[1]", "--conf", "spark.sql.shuffle.partitions=2", "--py-files", archive)
    python = python_without_whence(tmp_path)
    run(tmp_path, HOME / "bin" / "spark-submit", *words, "program.py", "in", "out", python=python)
    assert placed(tmp_path / "out") == ["question", "answer", "later"]


def test_spark_submit_of_a_command(tmp_path: Path) -> None:
    """spark-submit takes files that end in .py alone, so the command needs one, as docs/cluster.md says."""
    line = re.search(r"echo '(.*)' > whence-command.py", (ROOT / "docs" / "cluster.md").read_text())
    assert line is not None
    (tmp_path / "whence-command.py").write_text(line[1])
    write_talk(tmp_path / "in")
    order = "--format json --key room --id id --depends-on after --event-time at --lifetime 10s"
    words = ("stream", "in", "out", *order.split(), "--available-now", "--flush", "--json")
    submit = (HOME / "bin" / "spark-submit", "--master", "local[1]", "whence-command.py")
    done = run(tmp_path, *submit, *words)
    assert json.loads(done.stdout)["summary"]["outcomes"]["waited"] == 1
    assert placed(tmp_path / "out") == ["question", "answer", "later"]


def test_a_declarative_pipeline(tmp_path: Path) -> None:
    """The example: twice, with more rows the second time, which goes on where the first one was."""
    folder = tmp_path / "pipeline"
    shutil.copytree(ROOT / "examples" / "pipeline", folder)
    spec = folder / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace("file:///tmp/ordered-messages", (tmp_path / "storage").as_uri()))
    write_batches(folder / "in", EARLY)
    # A catalogue that lasts, as docs/stream.md says: the second run must know the table of the first.
    lasting = ("--conf", "spark.sql.catalogImplementation=hive")
    line = (HOME / "bin" / "spark-pipelines", "--remote", "local[1]", *lasting, "run")
    run(folder, *line)
    tables = folder / "spark-warehouse"
    assert placed(tables / "ordered") == ["question", "answer"]
    write_batches(folder / "more", LATER)
    (folder / "more" / "00000.json").rename(folder / "in" / "00001.json")
    run(folder, *line)
    assert placed(tables / "ordered") == ["question", "answer", "later"]
