"""`whence carry`: a daemon that keeps a group's log, and local programs that come and go."""

from __future__ import annotations

import asyncio
import json
import signal
import stat
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Any

import pytest

import whence
from live.test_log_live import node
from support.living import eventually, free_ports, in_a_loop, take
from whence.errors import MisuseError, RequestError, ServerDownError
from whence.servers.carry import Carried, CarryClient, carrier_of, serve_socket

PROGRAM = ("-c", "from whence.cli.main import main; main()", "carry")


async def carry(*arguments: object, **pipes: Any) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, *PROGRAM, *map(str, arguments), stdout=PIPE, stderr=PIPE, **pipes
    )


async def said(*arguments: object) -> str:
    process = await carry(*arguments)
    output, errors = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 0, errors.decode()
    return output.decode()


@in_a_loop
async def test_a_daemon_carries_for_programs_over_restarts(tmp_path: Path) -> None:
    ports = free_ports(2)
    config, path = tmp_path / "node.toml", tmp_path / "c.sock"
    config.write_text(f'group = "room"\nnode = "ann"\nlisten = "127.0.0.1:{ports[0]}"\nstore = "ann.db"\n')

    async def daemon() -> Process:
        process = await carry("run", "--config", config, "--socket", path)
        assert process.stderr is not None
        line = await asyncio.wait_for(process.stderr.readline(), 30)
        assert line.decode() == f"ann carries 'room' at {path}\n"
        return process

    first = await daemon()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    async with node("bob", ports[1], ports[0]) as bob:
        id_ = (await said("send", "hello", "--socket", path, "--key", "1")).strip()
        assert (await said("send", "hello", "--socket", path, "--key", "1")).strip() == id_
        await bob.broadcast(b"\xff from bob", copies=1)
        lines = [
            json.loads(line) for line in (await said("read", "r", "-s", path, "--count", "2")).splitlines()
        ]
        assert [(line["origin"], line["mine"]) for line in lines] == [("ann", True), ("bob", False)]
        first.kill()  # kill -9: what was done is on the disk, or comes again
        await first.wait()
        second = await daemon()
        await bob.broadcast(b"after the crash")
        async with CarryClient(path) as client:
            async for told in client.read("r"):
                assert isinstance(told, Carried)
                client.done(told)
                if told.payload == b"after the crash":
                    break
            async for told in client_read_all(path, "another", 3):
                assert told.lsn > 0
            status = await client.status()
            assert status["node"] == "ann"
            assert status["members"] == ["ann", "bob"]
            assert status["links"] == {"bob": "connected"}
            assert status["readers"]["r"] == 0
        text = await said("status", "-s", path)
        assert "linked    bob" in text
        assert json.loads(await said("status", "-s", path, "--json"))["log"]["missed"] == 0
        assert (await take(bob, 1))[0].payload == b"hello"
        second.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(second.wait(), 30) == 0
        assert not path.exists()
    gone = await carry("status", "-s", path)
    _, errors = await gone.communicate()
    assert gone.returncode == 2
    assert "no daemon serves it" in errors.decode()


async def client_read_all(path: Path, reader: str, count: int) -> Any:
    async with CarryClient(path) as client:
        async for told in client.read(reader):
            yield told
            count -= 1
            if not count:
                return


@in_a_loop
async def test_local_programs_cannot_hurt_the_daemon(tmp_path: Path) -> None:
    [port] = free_ports(1)
    path = tmp_path / "c.sock"
    async with node("ann", port, store=tmp_path / "a.db", keep=20_000) as ann:
        serving = asyncio.create_task(serve_socket(carrier_of(ann), path))
        await eventually(path.exists)
        bad = [
            b"nonsense", b"[]", b'{"op": "dance"}', b'{"op": "broadcast"}', b'{"op": "done", "lsn": 5}',
            b'{"op": "broadcast", "base64": "!"}', b'{"op": "read", "reader": ""}', b'{"op": "x", "y": 1}',
            b'{"op": "retire", "name": "bob"}',
        ]  # fmt: skip
        reader, writer = await asyncio.open_unix_connection(str(path))
        for line in bad:
            writer.write(line + b"\n")
            answer = json.loads(await asyncio.wait_for(reader.readline(), 10))
            assert set(answer) == {"error", "fix", "ref"}, (line, answer)
        writer.write(b"x" * 3_000_000)  # a line that never ends
        writer.close()
        idle = [await asyncio.open_unix_connection(str(path)) for _ in range(300)]
        for _, each in idle:
            each.close()
        async with CarryClient(path) as client:
            await asyncio.gather(*(ann.broadcast(b"%d" % number) for number in range(600)))
            await eventually(lambda: ann.stats().log.size_bytes < 40_000)  # type: ignore[union-attr]
            assert (await client.status())["log"]["size_bytes"] < 40_000
            found = []
            async for told in client.read("late"):  # the quota has cut what came first
                found.append(told)
                if isinstance(told, Carried) and told.payload == b"599":
                    break
            assert found[0]["reason"] == "unread"  # type: ignore[index, call-overload]
            assert found[0]["first_lsn"] == 1  # type: ignore[index, call-overload]
            numbers = [each.number for each in found if isinstance(each, Carried)]
            assert numbers == list(range(601 - len(numbers), 601))
            with pytest.raises(RequestError, match="1050000 bytes"):
                await client.broadcast(bytes(1_050_000))
        with pytest.raises(whence.WhenceError, match="another daemon"):
            await serve_socket(carrier_of(ann), path)
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
    async with node("eve", port) as eve:
        with pytest.raises(MisuseError, match="no log on a disk"):
            carrier_of(eve)
    with pytest.raises(ServerDownError):
        await CarryClient(path).__aenter__()
