"""Cases M1 to M5 of the specification of lives, through `whence mom`, on real processes.

M6 is in tests/unit/test_planner.py. One
seed of M3 runs always (and docs/mom.md changes a system), twenty of each when asked for; a seed draws
which servers are stopped, how, how much is sent and by whom. A checker knows only what was acknowledged and
what the tails were given.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import defaultdict
from collections.abc import Iterator

import pytest

from support.living import free_ports
from support.systems import TWO_DOMAINS, Bench, bench, until
from whence.errors import NoRoomError, PayloadTooLargeError, RequestError, ServerDownError
from whence.servers.client import Client
from whence.servers.joining import load_system
from whence.servers.processes import holder_of
from whence.servers.system import System

CASE_SEEDS = int(os.environ.get("WHENCE_CASE_SEEDS", "20"))
SLOW_SEEDS = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(CASE_SEEDS)]
SEEDS = [SLOW_SEEDS[0], 1, *SLOW_SEEDS[2:]]  # with 1 the sender must hear that a router has room again
SMALL = "queue_messages = 64\n"
HEALED_S = 30.0  # after the end of a fault, all that live exchange messages


@pytest.fixture
def made() -> Iterator[Bench]:
    with bench() as each:
        yield each


class Ledger:
    """What was acknowledged to senders, and what readers were given: nothing else is believed."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.sent: dict[str, list[tuple[str, str]]] = defaultdict(list)  # to -> (from, text), in order
        self.read: dict[str, list[tuple[str, str]]] = defaultdict(list)
        self.refusals: list[str] = []
        self._count = 0

    def send(self, source: str, to: str, count: int, timeout_s: float = 20.0) -> int:
        """Send until `count` are accepted or there is no room; returns how many were accepted."""
        with Client(self.system, source) as client:
            for at in range(count):
                text = f"{source}{self._count}"
                try:
                    client.send(to, text.encode(), timeout_s=timeout_s)
                except NoRoomError as error:
                    self.refusals.append(str(error))
                    return at
                self._count += 1
                self.sent[to].append((source, text))
        return count

    def read_all(self, to: str) -> None:
        """Take from the mailbox `to` until all that was accepted for it is here."""
        missing = len(self.sent[to]) - len(self.read[to])
        if missing > 0:
            with Client(self.system, to) as client:
                self.read[to] += [
                    (told.origin.partition("/")[0], told.payload.decode()) for told in client.tail(missing)
                ]

    def check(self) -> None:
        """0 lost, 0 twice, each sender's in order (what one sender sends is one causal chain)."""
        for to in {*self.sent, *self.read}:
            assert sorted(self.read[to]) == sorted(self.sent[to]), to
            for source in {source for source, _ in self.sent[to]}:
                of = [text for origin, text in self.read[to] if origin == source]
                assert of == [text for origin, text in self.sent[to] if origin == source], (to, source)

    def check_exchange(self, servers: list[str]) -> None:
        """Every living server reaches every other within the time that the specification gives."""
        began_s = time.monotonic()
        for source in servers:
            for to in servers:
                if source != to:
                    assert self.send(source, to, 1) == 1
        for to in servers:
            self.read_all(to)
        assert time.monotonic() - began_s < HEALED_S
        self.check()


class Stopped:
    """A server that is down, killed or stopped with SIGSTOP, and comes back."""

    def __init__(self, made: Bench, system: System, server: str, how: str) -> None:
        self._made, self._system, self._server, self._how = made, system, server, how
        if how == "down":
            made.run("down", server)
        else:
            pid = holder_of(system.lock_of(server))
            assert pid is not None
            self._pid = pid
            os.kill(pid, signal.SIGSTOP)

    def end(self) -> None:
        if self._how == "down":
            serving = self._made.start("serve", self._server)
            until(lambda: _is_up(self._system, self._server) or serving.poll() is not None)
            assert serving.poll() is None
        else:
            os.kill(self._pid, signal.SIGCONT)


def _is_up(system: System, server: str) -> bool:
    try:
        with Client(system, server) as client:
            client.status()
    except ServerDownError:
        return False
    return True


