"""The programs around the library: `whence node` and the chat example, as processes."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

import pytest

from support.keyring import keys_for
from support.living import free_ports, in_its_life
from whence.errors import ConfigError, ParameterError
from whence.live.config import load_config
from whence.sim.replay import replay
from whence.verify.run import verify_trace

ROOT = Path(__file__).parents[2]
CHAT = ROOT / "examples" / "chat.py"
SENSOR = ROOT / "examples" / "sensor.py"
EXAMPLE = ROOT / "examples" / "node.toml"
LOG_EXAMPLE = ROOT / "examples" / "log-node.toml"
SWARM_EXAMPLE = ROOT / "examples" / "swarm-node.toml"


def config_file(folder: Path, names: list[str]) -> Path:
    peers = "\n".join(
        f'{name} = "127.0.0.1:{port}"' for name, port in zip(names, free_ports(len(names)), strict=True)
    )
    path = folder / "node.toml"
    path.write_text(
        f'group = "room"\nprotocol = "vector"\n[peers]\n{peers}\n[limits]\nleave_timeout_s = 20.0\n'
    )
    return path


async def whence_node(*arguments: object) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "from whence.cli.main import main; main()",
        "node",
        *map(str, arguments),
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
    )


async def line_of(process: Process) -> str:
    assert process.stdout is not None
    return (await asyncio.wait_for(process.stdout.readline(), 30)).decode().rstrip("\n")


async def heard(process: Process) -> dict[str, object]:
    """What a node with --json was told, its number as counted from the beginning of the speaker's life."""
    told: dict[str, object] = json.loads(await line_of(process))
    assert isinstance(told["number"], int)
    return {**told, "number": in_its_life(told["number"])}


def without_life(line: str) -> str:
    """A line without the life of its speaker: one that met nobody for half a second has a later one."""
    return re.sub(r"^(\w+:\d+)~\w+ ", r"\1 ", line)


async def end(process: Process) -> tuple[str, str]:
    output, errors = await asyncio.wait_for(process.communicate(), 30)
    return output.decode(), (errors or b"").decode()


def test_nodes_as_processes_talk_leave_on_sigterm_and_their_traces_verify(tmp_path: Path) -> None:
    async def main() -> None:
        config = config_file(tmp_path, ["alice", "bob"])
        trace = tmp_path / "trace"
        alice = await whence_node("--config", config, "--node", "alice", "--trace", trace)
        bob = await whence_node("--config", config, "--node", "bob", "--trace", trace, "--json")
        assert alice.stdin is not None
        assert bob.stdin is not None
        alice.stdin.write(b"hello\nnot the end")
        alice.stdin.close()  # ends its input; it stays, and the last line counts
        lines = [without_life(await line_of(alice)) for _ in range(2)]
        assert lines == ["alice:1 hello", "alice:2 not the end"]
        assert await heard(bob) == {"origin": "alice", "number": 1, "text": "hello"}
        assert await heard(bob) == {"origin": "alice", "number": 2, "text": "not the end"}
        bob.stdin.write(b"\xff\xfe\n")
        await bob.stdin.drain()
        assert await heard(bob) == {"origin": "bob", "number": 1, "base64": "//4="}
        assert without_life(await line_of(alice)) == "bob:1 " + 2 * "\N{REPLACEMENT CHARACTER}"
        alice.send_signal(signal.SIGTERM)
        await end(alice)
        bob.send_signal(signal.SIGINT)
        _, errors = await end(bob)
        assert (alice.returncode, bob.returncode) == (0, 0), errors
        [report] = verify_trace(trace, complete=True)
        assert report.ok
        assert (report.broadcasts, report.deliveries) == (3, 6)
        assert replay(trace).ok

    asyncio.run(main())


