"""`whence mom up`, `status`, `send`, `tail`, `down` on systems of real processes."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import ssl
import stat
from collections.abc import Iterator

import pytest

from support.living import free_ports, in_its_life
from support.systems import Bench, bench, in_their_lives, until
from whence.errors import PlatformError, ServerDownError
from whence.live.authority import make_group
from whence.overlay.domain_graph import organised
from whence.servers.client import Client
from whence.servers.processes import holder_of
from whence.servers.requests import Status
from whence.servers.supervisor import system_up
from whence.servers.system import System
from whence.trace.reader import check_trace
from whence.verify.run import verify_trace


@pytest.fixture
def made() -> Iterator[Bench]:
    with bench() as each:
        yield each


def test_up_send_tail_status_down_and_up_again(made: Bench) -> None:
    system = made.write(tables='e: agent = "whence.servers.agents:echo"')
    assert "5 servers are up" in made.run("up", "--detach")
    for path in [system.socket_of(server) for server in system.servers]:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert made.run("send", "a", "e", "hello") == "a:1\n"
    assert made.run("tail", "a", "--count", 1) == "e:1 hello\n"
    send(system, "a", "d", 3)
    assert made.run("tail", "d", "--count", 1) == "a:2 0\n"
    until(lambda: status(system, "d").queue_in == 2)
    servers = made.status()
    assert [servers[server]["sent"] for server in "abcde"] == [4, 0, 0, 0, 1]
    assert {route["to"]: route["hop"] for route in servers["a"]["routes"]} == {
        "b": "b", "c": "c", "d": "c", "e": "c"
    }  # fmt: skip
    assert [clock["domain"] for clock in servers["c"]["clocks"]] == ["left", "right"]
    assert sorted(servers["c"]["links"]) == ["a", "b", "d", "e"]
    assert servers["e"]["reactions"] == 1
    text = made.run("status")
    assert "5 of 5 servers up, 2 domains" in text
    assert "by way of" in made.run("status", "a")
    assert "5 servers stopped" in made.run("down")
    assert {each["answer"] for each in made.status(code=1).values()} == {"down"}
    assert "no server was running" in made.run("down")
    assert "fix: Start it with" in made.run("send", "a", "e", "x", code=2)
    # What was not taken is still there, and numbers begin anew in a new life.
    made.run("up", "--detach")
    lines = made.run("tail", "d", "--count", 2, "--json").splitlines()
    assert [json.loads(line)["text"] for line in lines] == ["1", "2"]
    assert made.run("send", "a", "e", "again") == "a:1\n"
    made.run("down")


def status(system: System, server: str) -> Status:
    with Client(system, server) as client:
        return client.status()


def reactions(system: System, server: str) -> int:
    """Of its agent; -1 while it is down."""
    try:
        return status(system, server).reactions
    except ServerDownError:
        return -1


def send(system: System, source: str, to: str, count: int) -> None:
    with Client(system, source) as client:
        for number in range(count):
            client.send(to, b"%d" % number)


def test_killed_servers_are_started_again_and_lose_nothing(made: Bench) -> None:
    system = made.write(tables='e: agent = "whence.servers.agents:counter"', top="trace = true")
    made.run("up", "--detach")
    for at in range(2):
        for server in ("c", "e"):  # the router, and the destination
            pid = holder_of(system.lock_of(server))
            assert pid is not None
            send(system, "a", "e", 20)
            os.kill(pid, signal.SIGKILL)
            send(system, "b", "e", 20)
        until(lambda: reactions(system, "e") == 80 * (at + 1))  # noqa: B023 - called at once
    with Client(system, "d") as client:
        client.send("e", b"")  # asks for the number
    assert made.run("tail", "d", "--count", 1) == "e:1 161\n"
    servers = made.status()
    assert [servers[server]["restarts"] for server in "abcde"] == [0, 0, 2, 0, 2]
    assert "signal 9; starts again in" in system.up_log.read_text()
    made.run("down")
    assert system.trace_folder is not None
    check_trace(system.trace_folder)
    [report] = verify_trace(system.trace_folder, complete=True)
    assert report.ok
    assert (report.broadcasts, report.deliveries) == (162, 162)


def test_in_the_foreground_sigterm_stops_everything(made: Bench) -> None:
    system = made.write()
    command = made.start("up")
    until(lambda: holder_of(system.up_lock) is not None and reactions(system, "e") == 0)
    assert made.run("up", code=2).count("it runs already") == 1
    assert made.run("serve", "a", code=2).count("it runs already") == 1
    assert reactions(system, "a") == 0  # they were not disturbed
    command.send_signal(signal.SIGTERM)
    _, errors = command.communicate(timeout=60)
    assert command.returncode == 0, errors
    assert "stopping 5/5" in errors
    assert holder_of(system.up_lock) is None
    assert all(holder_of(system.lock_of(server)) is None for server in system.servers)


@pytest.mark.parametrize("who", ["the command", "the supervisor"])
def test_no_server_outlives_those_who_started_it(made: Bench, who: str) -> None:
    system = made.write()
    command = made.start("up")
    until(lambda: reactions(system, "e") == 0)
    supervisor = holder_of(system.up_lock)
    assert supervisor is not None
    os.kill(command.pid if who == "the command" else supervisor, signal.SIGKILL)
    command.communicate(timeout=60)
    assert command.returncode == (-9 if who == "the command" else 2)
    until(lambda: all(holder_of(system.lock_of(server)) is None for server in system.servers))
    until(lambda: holder_of(system.up_lock) is None)
    assert system.log_of("e").read_text().count("e: stops") == 1  # in order


def test_one_server_goes_down_and_stays_down(made: Bench) -> None:
    system = made.write()
    made.run("up", "--detach", "--only", "a", "--only", "b")
    assert made.run("down", "b") == "test: b is down\n"
    assert {server: each["answer"] for server, each in made.status(code=1).items()} == {
        "a": "status", "b": "down", "c": "down", "d": "down", "e": "down"
    }  # fmt: skip
    alone = made.start("serve", "b")  # a server can be started by hand as well
    until(lambda: reactions(system, "b") == 0)
    alone.send_signal(signal.SIGINT)
    alone.communicate(timeout=60)
    assert alone.returncode == 0
    assert "b stopped" in system.up_log.read_text()
    assert "server 'z'" in made.run("down", "z", code=2)


def test_without_restart_a_dead_server_stays_dead(made: Bench) -> None:
    system = made.write({"one": ["a", "b"]})
    made.run("up", "--detach", "--no-restart")
    pid = holder_of(system.lock_of("b"))
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until(lambda: "b died" in system.up_log.read_text())
    assert made.status(code=1)["b"]["answer"] == "down"
    assert "1 servers stopped" in made.run("down")


AGENT = """
from pathlib import Path
from whence.session.records import Output

