"""Members in Java, from the jars that `make peers` fetched: JGroups, and Joram with its server.

Every member is a Java process. It takes the load twice: first to warm up, which is not counted.
"""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from forked import Answer, free_ports
from peers.brokers import ROOT
from peers.loads import Load, Place, cpu_of

SOURCES = Path(__file__).parent / "java"
SECONDS_MAX = 60  # of a round
CLASSES = ROOT / "classes"
FLAGS = ("-Xmx256m", "-Djava.net.preferIPv4Stack=true")
SERVER = """<config>
  <property name="Transaction" value="fr.dyade.aaa.util.NTransaction"/>
  <server id="0" name="S0" hostname="localhost">
    <service class="org.objectweb.joram.mom.proxies.ConnectionManager" args="root root"/>
    <service class="org.objectweb.joram.mom.proxies.tcp.TcpProxyService" args="{port}"/>
  </server>
</config>
"""


def has(*jars: str) -> bool:
    """Return whether Java and the jars whose names begin so are here."""
    here = [path.name for path in (ROOT / "jars").glob("*.jar")]
    return bool(shutil.which("javac")) and all(any(name.startswith(jar) for name in here) for jar in jars)


def classpath() -> str:
    """The jars and the members, compiled if they are older than their sources."""
    path = ":".join(map(str, [CLASSES, *sorted((ROOT / "jars").glob("*.jar"))]))
    sources = sorted(SOURCES.glob("*.java"))
    newest = max(source.stat().st_mtime for source in sources)
    if not CLASSES.exists() or CLASSES.stat().st_mtime < newest:
        shutil.rmtree(CLASSES, ignore_errors=True)
        subprocess.run(["javac", "-nowarn", "-cp", path, "-d", str(CLASSES), *map(str, sources)], check=True)
    return path


def jgroups(load: Load, warm: int, place: Place) -> list[Answer]:
    """One round of a JGroups cluster."""
    ports = free_ports(load.nodes)
    hosts = ",".join(f"127.0.0.1[{port}]" for port in ports)
    options = [f"-Djgroups.tcpping.initial_hosts={hosts}", "-Djgroups.tcp.port_range=0", "JGroupsMember"]
    return _round([options] * load.nodes, [",".join(map(str, ports))], load, warm, place)


def joram(load: Load, warm: int, place: Place) -> list[Answer]:
    """One round of clients of a Joram server."""
    return _round([["JoramMember"]] * load.nodes, [str(place.port)], load, warm, place)


@contextmanager
def joram_server(folder: Path) -> Iterator[Place]:
    """A Joram server with its store in the folder, as it is by default: not synced for each message."""
    [port] = free_ports(1)
    (folder / "a3servers.xml").write_text(SERVER.format(port=port))
    command = ["java", *FLAGS, f"-Dfr.dyade.aaa.agent.A3CONF_DIR={folder}", "-cp", classpath()]
    server = subprocess.Popen(
        [*command, "fr.dyade.aaa.agent.AgentServer", "0", "s0"],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        time.sleep(2.5)  # members that come too early are refused
        yield Place(folder, port, server.pid)
    finally:
        server.kill()
        server.wait()


def _round(
    options: list[list[str]], arguments: list[str], load: Load, warm: int, place: Place
) -> list[Answer]:
    own = [str(load.nodes), str(load.size), str(place.folder), *arguments]
    with ExitStack() as stack, (place.folder / "java.log").open("w") as log:
        members = []
        for index, each in enumerate(options):
            command = ["java", *FLAGS, "-cp", classpath(), *each, str(index), *own]
            pipe = subprocess.PIPE
            process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=log, text=True, bufsize=1, cwd=place.folder
            )
            members.append(process)
            stack.callback(process.wait)
            stack.callback(process.kill)
            stack.callback(_limited(process).cancel)
            if index == 0:
                _said(process, "up")  # members that begin all together found groups of one, which merge late
        _told(members, None, "ready")
        for messages, rate in ((warm, 0.0), (load.messages, load.rate or 0.0)):
            _told(members, f"expect {messages} {rate}", "ready")
            before = [cpu_of(process.pid) for process in members], cpu_of(place.server)
            began_s = time.monotonic()
            ended_s = [float(words[0]) / 1e9 for words in _told(members, f"go {messages} {rate}", "done")]
            after = [cpu_of(process.pid) for process in members], cpu_of(place.server)
    return [
        {
            "began_s": began_s,
            "ended_s": end_s,
            "cpu_s": last - first,
            "server_cpu_s": after[1] - before[1],
            "delivered": load.deliveries,
        }
        for end_s, first, last in zip(ended_s, before[0], after[0], strict=True)
    ]


def _limited(process: subprocess.Popen[str]) -> threading.Timer:
    """A member that never gets on is ended, which fails the round."""
    limit = threading.Timer(SECONDS_MAX, process.kill)
    limit.daemon = True
    limit.start()
    return limit


def _told(members: list[subprocess.Popen[str]], line: str | None, word: str) -> list[list[str]]:
    """Tell all members, then wait for the word of each; the words after it."""
    for process in members:
        if line is not None:
            assert process.stdin is not None
            process.stdin.write(line + "\n")
    return [_said(process, word) for process in members]


def _said(process: subprocess.Popen[str], word: str) -> list[str]:
    assert process.stdout is not None
    for line in process.stdout:
        first, *words = line.split() or [""]
        if first == word:
            return words
    raise SystemExit(f"{process.args}: ended before it said {word!r}, so the round does not count")
