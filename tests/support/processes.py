"""Members of live groups as OS processes of their own.

Such a member is a module next to the test that starts it. Either it is run as a program with its settings as
JSON, takes part and prints its result (`results_of`, `take_part`):

    PYTHONPATH=tests python tests/live/udp_member.py '{"node": "n0", ...}'

Or it is forked and told over its standard input what to do, line by line (`Handle` is the parent's end,
`orders` and `Talker` the member's).
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import whence
from support.forked import Forked
from whence.errors import WhenceError

TESTS = Path(__file__).parents[1]
Run = Callable[[Any], Coroutine[Any, Any, None]]
Found = TypeVar("Found")


# The parent's end


async def launch(
    program: str, *arguments: str, within: Sequence[str] = (), **pipes: Any
) -> asyncio.subprocess.Process:
    """Run a module of the tests; it finds the others. `within`: a command that runs it somewhere else."""
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    return await asyncio.create_subprocess_exec(
        *within,
        sys.executable,
        program,
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": path},
        **pipes,
    )


async def results_of(program: str, members: Iterable[Any]) -> list[dict[str, Any]]:
    """Run each member in a process; answers what they print when they have done."""

    async def one(member: Any) -> dict[str, Any]:
        process = await launch(program, json.dumps(asdict(member)), stderr=asyncio.subprocess.PIPE)
        try:
            output, errors = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode == 0, f"{member.node}: {errors.decode()[-3000:]}"
        result: dict[str, Any] = json.loads(output)
        return result

    return list(await asyncio.gather(*map(one, members)))


class Handle:
    """The parent's handle of a member that is told what to do."""

    run: ClassVar[Run]  # what the member does

    def __init__(self, settings: Any, process: Forked) -> None:
        self.settings = settings
        self.process = process

    @classmethod
    async def start(cls, settings: Any) -> Self:
        return cls(settings, await Forked.heard(play, cls.run, settings))

    def say(self, line: str) -> None:
        self.process.say(line)

    async def answer(self, timeout_s: float = 60) -> dict[str, Any]:
        line = await asyncio.wait_for(self.process.stdout.readline(), timeout_s)
        assert line, f"{self.settings.node} is gone ({self.process.returncode})"
        answer: dict[str, Any] = json.loads(line)
        return answer

    async def report(self) -> dict[str, Any]:
        self.say("report")
        return await self.answer()

    async def kill(self) -> None:
        """SIGKILL, wherever it is in its work."""
        await self.process.kill()

    async def end(self) -> None:
        if self.process.returncode is None:
            self.say("leave")
            await asyncio.wait_for(self.process.wait(), 60)
            assert self.process.returncode == 0, self.settings.node


async def until(
    ask: Callable[[], Awaitable[Found]], condition: Callable[[Found], bool], timeout_s: float
) -> Found:
    """The first answer for which the condition holds."""
    found = await ask()
    try:
        async with asyncio.timeout(timeout_s):
            while not condition(found):
                await asyncio.sleep(0.1)
                found = await ask()
    except TimeoutError:
        raise AssertionError(found) from None
    return found


# The member's end


def take_part(run: Callable[[Any], Coroutine[Any, Any, Found]], kind: Callable[..., Any]) -> Found:
    """What the program does: run with the settings that it was given."""
    return play(run, kind(**json.loads(sys.argv[1])))


def play(run: Callable[[Any], Coroutine[Any, Any, Found]], settings: Any) -> Found:
    """In the member's process. SIGUSR1 shows where it hangs."""
    faulthandler.register(signal.SIGUSR1)
    return asyncio.run(run(settings))


async def orders() -> AsyncIterator[str]:
    """The lines of standard input, up to "leave" or its end."""
    stdin = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin)
    while (line := (await stdin.readline()).decode().strip()) not in ("leave", ""):
        yield line


class Talker:
    """Broadcasts until it shall be quiet, and reads until the group ends."""

    def __init__(self, group: whence.Group, pause_s: Callable[[], float], *, is_victim: bool) -> None:
        self.seen: dict[str, list[int]] = {}  # origin -> how many, the last
        self.error = ""
        self.is_quiet = asyncio.Event()
        self._group = group
        self._pause_s = pause_s
        self._is_victim = is_victim  # it will be killed: no broadcast that it has recorded may be lost
        self._speaking = asyncio.create_task(self._speak())
        self._reading = asyncio.create_task(self._read())

    async def fall_silent(self) -> None:
        """The last broadcast is made; leave the group then."""
        self.is_quiet.set()
        await self._speaking

    async def read_out(self) -> None:
        """All that was delivered is read: the group has been left."""
        await self._reading

    async def _speak(self) -> None:
        try:
            while not self.is_quiet.is_set():
                await self._group.broadcast(self._group.node.encode())
                if self._is_victim and self._group._trace is not None:
                    # On disk before the packets leave: they go in the next turn of the loop.
                    self._group._trace.flush()
                await asyncio.sleep(self._pause_s())
        except WhenceError as problem:
            self.error = str(problem)

    async def _read(self) -> None:
        try:
            async for message in self._group:
                each = self.seen.setdefault(message.origin, [0, 0])
                each[0] += 1
                each[1] = message.number
        except WhenceError as problem:
            self.error = str(problem)


def find_python(wanted: str) -> str | None:
    """An interpreter of that version which really starts (pyenv's shims exist for versions that are off)."""
    fetched = TESTS.parent / "out" / "python"  # make python
    places = [
        *Path.home().glob(f".pyenv/versions/{wanted}*/bin/python"),
        *fetched.glob(f"{wanted}/bin/python"),
    ]
    on_path = shutil.which(f"python{wanted}")
    for python in [*map(str, places), *([on_path] if on_path else [])]:
        said = subprocess.run([python, "-V"], capture_output=True, text=True, timeout=60, check=False)
        if said.returncode == 0 and f" {wanted}." in said.stdout:
            return python
    return None