def careful(state, message):
    if Path({flag!r}).exists():
        raise ValueError("not today")
    return state + message.payload, [Output("a", state + message.payload)]
"""


def test_an_agent_that_fails_gets_its_message_again(made: Bench) -> None:
    flag = made.folder / "broken"
    flag.touch()
    (made.folder / "mine.py").write_text(AGENT.format(flag=str(flag)))
    system = made.write({"one": ["a", "b"]}, tables='b: agent = "mine:careful"\nb: attempts = 1000')
    made.run("up", "--detach")
    made.run("send", "a", "b", "x")
    made.run("send", "a", "b", "y")
    made.run("down")
    assert "2 servers are up" in made.run("up", "--detach")  # it fails again, and stays up
    flag.unlink()
    assert made.run("tail", "a", "--count", 2) == "b:1 x\nb:2 xy\n"
    assert "b died" not in system.up_log.read_text()


def test_a_server_that_cannot_start_ends_up_with_its_error(made: Bench) -> None:
    system = made.write(tables='c: agent = "mine:missing"')
    text = made.run("up", code=2)
    assert "[servers.c] agent: 'mine:missing' cannot be loaded" in text
    assert "fix: Put the module beside system.toml" in text
    assert all(holder_of(system.lock_of(server)) is None for server in system.servers)
    with socket.create_server(("127.0.0.1", int(system.addresses["d"].rpartition(":")[2]))):
        made.path.write_text(made.path.read_text().replace("mine:missing", "whence.servers.agents:echo"))
        assert "it is in use" in made.run("up", code=2)
    made.run("up", "--detach")
    made.run("down")


def test_status_says_what_a_held_message_waits_for(made: Bench) -> None:
    system = made.write(
        {"one": ["a", "b", "c"]},
        tables='b: agent = "whence.servers.agents:forward"\nb: options = { to = "c" }',
    )
    made.run("up", "--detach", "--only", "b", "--only", "c")
    misled = Bench(made.folder, "misled.toml")  # the same server a, but with a wrong address for c
    misled.path.write_text(
        made.path.read_text().replace(system.addresses["c"], f"127.0.0.1:{free_ports(1)[0]}")
    )
    alone = misled.start("serve", "a")
    until(lambda: reactions(system, "a") == 0)
    made.run("send", "a", "c", "first")
    made.run("send", "a", "b", "second, by way of b")
    until(lambda: status(system, "c").held == 1)
    [held] = status(system, "c").held_first
    assert in_their_lives(held.message) == "b:1"
    assert [in_their_lives(each) for each in held.missing] == ["a>c:1"]
    assert "a>c:" in made.run("status", "c")
    assert status(system, "a").links["c"].unacknowledged_messages >= 1
    alone.send_signal(signal.SIGTERM)
    alone.communicate(timeout=60)
    healed = made.start("serve", "a")
    assert made.run("tail", "c", "--count", 2) == "a:1 first\nb:1 second, by way of b\n"
    healed.send_signal(signal.SIGTERM)
    healed.communicate(timeout=60)
    made.run("down")


def test_a_program_runs_a_system(made: Bench) -> None:
    described = made.write({"one": ["a", "b"]}, tables='b: agent = "whence.servers.agents:ping_pong"')
    with system_up(made.path) as system, Client(system, "a") as client:
        client.send("b", b"1")
        assert [told.payload for told in client.tail(1)] == [b"0"]
        with pytest.raises(PlatformError, match="it runs already"), system_up(made.path):
            pass
    assert all(holder_of(described.lock_of(server)) is None for server in "ab")


def test_with_keys_every_link_is_secured(made: Bench) -> None:
    make_group(made.folder / "keys", "test", list("abcde"))
    system = made.write(top='keys = "keys"', tables='e: agent = "whence.servers.agents:echo"')
    made.run("up", "--detach")
    made.run("send", "a", "e", "hello")
    assert made.run("tail", "a", "--count", 1) == "e:1 hello\n"
    context = ssl.create_default_context(cafile=str(made.folder / "keys" / "ca.pem"))
    context.check_hostname = False  # certificates name nodes, not hosts
    port = int(system.addresses["a"].rpartition(":")[2])
    with (
        socket.create_connection(("127.0.0.1", port), timeout=30) as stranger,
        context.wrap_socket(stranger) as secured,
    ):
        assert secured.version() == "TLSv1.3"


def test_a_tail_overhears_an_agent(made: Bench) -> None:
    made.write(
        {"one": ["a", "b", "c"]},
        tables='b: agent = "whence.servers.agents:forward"\nb: options = { to = ["c", "a"] }',
    )
    made.run("up", "--detach")
    tail = made.start("tail", "b", "--count", 1)
    as_json = made.start("tail", "b", "--count", 1, "--json")
    while tail.poll() is None or as_json.poll() is None:  # it hears what comes after it is there
        made.run("send", "a", "b", "news")
    overheard = in_their_lives(tail.communicate()[0])
    assert re.fullmatch(r"a:\d+ news\n  -> c: news\n  -> a: news\n", overheard)
    line = json.loads(as_json.communicate()[0])
    assert (line["origin"], line["text"]) == ("a", "news")
    assert line["outputs"] == [{"to": "c", "text": "news"}, {"to": "a", "text": "news"}]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_hundred_and_fifty_servers(made: Bench) -> None:
    names = [f"s{number:03}" for number in range(150)]
    groups = organised("bus", names)
    system = made.write({f"d{at}": list(group) for at, group in enumerate(groups)})
    assert "150 servers are up" in made.run("up", "--detach")
    send(system, "s001", "s149", 10)
    assert len(made.run("tail", "s149", "--count", 10).splitlines()) == 10
    until(lambda: all(_linked(system, server) for server in names), 300)
    assert "150 servers stopped" in made.run("down")


def _linked(system: System, server: str) -> bool:
    return all(link.state == "connected" for link in status(system, server).links.values())


POISON = """
from pathlib import Path
from whence import Output