def test_until_eof_leaves_when_the_input_ends(tmp_path: Path) -> None:
    async def main() -> None:
        config = config_file(tmp_path, ["alice", "bob"])
        bob = await whence_node("--config", config, "--node", "bob")
        alice = await whence_node("--config", config, "--node", "alice", "--until-eof")
        assert alice.stdin is not None
        alice.stdin.write(b"".join(b"%d\n" % number for number in range(500)))
        alice.stdin.close()
        output, errors = await end(alice)
        assert alice.returncode == 0, errors
        lines = [without_life(line) for line in output.splitlines()]
        assert lines == [f"alice:{number + 1} {number}" for number in range(500)]
        assert [await line_of(bob) for _ in range(500)] == output.splitlines()
        bob.send_signal(signal.SIGTERM)
        await end(bob)
        assert bob.returncode == 0

    asyncio.run(main())


WRONG_FILES = {
    "unknown field": ('group = "g"\npears = {}\n[peers]\na = "h:1"\n', "unknown field `pears`"),
    "missing field": ('node = "a"\n', "missing required field `group`"),
    "wrong type": ('group = "g"\n[peers]\na = 1\n', "Expected `str`, got `int` (at peers[...])"),
    "unknown limit": (
        'group = "g"\n[peers]\na = "h:1"\n[limits]\nque = 1\n',
        "unknown field `que` (at limits)",
    ),
    "no list, but contact": (
        'group = "g"\nnode = "a"\nprotocol = "vector"\ncontact = "h:1"\n[peers]\na = "h:1"\n',
        "protocol 'vector' has a list of members, and no `contact`",
    ),
    "no list, but shuffles": (
        'group = "g"\nnode = "a"\nprotocol = "vector"\nshuffle_s = 1.0\n[peers]\na = "h:1"\n',
        "protocol 'vector' has a list of members, and no `shuffle_s`",
    ),
    "a list where there is none": (
        'group = "g"\nnode = "a"\nprotocol = "prc"\nlisten = "h:1"\n[peers]\na = "h:1"\n',
        "protocol 'prc' has no list of members",
    ),
    "nowhere to be found": ('group = "g"\nnode = "a"\nprotocol = "prc"\n', "needs `listen`"),
    "not TOML": ("group = \n", "it is not valid TOML"),
    "no node": ('group = "g"\n[peers]\na = "h:1"\n', "which node this is"),
}


@pytest.mark.parametrize("what", WRONG_FILES)
def test_a_wrong_configuration_names_file_and_field(tmp_path: Path, what: str) -> None:
    text, words = WRONG_FILES[what]
    path = tmp_path / "node.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert words in caught.value.reason
    assert str(path) in caught.value.what