@pytest.mark.parametrize("seed", SLOW_SEEDS)
def test_m1_a_full_queue_to_one_server_is_no_matter_for_another(made: Bench, seed: int) -> None:
    draw = random.Random(f"M1 {seed}")
    system = made.write({"one": ["a", "p", "r"]}, limits=SMALL)
    made.run("up", "--detach")
    ledger = Ledger(system)
    fault = Stopped(made, system, "p", draw.choice(["down", "stopped"]))
    accepted = ledger.send("a", "p", 1000, timeout_s=draw.choice([0, 0.2]))
    assert 0 < accepted <= 128
    assert "no room for p" in ledger.refusals[0] or "p takes no more" in ledger.refusals[0]
    began_s = time.monotonic()
    assert ledger.send("a", "r", draw.randint(1, 300)) > 0
    ledger.read_all("r")
    assert time.monotonic() - began_s < HEALED_S
    fault.end()
    ledger.read_all("p")
    ledger.check_exchange(["a", "p", "r"])


@pytest.mark.parametrize("seed", SEEDS)
def test_m3_a_router_that_is_full_tells_the_sender(made: Bench, seed: int) -> None:
    draw = random.Random(f"M3 {seed}")
    system = made.write(limits=SMALL)  # a, b and c are in one domain, c, d and e in the other
    made.run("up", "--detach")
    ledger = Ledger(system)
    fault = Stopped(made, system, "e", draw.choice(["down", "stopped"]))
    accepted = {source: ledger.send(source, "e", 6000, timeout_s=0.2) for source in draw.sample("abd", 3)}
    assert 0 < sum(accepted.values()) <= 4 * 64, accepted
    assert any("e takes no more, says c" in each for each in ledger.refusals), ledger.refusals
    with Client(system, "c") as client:
        status = client.status()
    assert status.queue_out <= 3 * 64
    assert "e" in status.full
    assert ledger.send("a", "d", draw.randint(1, 300)) > 0  # through the same router
    assert ledger.send("d", "b", draw.randint(1, 300)) > 0
    ledger.read_all("d")
    ledger.read_all("b")
    fault.end()
    ledger.read_all("e")
    assert ledger.send(draw.choice("abcd"), "e", 200) == 200
    ledger.read_all("e")
    ledger.check_exchange(list("abcde"))


@pytest.mark.parametrize("seed", SLOW_SEEDS)
def test_m3_a_router_that_was_killed_tells_the_sender_anew(made: Bench, seed: int) -> None:
    """Its memory of who is full, and of whom it has told, is gone; its queue is not."""
    draw = random.Random(f"M3 killed {seed}")
    system = made.write(limits=SMALL)
    made.run("up", "--detach")
    ledger = Ledger(system)
    fault = Stopped(made, system, "e", draw.choice(["down", "stopped"]))
    assert 0 < ledger.send("a", "e", 6000, timeout_s=0.2) <= 2 * 64
    for _ in range(draw.randint(1, 2)):
        os.kill(holder_of(system.lock_of("c")) or 0, signal.SIGKILL)
        until(lambda: holder_of(system.lock_of("c")) is not None and _is_up(system, "c"))
        ledger.send(draw.choice("abd"), "e", 6000, timeout_s=draw.choice([0.2, 1.0]))
    with Client(system, "c") as client:
        assert client.status().queue_out <= 4 * 64  # a, b, c and d
    fault.end()
    began_s = time.monotonic()
    assert ledger.send("a", "e", 200) == 200
    assert time.monotonic() - began_s < HEALED_S
    ledger.read_all("e")
    ledger.check_exchange(list("abcde"))


# M4: the description changes while the system runs


def described(system: System, domains: dict[str, list[str]], ports: Iterator[int], more: str = "") -> str:
    """A description with these domains; servers keep their addresses."""
    servers = sorted({server for group in domains.values() for server in group})
    lines = ['name = "test"', 'folder = "data"']
    lines += [f"[[domains]]\nname = {name!r}\nservers = {group!r}" for name, group in domains.items()]
    for server in servers:
        address = system.addresses.get(server) or f"127.0.0.1:{next(ports)}"
        lines.append(f"[servers.{server}]\naddress = {address!r}")
    lines.append("[limits]\nbackoff_first_s = 0.01\nbackoff_max_s = 0.2\nack_delay_s = 0.005\n" + SMALL)
    return "\n".join([*lines, more])


def processes(system: System) -> dict[str, int | None]:
    return {server: holder_of(system.lock_of(server)) for server in system.servers}