def fragile(state, message):
    if message.payload == b"poison" and not Path({healed!r}).exists():
        raise ValueError("cannot swallow this")
    return state + message.payload, [Output("a", state + message.payload)]
"""


def test_a_message_at_which_the_agent_fails_becomes_a_dead_letter_and_routing_goes_on(made: Bench) -> None:
    """M2: the agent's server is the router of two domains, and stays up."""
    healed = made.folder / "healed"
    (made.folder / "mine.py").write_text(POISON.format(healed=str(healed)))
    made.write(tables='c: agent = "mine:fragile"\nc: attempts = 2')
    made.run("up", "--detach")
    made.run("send", "a", "c", "x")
    made.run("send", "a", "c", "poison")
    made.run("send", "a", "c", "y")
    assert made.run("tail", "a", "--count", 2) == "c:1 x\nc:2 xy\n"
    made.run("send", "a", "d", "through the router")
    assert made.run("tail", "d", "--count", 1) == "a:4 through the router\n"
    assert made.status()["c"]["restarts"] == 0
    assert made.status()["c"]["dead"] == 1
    (letter,) = json.loads(made.run("dead list", "c", "--json"))
    assert (letter["origin"], in_its_life(letter["number"]), letter["attempts"]) == ("a", 2, 2)
    id_ = f"a:{letter['number']}"
    assert "cannot swallow this" in letter["reason"]
    assert made.run("dead show", "c", id_) == "a:2 poison\n"
    assert "has none of that id" in made.run("dead retry", "c", "a:9", code=2)
    made.run("down")
    made.run("up", "--detach")  # it is on the disk
    assert made.status()["c"]["dead"] == 1
    healed.touch()
    made.run("dead retry", "c", id_)
    assert made.run("tail", "a", "--count", 1) == "c:1 xypoison\n"
    assert json.loads(made.run("dead list", "c", "--json")) == []


def test_a_dead_letter_can_be_dropped(made: Bench) -> None:
    (made.folder / "mine.py").write_text(POISON.format(healed="/nowhere"))
    made.write({"one": ["a", "b"]}, tables='b: agent = "mine:fragile"\nb: attempts = 1')
    made.run("up", "--detach")
    made.run("send", "a", "b", "poison")
    until(lambda: made.status()["b"]["dead"] == 1)
    made.run("dead drop", "b", "all")
    assert made.status()["b"]["dead"] == 0
    assert "has none of that id" in made.run("dead drop", "b", "a:1", code=2)
