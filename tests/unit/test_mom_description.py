"""Descriptions of systems: every mistake is named with its file and table; agents are found or refused."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import msgspec
import pytest

from whence.core.message import Message
from whence.errors import (
    ConfigError,
    DomainGraphError,
    KeysError,
    KeysRequiredError,
    ParameterError,
    PlatformError,
)
from whence.live.authority import make_group
from whence.overlay.domain_graph import domain_graph, to_toml
from whence.servers.admin import LINES_KEPT, Tails
from whence.servers.agents import counter, echo, forward, ignore, ping_pong
from whence.servers.joining import joining, load_agents, load_system
from whence.servers.letters import Letter, opened_letter, sealed
from whence.servers.processes import Lock, holder_of
from whence.servers.server import Post
from whence.servers.system import read_system
from whence.session.handshake import canonical_parameters
from whence.session.records import Output
from whence.session.wire import MAGIC, VERSION, Hello

DOMAINS = '[[domains]]\nname = "one"\nservers = ["a", "b"]\n'
GOOD = "base_port = 7100\n" + DOMAINS


def written(folder: Path, text: str) -> Path:
    path = folder / "shop.toml"
    path.write_text(text)
    return path


def test_a_short_description_is_enough(tmp_path: Path) -> None:
    system = load_system(written(tmp_path, GOOD))
    assert (system.name, system.stamps, system.durable, system.trace) == ("shop", "updates", True, False)
    assert system.addresses == {"a": "127.0.0.1:7100", "b": "127.0.0.1:7101"}
    assert system.folder == tmp_path / "shop-data"
    assert system.trace_folder is None
    assert load_agents(system, "a") == {}


def test_a_long_one_says_it_all(tmp_path: Path) -> None:
    text = (
        'name = "orders"\nstamps = "full"\nfolder = "here"\ntrace = true\ndurable = false\nplaintext = true\n'
        + DOMAINS
        + '[servers.a]\naddress = "10.0.0.1:7000"\nlisten = "0.0.0.0:7000"\n'
        + '[servers.b]\naddress = "10.0.0.2:7000"\n'
        + 'agent = "whence.servers.agents:forward"\noptions = {to = "a"}\n'
        + "[limits]\nqueue_messages = 10\n"
    )
    system = load_system(written(tmp_path, text))
    assert system.trace_folder == tmp_path / "here" / "trace"
    settings = joining(system, "b")._settings
    assert (settings.group, settings.limits.queue_messages) == ("orders", 10)
    agent = load_agents(system, "b")[""]
    assert agent(b"", Message("x", 1, b"y")) == (b"", [Output("a", b"y")])


AGENTS = '[agents.post]\nserver = "b"\nagent = "whence.servers.agents:echo"\n'


def test_agents_have_names_of_their_own(tmp_path: Path) -> None:
    system = load_system(written(tmp_path, GOOD + AGENTS))
    assert system.server_of("post") == "b"
    assert system.server_of("a") == "a"
    post = Post(system, "b", load_agents(system, "b"))
    sent = post.outgoing("post", b"hello", "x")
    assert sent.to == "b"
    state, [back] = post.react(b"", Message("a", 1, sent.payload.replace(b"\xa1x", b"\xa0")))
    assert (state, back.to, opened_letter(back.payload)) == (b"", "a", Letter("", "post", b"hello"))
    with pytest.raises(ConfigError, match="no agent of its own"):
        post.react(b"", Message("a", 1, b"to the server"))
    odd = sealed(Letter("post", "", b"x"))
    assert opened_letter(sealed(Letter("", "", odd))) == Letter("", "", odd)  # a payload that looks like one


WRONG = {
    "an agent named as a server": (
        GOOD + AGENTS.replace("post", "a"),
        "a server has this name",
        "[agents.a]",
    ),
    "an agent nowhere": (GOOD + AGENTS.replace('"b"', '"z"'), "'z' is in no domain", "[agents.post]"),
    "an agent without a function": (GOOD + AGENTS.replace(":echo", ""), "names no function", "[agents.post]"),
    "not TOML": ("name = ", "it is not valid TOML", ""),
    "unknown field": ("nam = 'x'\n" + GOOD, "unknown field `nam`", ""),
    "wrong type": ("trace = 'yes'\n" + GOOD, "Expected `bool`, got `str` (at trace)", ""),
    "unknown field of a server": (GOOD + "[servers.b]\nport = 7\n", "unknown field `port`", "[servers.b]"),
    "wrong type at a server": (GOOD + "[servers.b]\nagent = 7\n", "got `int` (at agent)", "[servers.b]"),
    "a server without a domain": (GOOD + "[servers.c]\n", "this server is in no domain", "[servers.c]"),
    "no address": (DOMAINS + '[servers.a]\naddress = "h:1"\n', "it has no address", "[servers.b]"),
    "bad address": (GOOD + '[servers.b]\naddress = "h"\n', "has no host and port", "address of 'b'"),
    "bad listen": (GOOD + '[servers.b]\nlisten = "h"\n', "has no host and port", "listen"),
    "shared address": (GOOD + '[servers.b]\naddress = "127.0.0.1:7100"\n', "share one address", "a, b"),
    "no port left": ("base_port = 65535\n" + DOMAINS, "not all from 1 to 65535", "base_port"),
    "no function": (GOOD + '[servers.b]\nagent = "echo"\n', "names no function", "[servers.b] agent"),
    "options of nobody": (GOOD + "[servers.b]\noptions = {}\n", "no agent to give them to", "[servers.b]"),
    "a name with a slash": (GOOD.replace('"b"', '"../b"'), "cannot be part of a file's name", "'../b'"),
    "an unknown limit": (GOOD + "[limits]\nqueue = 1\n", "unknown field `queue`", "[limits]"),
    "a limit out of range": (GOOD + "[limits]\nqueue_messages = 0\n", "is not a positive", "queue_messages"),
    "unknown stamps": ("stamps = 'none'\n" + GOOD, "'none'", "stamps"),
    "a long folder": (f"folder = '{'x' * 120}'\n" + GOOD, "would have", "folder"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_mistake_is_named_with_file_table_and_fix(tmp_path: Path, what: str) -> None:
    text, reason, where = WRONG[what]
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_system(path)
    assert reason in caught.value.reason
    assert str(path) in caught.value.what
    assert where in caught.value.what
    assert caught.value.fix


def test_planned_domains_and_a_port_are_a_description(tmp_path: Path) -> None:
    planned = to_toml(domain_graph([["a", "b"], ["b", "c"]]))
    system = load_system(written(tmp_path, "base_port = 7100\n" + planned))
    assert list(system.servers) == ["a", "b", "c"]


def test_between_machines_keys_are_demanded(tmp_path: Path) -> None:
    text = DOMAINS + '[servers.a]\naddress = "10.0.0.1:7000"\n[servers.b]\naddress = "10.0.0.2:7000"\n'
    with pytest.raises(KeysRequiredError, match=r"shop\.toml: .* set plaintext = true"):
        load_system(written(tmp_path, text))
    assert load_system(written(tmp_path, "plaintext = true\n" + text)).plaintext
    make_group(tmp_path / "keys", "shop", ["a"])
    secured = written(tmp_path, "keys = 'keys'\n" + text)
    assert load_system(secured, ["a"]).keys == tmp_path / "keys"
    with pytest.raises(KeysError, match=r"b\.pem"):  # of a server that shall not run here none are needed
        load_system(secured)


def test_domains_are_refused_as_everywhere(tmp_path: Path) -> None:
    with pytest.raises(DomainGraphError, match=r"shop\.toml: domains: the description has none"):
        load_system(written(tmp_path, "base_port = 7100\n"))
    ring = "".join(f"[[domains]]\nservers = {pair!r}\n" for pair in (["a", "b"], ["b", "c"], ["c", "a"]))
    with pytest.raises(DomainGraphError, match="they form a cycle"):
        load_system(written(tmp_path, "base_port = 7100\n" + ring))
    with pytest.raises(ConfigError, match="No such file"):
        read_system(tmp_path / "missing.toml")
    with pytest.raises(ConfigError, match=r"server 'z': .* Use one of: a, b"):
        load_system(written(tmp_path, GOOD)).require("z")


WRONG_AGENTS = {
    "no module": ('agent = "no_such_module:f"', "ModuleNotFoundError"),
    "no function": ('agent = "whence.servers.agents:nothing"', "AttributeError"),
    "a module that fails": ('agent = "failing_agents:f"', "ZeroDivisionError"),
    "no agent": ('agent = "whence.servers.agents:forward"', "not a function of (state, message)"),
    "no such option": (
        'agent = "whence.servers.agents:forward"\noptions = {via = "a"}',
        "options are refused (TypeError",
    ),
    "a bad option": ('agent = "whence.servers.agents:forward"\noptions = {to = []}', "(ParameterError"),
}


@pytest.mark.parametrize("what", WRONG_AGENTS)
def test_an_agent_that_cannot_be_loaded_is_named(tmp_path: Path, what: str) -> None:
    (tmp_path / "failing_agents.py").write_text("1 / 0\n")
    lines, words = WRONG_AGENTS[what]
    system = load_system(written(tmp_path, GOOD + f"[servers.b]\n{lines}\n"))
    with pytest.raises(ConfigError) as caught:
        load_agents(system, "b")
    assert words in caught.value.reason
    assert "[servers.b] agent" in caught.value.what


def test_the_ready_made_agents() -> None:
    hello = Message("x", 1, b"hello")
    assert ignore(b"s", hello) == (b"s", [])
    assert echo(b"s", hello) == (b"s", [Output("x", b"hello")])
    assert counter(b"", hello) == (b"1", [])
    assert counter(b"41", Message("x", 2, b"")) == (b"42", [Output("x", b"42")])
    assert ping_pong(b"", Message("x", 1, b"3")) == (b"1", [Output("x", b"2")])
    assert ping_pong(b"1", Message("x", 1, b"0")) == (b"1", [])
    assert ping_pong(b"1", hello) == (b"1", [])
    assert forward(["b", "c"])(b"", hello) == (b"", [Output("b", b"hello"), Output("c", b"hello")])
    with pytest.raises(ParameterError):
        forward([])


def test_a_slow_tail_is_told_what_it_missed() -> None:
    async def main() -> None:
        tails = Tails(counter)
        tail = tails.attach()
        for number in range(LINES_KEPT + 5):
            tails.react(b"", Message("x", number + 1, b"y"))
        told, missed = await tail.next()
        assert (told.number, missed) == (6, 5)
        told, missed = await tail.next()
        assert (told.number, missed) == (7, 0)
        tails.detach(tail)
        tails.react(b"", Message("x", 1, b"y"))
        assert tails.reactions == LINES_KEPT + 6

    asyncio.run(main())


def test_domains_of_many_servers_fit_into_a_hello() -> None:
    groups = [[f"server-{number}" for number in range(first, first + 10)] for first in range(0, 150, 9)]
    other = [*groups[:-1], [*groups[-1], "one more"]]
    texts = [canonical_parameters({"domains": each})["domains"] for each in (groups, other, groups)]
    assert texts[0] == texts[2] != texts[1]
    assert texts[0].startswith('[["server-0","server-1"')
    hello = Hello(MAGIC, VERSION, "g", "domains", {"domains": texts[0]}, ["a"], 1, "a", "b", 1, 0, 0)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(hello), type=Hello) == hello


def test_a_lock_is_one_process_and_looking_on_does_not_take_it(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "a.lock"
    assert holder_of(path) is None
    stop = threading.Event()

    def look_on() -> None:
        while not stop.is_set():
            holder_of(path)

    onlookers = [threading.Thread(target=look_on) for _ in range(2)]
    for each in onlookers:
        each.start()
    try:
        for _ in range(200):
            lock = Lock(path, "server 'a'", "Stop it")
            assert holder_of(path) == os.getpid()
            lock.close()
    finally:
        stop.set()
        for each in onlookers:
            each.join()
    lock = Lock(path, "server 'a'", "Stop it")
    with pytest.raises(PlatformError, match=rf"it runs already \(process {os.getpid()}\)"):
        Lock(path, "server 'a'", "Stop it")
    lock.close()
    assert holder_of(path) is None
