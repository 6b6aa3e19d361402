"""Processes, a network and disks in memory, on an event loop whose time passes when nothing else can happen.

A minute of a group takes about a second, and the same seed gives the same run. The code under test is the
real one: it finds an event loop whose connections lead to other processes of the same `World`, and clocks and
randomness that the world gives. A process is what runs in one context: it can be killed between any two of
its steps, stopped, and continued with all that came meanwhile.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import fcntl
import random
import selectors
import signal
import sqlite3
import traceback
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from whence.live import blocks, book, join, log, node, overlay, sqlite, store, tcp, waiting

EPOCH_S = 1_800_000_000.0
LATENCY_S = (0.0002, 0.002)
DISK_S = (0.0005, 0.004)
_RUNNING: contextvars.ContextVar[VirtualProcess | None] = contextvars.ContextVar("process", default=None)
_DEAD: list[Any] = []  # coroutines that never end: to collect them would run their last lines


class _Passing(selectors.SelectSelector):
    """Whoever waits gets what it waits for: time passes."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        assert timeout is not None, "nothing can happen any more"
        self.now_s += max(0.0, timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop of one world: callbacks of a process that has ended are not called."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._passing = _Passing()
        super().__init__(self._passing)

    def time(self) -> float:
        return self._passing.now_s

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:
        process = _RUNNING.get() if context is None else context.get(_RUNNING)
        if process is None:
            return super().call_soon(callback, *args, context=context)
        cell: list[asyncio.Handle] = []
        cell.append(super().call_soon(process.do, cell, callback, *args, context=context))
        return cell[0]

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Any:
        process = _RUNNING.get() if context is None else context.get(_RUNNING)
        if process is None:
            return super().call_at(when, callback, *args, context=context)
        cell: list[asyncio.Handle] = []
        cell.append(super().call_at(when, process.do, cell, callback, *args, context=context))
        return cell[0]

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> Any:
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:
        """The disk: it takes some time, and a process may end before or after the work is done."""
        future = self.create_future()

        def settle(result: Any, error: BaseException | None) -> None:
            if not future.done():
                future.set_result(result) if error is None else future.set_exception(error)

        def work() -> None:
            result = error = None
            try:
                result = func(*args)
            except Exception as found:  # noqa: BLE001 - it is the caller's
                error = found
            self.call_later(self._world.draw.uniform(*DISK_S), settle, result, error)

        self.on_disk(work)
        return future

    def on_disk(self, work: Callable[[], None]) -> None:
        """Do something after what the process has asked of its disk before."""
        process = _RUNNING.get()
        if process is None:
            work()
            return
        process.disk_free_s = max(self.time(), process.disk_free_s) + self._world.draw.uniform(*DISK_S)
        self.call_at(process.disk_free_s, work)

    async def create_server(self, factory: Any, host: Any, port: Any, **_: Any) -> Any:  # type: ignore[override]
        process = _RUNNING.get()
        assert process is not None
        return self._world.bind((host, port), factory, process)

    async def create_connection(self, factory: Any, host: Any, port: Any, **_: Any) -> Any:  # type: ignore[override]
        process = _RUNNING.get()
        assert process is not None
        await asyncio.sleep(self._world.latency_s())
        return await self._world.connect(factory, (host, port), process)


class VirtualThread:
    """In place of a thread that writes to the disk."""

    def __init__(self, *_: Any, **__: Any) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self._loop = loop

    def submit(self, func: Any, *args: Any) -> None:
        self._loop.on_disk(lambda: func(*args))

    def shutdown(self, *_: Any, **__: Any) -> None:
        """It has ended when its process has."""


class VirtualServer:
    """A listening socket."""

    def __init__(self, world: World, address: tuple[str, int], factory: Any, process: VirtualProcess) -> None:
        self.process, self.factory, self.is_serving = process, factory, False
        self._world, self._address = world, address
        self.context = contextvars.copy_context()

    async def start_serving(self) -> None:
        self.is_serving = True

    def close(self) -> None:
        if self._world.servers.get(self._address) is self:
            del self._world.servers[self._address]


class Pair:
    """What is wrong between two processes."""

    def __init__(self) -> None:
        self.refuses = self.truncates = False
        self.delay_s = 0.0
        self.holds: set[bool] = set()  # nothing passes from the smaller name (True), or to it; it is kept
        self.swallows: set[bool] = set()  # the same, and it is gone
        self.waiting: list[Callable[[], None]] = []
        self.ends: dict[VirtualTransport, None] = {}


class VirtualTransport(asyncio.Transport):
    """One end of a connection."""

    def __init__(self, world: World, process: VirtualProcess, other: VirtualProcess) -> None:
        super().__init__()
        self.world, self.process = world, process
        self.pair = world.pairs[frozenset((process.name, other.name))]
        self.is_from_smaller = process.name < other.name
        self.there: VirtualTransport  # the other end
        self.protocol: Any = None
        self.context = contextvars.copy_context()
        self.is_closed = False
        self._is_closing = False
        self._last_s = 0.0
        process.transports[self] = None

    # From its protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name in ("peername", "sockname") else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There is room."""

    def is_closing(self) -> bool:
        return self._is_closing

    def write(self, data: Any) -> None:
        if not self._is_closing:
            self._later(self._carry, bytes(data))

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._later(self.there.hang_up)
            self.world.loop.call_soon(self._end, context=self.context)

    def abort(self) -> None:
        self.close()

    # On the way

    def _later(self, step: Callable[..., None], *given: Any) -> None:
        """In the order of writing, after some time, in no process."""
        world = self.world
        at_s = world.loop.time() + world.latency_s() + self.pair.delay_s
        self._last_s = max(self._last_s + 1e-6, at_s)  # two at one time would come in any order
        world.outside.run(world.loop.call_at, self._last_s, self._pass, step, *given)

    def _pass(self, step: Callable[..., None], *given: Any) -> None:
        if self.is_from_smaller in self.pair.holds:
            self.pair.waiting.append(lambda: self._pass(step, *given))
        else:
            step(*given)

    def _carry(self, data: bytes) -> None:
        pair = self.pair
        if self.is_from_smaller in pair.swallows or self.there.is_closed:
            return
        if pair.truncates:
            pair.truncates = False
            data = data[: len(data) // 2]
            self.world.outside.run(self.world.loop.call_soon, self.world.cut, pair)
        self.world.loop.call_soon(self.there.take, data, context=self.there.context)

    def accept(self, factory: Callable[[], Any]) -> None:
        """The other end has connected."""
        self.protocol = factory()
        self.protocol.connection_made(self)

    def take(self, data: bytes) -> None:
        """Bytes have arrived."""
        if not self._is_closing and not self.is_closed:
            self.protocol.data_received(data)

    def hang_up(self) -> None:
        """The other end has closed, or the connection is cut."""
        self._is_closing = True
        self.world.loop.call_soon(self._end, context=self.context)

    def _end(self) -> None:
        if not self.is_closed:
            self.is_closed = self._is_closing = True
            self.pair.ends.pop(self, None)
            self.process.transports.pop(self, None)
            self.protocol.connection_lost(None)


class VirtualProcess:
    """One process: it takes orders line by line, and has what it opened."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.returncode: int | None = None
        self.transports: dict[VirtualTransport, None] = {}
        self.databases: list[sqlite3.Connection] = []
        self.locks: list[int] = []
        self.at_end: list[Callable[[], None]] = []
        self.disk_free_s = 0.0
        self._is_stopped = False
        self._backlog: list[tuple[list[asyncio.Handle], contextvars.Context, Any, tuple[Any, ...]]] = []
        self._orders: asyncio.Queue[str | None] = asyncio.Queue()
        self._ended = asyncio.Event()

    def run(self, main: Coroutine[Any, Any, None], errors: Callable[[str], None]) -> None:
        """Run `main`; what it fails with is written with `errors`."""
        context = contextvars.copy_context()
        context.run(_RUNNING.set, self)
        _DEAD.append(self.world.loop.create_task(self._main(main, errors), context=context))

    async def _main(self, main: Coroutine[Any, Any, None], errors: Callable[[str], None]) -> None:
        try:
            await main
        except Exception:  # noqa: BLE001 - a process ends with it
            errors(traceback.format_exc())
            self._end(1)
        else:
            self._end(0)

    def do(self, cell: list[asyncio.Handle], callback: Any, *args: Any) -> None:
        """One step."""
        if self.returncode is not None:
            return
        if self._is_stopped:
            self._backlog.append((cell, contextvars.copy_context(), callback, args))
        else:
            callback(*args)

    async def orders(self) -> AsyncIterator[str]:
        """What it is told, until it is told to leave."""
        while (line := await self._orders.get()) not in (None, "leave"):
            assert line is not None
            yield line

    def say(self, order: str) -> None:
        self._orders.put_nowait(order)

    def send_signal(self, number: int) -> None:
        if number == signal.SIGKILL:
            self._end(-number)
        elif number == signal.SIGSTOP:
            self._is_stopped = True
        elif number == signal.SIGCONT and self._is_stopped:
            self._is_stopped = False
            backlog, self._backlog = self._backlog, []
            # What has arrived is read before timers are looked at.
            backlog.sort(
                key=lambda each: not isinstance(getattr(each[2], "__self__", None), VirtualTransport)
            )
            for cell, context, callback, args in backlog:
                if not cell[0].cancelled():
                    self.world.loop.call_soon(callback, *args, context=context)

    async def wait(self) -> None:
        await self._ended.wait()

    async def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _end(self, code: int) -> None:
        if self.returncode is not None:
            return
        self.returncode = code
        for server in [each for each in self.world.servers.values() if each.process is self]:
            server.close()
        for transport in list(self.transports):
            transport.close()
            transport.pair.ends.pop(transport, None)
        for database in self.databases:
            database.close()
        for handle in self.locks:
            with suppress(OSError):  # it has unlocked it
                fcntl.flock(handle, fcntl.LOCK_UN)
        for each in self.at_end:
            each()
        self._ended.set()


class World:
    """All processes, and what is between them."""

    def __init__(self, seed: str) -> None:
        self.draw = random.Random(seed)
        self.loop = VirtualLoop(self)
        self.loop.set_exception_handler(lambda *_: None)
        self.outside = contextvars.copy_context()
        self.servers: dict[tuple[str, int], VirtualServer] = {}
        self.pairs: dict[frozenset[str], Pair] = defaultdict(Pair)

    def latency_s(self) -> float:
        return self.draw.uniform(*LATENCY_S)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run to the end."""
        with self._patched():
            return self.loop.run_until_complete(work)

    @contextmanager
    def _patched(self) -> Iterator[None]:
        """Clocks and randomness of this world in the modules that ask for them."""
        draws: Any = random.Random(self.draw.random())
        draws.Random = lambda *seed: random.Random(*(seed or (draws.random(),)))
        secret = SimpleNamespace(
            randbits=draws.getrandbits, token_hex=lambda n: f"{draws.getrandbits(8 * n):x}"
        )
        disk = SimpleNamespace(**{**vars(sqlite3), "connect": self._open})
        lock = SimpleNamespace(**{**vars(fcntl), "flock": self._lock})
        with ExitStack() as stack:
            for module in (node, join):
                stack.enter_context(patch.object(module, "secrets", secret))
            for module in (tcp, overlay, log):
                stack.enter_context(patch.object(module, "random", draws))
            for module in (store, book):
                stack.enter_context(patch.object(module, "ThreadPoolExecutor", VirtualThread))
            for module in (node, waiting):  # the journal of a node, and its clock
                stack.enter_context(patch.object(module, "time", self.clock()))
            for module in (sqlite, blocks):
                stack.enter_context(patch.object(module, "sqlite3", disk))
            stack.enter_context(patch.object(book, "fcntl", lock))
            yield

    def clock(self) -> Any:
        """In place of the module `time`."""
        now_s = self.loop.time
        return SimpleNamespace(
            time=lambda: EPOCH_S + now_s(),
            time_ns=lambda: int((EPOCH_S + now_s()) * 1e9),
            monotonic_ns=lambda: int(now_s() * 1e9),
            monotonic=now_s,
        )

    def _open(self, *given: Any, **options: Any) -> sqlite3.Connection:
        database = sqlite3.connect(*given, **options)
        process = _RUNNING.get()
        if process is not None:
            process.databases.append(database)
        database.execute("PRAGMA synchronous = OFF")  # nothing here survives the machine
        return database

    def _lock(self, handle: int, how: int) -> None:
        fcntl.flock(handle, how)
        process = _RUNNING.get()
        if process is not None:
            process.locks.append(handle)

    # Connections

    def bind(self, address: tuple[str, int], factory: Any, process: VirtualProcess) -> VirtualServer:
        if address in self.servers:
            raise OSError(errno.EADDRINUSE, "address in use")
        server = self.servers[address] = VirtualServer(self, address, factory, process)
        return server

    async def connect(self, factory: Any, address: tuple[str, int], process: VirtualProcess) -> Any:
        server = self.servers.get(address)
        if server is None or not server.is_serving:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "nobody listens")
        pair = self.pairs[frozenset((process.name, server.process.name))]
        if pair.refuses:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "refused")
        if pair.holds:
            await asyncio.Event().wait()  # until the caller loses its patience
        here = VirtualTransport(self, process, server.process)
        there = server.context.run(VirtualTransport, self, server.process, process)
        here.there, there.there = there, here
        pair.ends |= {here: None, there: None}
        here.protocol = factory()
        self.loop.call_soon(there.accept, server.factory, context=there.context)
        here.protocol.connection_made(here)
        return here, here.protocol

    def cut(self, pair: Pair) -> None:
        """Every connection ends, at both ends; what is on its way is lost."""
        for end in list(pair.ends):
            end.hang_up()

    def heal(self, pair: Pair) -> None:
        """All faults end; a connection of which something is missing ends with them."""
        if pair.swallows or pair.truncates:
            self.cut(pair)
        pair.refuses = pair.truncates = False
        pair.delay_s = 0.0
        pair.holds, pair.swallows = set(), set()
        waiting, pair.waiting = pair.waiting, []
        for step in waiting:
            step()