def test_a_parameter_cannot_be_mistaken_for_a_keyword_of_join(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text('group = "g"\nnode = "a"\n[peers]\na = "h:1"\n[params]\nlisten = "everywhere"\n')
    with pytest.raises(ParameterError, match="'listen' of protocol 'log'"):
        load_config(path)


def test_mistakes_end_with_two_lines_and_exit_code_2(tmp_path: Path) -> None:
    async def main() -> None:
        node = await whence_node("--config", tmp_path / "missing.toml")
        output, errors = await end(node)
        assert node.returncode == 2
        assert output == ""
        assert [line.split(":")[0] for line in errors.splitlines()] == ["error", "fix"]
        assert "Traceback" not in errors

    asyncio.run(main())


def test_the_example_configuration_is_right() -> None:
    config = load_config(EXAMPLE)
    assert (config.group, config.node, sorted(config.peers)) == ("room", "alice", ["alice", "bob", "carol"])
    assert load_config(EXAMPLE, "carol").node == "carol"
    swarm = load_config(SWARM_EXAMPLE, contact="127.0.0.1:7102")
    assert (swarm.protocol, swarm.peers, swarm.listen) == ("prc", {}, "127.0.0.1:7101")
    assert swarm.contact == "127.0.0.1:7102"
    log = load_config(LOG_EXAMPLE, "ann", listen="127.0.0.1:7103", contact=["127.0.0.1:7101"])
    assert (log.protocol, log.node, log.contact) == ("log", "ann", ["127.0.0.1:7101"])


def test_nodes_without_a_list_of_members_join_through_a_contact(tmp_path: Path) -> None:
    async def main() -> None:
        ports = free_ports(3)
        listens = [f"127.0.0.1:{port}" for port in ports]
        trace = tmp_path / "trace"
        nodes: list[Process] = []
        for name, listen, contact in zip("abc", listens, ["", listens[0], listens[1]], strict=True):
            config = tmp_path / f"{name}.toml"
            lines = [
                f'group = "room"\nnode = "{name}"\nprotocol = "prc"\nlisten = "{listen}"\nshuffle_s = 0.5'
            ]
            if name == "b":  # in its file; c is told on the command line
                lines.append(f'contact = "{contact}"')
            config.write_text("\n".join(lines) + "\n[params]\nown_after_echo = true\n")
            told = ["--contact", contact] if name == "c" else []
            node = await whence_node("--config", config, "--trace", trace, *told)
            nodes.append(node)
            assert node.stderr is not None
            said = (await asyncio.wait_for(node.stderr.readline(), 60)).decode()
            assert said == f"{name} takes part in 'room'\n"
        for node in nodes:
            assert node.stdin is not None
            node.stdin.write(b"hello\n")
        for node in nodes:
            lines = {re.sub(r":\d+(~\w+)? ", " ", await line_of(node)) for _ in nodes}
            assert lines == {"a hello", "b hello", "c hello"}
        for node in nodes:
            node.send_signal(signal.SIGTERM)
            _, errors = await end(node)
            assert node.returncode == 0, errors
        [report] = verify_trace(trace)
        assert report.ok
        assert (report.broadcasts, report.deliveries) == (3, 9)
        assert replay(trace).ok

    asyncio.run(main())


def test_the_chat_demonstration_is_causal_at_everybody() -> None:
    async def main() -> None:
        demo = await asyncio.create_subprocess_exec(
            sys.executable, str(CHAT), "--demo", stdout=PIPE, stderr=PIPE
        )
        output, errors = await end(demo)
        assert demo.returncode == 0, errors
        conversation = [
            "alice: Shall we meet at eight?",
            "bob: Could we make it nine?",
            "carol: Nine is fine.",
            "alice: Nine, then!",
        ]
        expected = [
            line for who in ("alice", "bob", "carol") for line in (f"--- what {who} saw", *conversation)
        ]
        assert output.splitlines() == expected

    asyncio.run(main())


def test_people_can_chat(tmp_path: Path) -> None:
    async def main() -> None:
        ports = [f"{name}={port}" for name, port in zip(["alice", "bob"], free_ports(2), strict=True)]

        async def person(name: str) -> Process:
            return await asyncio.create_subprocess_exec(
                sys.executable, str(CHAT), name, "--ports", *ports, stdin=PIPE, stdout=PIPE
            )

        alice, bob = await person("alice"), await person("bob")
        assert alice.stdin is not None
        assert bob.stdin is not None
        assert "You are bob" in await line_of(bob)
        alice.stdin.write(b"hi bob\n")
        assert await line_of(bob) == "alice: hi bob"
        bob.stdin.write(b"hi alice\n")
        await line_of(alice)
        assert await line_of(alice) == "bob: hi alice"
        alice.stdin.close()
        await end(alice)
        bob.stdin.close()
        await end(bob)
        assert (alice.returncode, bob.returncode) == (0, 0)

    asyncio.run(main())


def test_the_sensor_demonstration_keeps_order_while_a_fifth_is_lost() -> None:
    async def main() -> None:
        demo = await asyncio.create_subprocess_exec(
            sys.executable, str(SENSOR), "--demo", stdout=PIPE, stderr=PIPE
        )
        output, errors = await end(demo)
        assert demo.returncode == 0, errors
        assert re.fullmatch(
            r"sensor:  60 readings, each good for 0\.4 s\n"
            r"cooler:  \d+ answers to what was hot\n"
            r"display: [1-9]\d* readings and \d+ answers in time\n"
            r" +\d+ too late, 0 out of order\n",
            output,
        ), output

    asyncio.run(main())


def test_nodes_over_udp_with_loss_and_deadlines(tmp_path: Path) -> None:
    async def main() -> None:
        config = config_file(tmp_path, ["alice", "bob"])
        config.write_text(config.read_text().replace('"vector"', '"odca"'))
        alice = await whence_node("--config", config, "--node", "alice", "--loss", 0.2, "--deadline", 30)
        bob = await whence_node("--config", config, "--node", "bob", "--json", "--loss", 0.2)
        assert alice.stdin is not None
        assert bob.stdin is not None
        read = asyncio.create_task(line_of(bob))
        while not read.done():  # what is sent before bob is there is lost, as on any datagram link
            alice.stdin.write(b"hello\n")
            await asyncio.sleep(0.1)
        told = json.loads(await read)
        assert (told["origin"], told.get("text")) == ("alice", "hello")
        for process in (alice, bob):
            process.send_signal(signal.SIGTERM)
            _, errors = await end(process)
            assert process.returncode == 0, errors

    asyncio.run(main())


def test_a_deadline_where_there_are_none_is_said_and_does_not_end_the_node(tmp_path: Path) -> None:
    async def main() -> None:
        config = config_file(tmp_path, ["alice"])
        alice = await whence_node("--config", config, "--node", "alice", "--deadline", 1, "--until-eof")
        assert alice.stdin is not None
        alice.stdin.write(b"hello\n")
        alice.stdin.close()
        output, errors = await end(alice)
        assert (alice.returncode, output) == (0, "")
        assert "a line was not sent" in errors
        wrong = await whence_node("--config", config, "--node", "alice", "--transport", "udp")
        _, errors = await end(wrong)
        assert wrong.returncode == 2
        assert "needs links that lose nothing" in errors

    asyncio.run(main())


def test_nodes_as_processes_with_keys(tmp_path: Path) -> None:
    """Listening at every address of the machine, which without keys is refused in two lines."""

    async def main() -> None:
        keys_for(tmp_path / "keys", "alice", "bob")
        names = ["alice", "bob"]
        config = config_file(tmp_path, names)
        listen = {
            name: f"0.0.0.0:{load_config(config, name).peers[name].rpartition(':')[2]}" for name in names
        }
        for name in names:
            file = tmp_path / f"{name}.toml"
            file.write_text(f'keys = "keys"\nlisten = "{listen[name]}"\n{config.read_text()}')
        alice = await whence_node("--config", tmp_path / "alice.toml", "--node", "alice")
        bob = await whence_node("--config", tmp_path / "bob.toml", "--node", "bob")
        assert alice.stdin is not None
        alice.stdin.write(b"for members only\n")
        await alice.stdin.drain()
        assert re.fullmatch(r"alice:\d+(~\w+)? for members only", await line_of(bob))
        for process in (alice, bob):
            process.send_signal(signal.SIGTERM)
            _, errors = await end(process)
            assert process.returncode == 0, errors
            assert "Traceback" not in errors
        (tmp_path / "alice.toml").write_text(f'listen = "{listen["alice"]}"\n{config.read_text()}')
        bare = await whence_node("--config", tmp_path / "alice.toml", "--node", "alice")
        _, errors = await end(bare)
        assert bare.returncode == 2
        assert errors.startswith(f"error: listen {listen['alice']}: it is not on this machine")
        assert "plaintext=True" in errors.splitlines()[1]
        given = await whence_node(
            "--config", tmp_path / "alice.toml", "--node", "alice", "--keys", tmp_path / "keys", "--until-eof"
        )
        assert given.stdin is not None
        given.stdin.close()
        _, errors = await end(given)
        assert given.returncode == 0, errors

    asyncio.run(main())