@pytest.mark.parametrize("seed", SLOW_SEEDS)
def test_m4_servers_and_domains_are_added_and_removed_while_the_others_run(made: Bench, seed: int) -> None:
    draw = random.Random(f"M4 {seed}")
    ports = iter(free_ports(8))
    system = made.write(limits=SMALL, top=draw.choice(["", "stamps = 'full'", "stamps = 'updates-scan'"]))
    top = "stamps = " + repr(system.stamps) + "\n"
    made.run("up", "--detach")
    before = processes(system)
    ledger = Ledger(system)
    ledger.send("a", "e", draw.randint(1, 30))
    fault = Stopped(made, system, "e", "down")  # what is queued for e keeps its order
    for _ in range(draw.randint(1, 4)):
        ledger.send(draw.choice("abcd"), draw.choice("de"), draw.randint(1, 9))
    # f joins one domain, and g hangs on some server by a domain of its own
    joined, router = draw.choice(["left", "right"]), draw.choice("abd")
    domains = {name: [*group] for name, group in TWO_DOMAINS.items()}
    domains[joined].append("f")
    domains["far"] = [router, "g"]
    made.path.write_text(top + described(system, domains, ports))
    text = made.run("apply")
    assert "f is new" in text and "g is new" in text and "test: applied" in text  # noqa: PT018
    wider = load_system(made.path)
    ledger.system = wider
    until(lambda: _is_up(wider, "f") and _is_up(wider, "g"))
    unchanged = set("abcd") - set(domains[joined]) - {router}
    assert {each: processes(wider)[each] for each in unchanged} == {each: before[each] for each in unchanged}
    ledger.send("f", "e", draw.randint(1, 5))
    ledger.send("g", "e", draw.randint(1, 5))
    if draw.random() < 0.5:  # a server that crashes right after the change follows it
        pid = holder_of(wider.lock_of("c"))
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
    fault.end()
    ledger.read_all("e")
    ledger.check_exchange(list("abcdefg"))
    # b goes: refused while a message waits for it, done when it is taken
    ledger.send("d", "b", 1)
    domains["left"].remove("b")
    if router == "b":
        domains["far"] = ["a", "g"]  # and g is reached over another way
    made.path.write_text(top + described(wider, domains, ports))
    refused = made.run("apply", "--timeout", 1, code=2)
    assert "would strand messages" in refused
    assert "for b that were not taken" in refused
    ledger.read_all("b")
    assert "b goes" in made.run("apply")
    narrower = load_system(made.path)
    ledger.system = narrower
    assert "b" not in narrower.servers
    ledger.check_exchange(list("acdefg"))
    # b comes back, without its past, under its old seat
    domains["left"].append("b")
    made.path.write_text(top + described(wider, domains, ports))
    made.run("apply")
    ledger.system = load_system(made.path)
    until(lambda: _is_up(ledger.system, "b"))
    ledger.check_exchange(list("abcdefg"))
    made.run("down")
    made.run("up", "--detach")
    ledger.check_exchange(list("abcdefg"))


@pytest.mark.slow
def test_a_change_that_cannot_be_made_is_refused_and_changes_nothing(made: Bench) -> None:
    ports = iter(free_ports(4))
    system = made.write(limits=SMALL)
    assert "nothing was started" in made.run("apply", code=2)
    made.run("up", "--detach")
    first = made.path.read_text()
    assert made.run("apply") == "test: nothing has changed\n"
    cycle = {**TWO_DOMAINS, "third": ["a", "d"]}
    made.path.write_text(described(system, cycle, ports))
    assert "they form a cycle" in made.run("apply", code=2)
    made.path.write_text("stamps = 'full'\n" + first)
    assert "cannot become 'full'" in made.run("apply", code=2)
    made.path.write_text(described(system, {"left": ["a", "c"], "right": ["c", "d", "e"]}, ports))
    made.run("down", "d")
    assert "cannot be seen" in made.run("apply", code=2)
    assert "b goes" in made.run("apply", "--dry-run")
    assert made.run("send", "a", "b", "as ever") == "a:1\n"
    assert made.run("tail", "b", "--count", 1) == "a:1 as ever\n"
    made.run("down")
    assert "what was applied before runs" in _warned(made)


def _warned(made: Bench) -> str:
    process = made.start("up", "--detach")
    return process.communicate(timeout=100)[1]


AGENTS = """
from whence import Output

def billing(state, message):
    count = int(state or b"0") + 1
    return b"%d" % count, [Output(message.origin, b"%d" % count)]

def relay(state, message):
    if message.origin == "billing":
        return state, [Output("a", b"paid")]
    return state, [Output("billing", message.payload)]

def strict(state, message):
    raise ValueError("never")
"""
NAMED = """
[agents.billing]
server = "e"
agent = "mine:billing"
[agents.relay]
server = "e"
agent = "mine:relay"
[agents.strict]
server = "d"
agent = "mine:strict"
attempts = 1
"""


