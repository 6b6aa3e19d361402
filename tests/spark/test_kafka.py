"""Kafka for real: a broker on loopback (KRaft, one process), out of order in, ordered topic out, killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

from spark.jars import jars
from spark.standalone import free_port
from spark.streaming import LIFETIME, SCHEMA, run_killed, write_files
from support.systems import until
from whence.order import OnceReader
from whence.spark.java import find_java

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SERVER = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{other}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{other}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={folder}/logs
num.partitions=2
offsets.topic.replication.factor=1
group.initial.rebalance.delay.ms=0
"""
# A process of its own: the tests' session was started without the connector.
SCRIPT = """
import json, sys
from pyspark.sql import functions as F
from whence.spark.session import get_session
folder, server, topic, doing = sys.argv[1:]
spark = get_session("kafka", master="local[1]", conf={"spark.sql.shuffle.partitions": "1"})
where = {"kafka.bootstrap.servers": server}
if doing == "write":
    rows = spark.read.text(folder).coalesce(1)
    key = F.get_json_object("value", "$.room")
    header = F.array(F.struct(F.lit("from").alias("key"), F.lit(b"test").alias("value")))
    rows.select(key.alias("key"), "value", header.alias("headers")).write.format("kafka").options(
        **where, topic=topic
    ).save()
else:
    found = spark.read.format("kafka").options(**where, subscribe=topic, includeHeaders="true").load()
    rows = found.orderBy("partition", "offset").collect()
    texts = [(row.partition, row.key.decode(), row.value, row.headers[0].value.decode()) for row in rows]
    print(json.dumps([[part, key, json.loads(value), id_] for part, key, value, id_ in texts]))
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("kafka")
    own = jars("kafka")[0].parent
    port = free_port()
    settings = folder / "server.properties"
    settings.write_text(SERVER.format(port=port, other=free_port(), folder=folder))
    java = [f"{find_java()}/bin/java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp"]
    java.append(f"{own}/*:{Path(pyspark.__file__).parent}/jars/*")
    made = ["kafka.tools.StorageTool", "format", "-t", "A" * 22, "-c", str(settings)]
    subprocess.run([*java, *made], check=True, capture_output=True, timeout=120)
    with (folder / "said").open("w") as said:
        server = subprocess.Popen([*java, "kafka.Kafka", str(settings)], stdout=said, stderr=said)

    def answers() -> bool:
        assert server.poll() is None, (folder / "said").read_text()[-2000:]
        return (folder / "logs" / "__cluster_metadata-0").exists() and _listens(port)

    try:
        until(answers, 120)
        yield f"127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def _listens(port: int) -> bool:
    import socket

    with socket.socket() as attempt:
        return attempt.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def connector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "PYSPARK_SUBMIT_ARGS", f"--jars {','.join(map(str, jars('kafka-spark')))} pyspark-shell"
    )
    monkeypatch.setenv("SPARK_DRIVER_MEMORY", "1g")


def spark_does(folder: Path, server: str, topic: str, doing: str) -> str:
    line = [sys.executable, "-c", SCRIPT, str(folder), server, topic, doing]
    done = subprocess.run(line, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def line_of(server: str, out: str, *more: str) -> list[str]:
    return [
        sys.executable, "-m", "whence", "stream", f"kafka://{server}/in", out,
        "--schema", SCHEMA, "--key", "room", "--id", "id", "--depends-on", "after", "--event-time", "at",
        "--lifetime", LIFETIME, "--remember", "1h", "--option", "maxOffsetsPerTrigger=40", "--available-now",
        "--flush", "--json", "--master", "local[1]", *more,
    ]  # fmt: skip


@pytest.mark.usefixtures("connector")
def test_an_ordered_topic_of_a_stream_that_is_killed(broker: str, tmp_path: Path) -> None:
    given = write_files(tmp_path / "in", rows=60, files=1)
    spark_does(tmp_path / "in", broker, "in", "write")
    checkpoint = tmp_path / "checkpoint"
    line = line_of(broker, f"kafka://{broker}/ordered", "--checkpoint", str(checkpoint))
    assert run_killed(line, 2, 1, tmp_path / "tmp", checkpoint=checkpoint) == 2
    records = json.loads(spark_does(tmp_path, broker, "ordered", "read"))
    reader = OnceReader()
    rows = [(key, value) for part, key, value, id_ in records if reader.is_new(id_, part)]
    names = sorted((value["room"], value["text"]) for _, value in rows)
    assert names == sorted((row["room"], row["text"]) for row in given)  # nothing lost, nothing doubled
    assert len({(value["kafka_partition"], value["kafka_offset"]) for _, value in rows}) == len(given)
    assert {
        (key == value["room"], value["kafka_key"], value["kafka_headers"][0]["value"]) for key, value in rows
    } == {(True, room, "test") for room in {row["room"] for row in given}}
    positions: dict[str, list[int]] = {}
    for key, value in rows:  # the topic is in order as it is
        if value.get("position"):
            positions.setdefault(key, []).append(value["position"])
    assert all(found == list(range(1, len(found) + 1)) for found in positions.values())
    judged = subprocess.run(
        [sys.executable, "-m", "whence", "verify", f"kafka://{broker}/ordered", "--master", "local[1]",
         "--json"], capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert judged.returncode == 0, judged.stderr[-2000:]
    assert json.loads(judged.stdout)["verdict"] == "ok"


def test_without_the_connector_its_package_is_named(tmp_path: Path) -> None:
    environment: dict[str, Any] = {**os.environ, "SPARK_DRIVER_MEMORY": "1g"}
    environment.pop("PYSPARK_SUBMIT_ARGS", None)
    done = subprocess.run(
        line_of("127.0.0.1:9", str(tmp_path / "out")),
        capture_output=True,
        text=True,
        timeout=200,
        env=environment,
        check=False,
    )
    assert done.returncode == 2
    assert f"--packages org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}" in done.stderr