@pytest.mark.slow
def test_agents_are_addressed_by_name_wherever_they_live(made: Bench) -> None:
    (made.folder / "mine.py").write_text(AGENTS)
    system = made.write(agents=NAMED)
    made.run("up", "--detach")
    for expected in "12":
        made.run("send", "a", "billing", "bill")
        assert made.run("tail", "a", "--count", 1).split()[1] == expected
    made.run("send", "a", "relay", "bill")  # two agents of one server talk, and each has its own state
    assert made.run("tail", "a", "--count", 1).split() == ["relay:5", "paid"]
    made.run("send", "a", "strict", "x")
    until(lambda: made.status()["d"]["dead"] == 1)
    assert "strict" in made.run("dead list", "d")
    made.run("send", "a", "d", "for nobody")  # d has no agent of its own
    until(lambda: made.status()["d"]["dead"] == 2)
    assert "has none of that name" in made.run("send", "a", "nobody", "x", code=2)
    os.kill(holder_of(system.lock_of("e")) or 0, signal.SIGKILL)
    made.run("send", "a", "billing", "bill")
    assert made.run("tail", "a", "--count", 1).split()[1] == "4"
    # An agent that is added is known everywhere; one that is not empty does not go.
    text = made.path.read_text()
    made.path.write_text(
        text.replace(
            "[agents.strict]", "[agents.lately]\nserver = 'b'\nagent = 'mine:billing'\n\n[agents.strict]"
        )
    )
    made.run("apply")
    made.run("send", "e", "lately", "bill")
    made.path.write_text(text[: text.index("[agents.strict]")] + text[text.index("[limits]") :])
    assert "dead letters" in made.run("apply", "--timeout", "0.5", code=2)


# M2 and M5

FRAGILE = """
from whence import Output

def fragile(state, message):
    if message.payload.startswith(b"poison"):
        raise ValueError("cannot swallow this")
    return state, [Output("b", message.payload)]
"""


@pytest.mark.parametrize("seed", SLOW_SEEDS)
def test_m2_an_agent_that_fails_stops_neither_its_server_nor_the_routing(made: Bench, seed: int) -> None:
    draw = random.Random(f"M2 {seed}")
    (made.folder / "mine.py").write_text(FRAGILE)
    attempts = draw.randint(1, 3)
    system = made.write(tables=f'c: agent = "mine:fragile"\nc: attempts = {attempts}')  # c is the router
    made.run("up", "--detach")
    swallowed, poison, kills = [], 0, draw.randint(0, 2)
    ledger = Ledger(system)
    for at in range(draw.randint(10, 30)):
        with Client(system, draw.choice("ade")) as client:
            if draw.random() < 0.3:
                poison += 1
                client.send("c", b"poison %d" % at)
            else:
                swallowed.append(str(at))
                client.send("c", swallowed[-1].encode())
        if draw.random() < 0.3:
            ledger.send("a", "d", draw.randint(1, 5))  # through the router
        if kills and draw.random() < 0.2:
            kills -= 1
            os.kill(holder_of(system.lock_of("c")) or 0, signal.SIGKILL)
            until(lambda: _is_up(system, "c"))
    with Client(system, "b") as client:
        read = [told.payload.decode() for told in client.tail(len(swallowed))]
    assert sorted(read, key=int) == swallowed  # each once
    ledger.read_all("d")
    until(lambda: made.status()["c"]["dead"] == poison)
    with Client(system, "c") as client:
        assert {letter.attempts for letter in client.dead()} <= {attempts}
    ledger.check()


@pytest.mark.parametrize("seed", SLOW_SEEDS)
def test_m5_a_message_that_is_too_long_is_refused_as_such(made: Bench, seed: int) -> None:
    draw = random.Random(f"M5 {seed}")
    limit = draw.choice([1000, 1024 * 1024])
    system = made.write({"one": ["a", "b"]}, limits=f"max_payload_bytes = {limit}")
    made.run("up", "--detach")
    sizes = [limit + 1, draw.randint(limit + 1, 2 * limit), 3 * limit, draw.randint(4 * limit, 20 * limit)]
    for size in sizes:
        with (
            Client(system, "a") as client,
            pytest.raises((PayloadTooLargeError, RequestError), match="more than"),
        ):
            client.send("b", bytes(size))
    ledger = Ledger(system)
    with Client(system, "a") as client:
        client.send("b", bytes(limit))
    with Client(system, "b") as client:
        assert [len(told.payload) for told in client.tail(1)] == [limit]
    ledger.check_exchange(["a", "b"])
