"""Groups for scripts and notebooks, without `async`: an event loop in a thread does the work.

    with whence.sync_join("room", node="ann", contact="127.0.0.1:7400") as group:
        group.broadcast(b"hello")
        print(group.receive(timeout_s=5).payload)

A thin front: for anything else use `whence.join`. Calls block; any thread may make them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from typing import Any, NoReturn, TypeVar

from whence.errors import GroupClosedError, MisuseError
from whence.live.join import join

Result = TypeVar("Result")


def sync_join(name: str, *, node: str, **options: Any) -> SyncJoining:
    """As `whence.join`, with the same arguments: `with sync_join(...) as group`."""
    return SyncJoining(join(name, node=node, **options))


class SyncGroup:
    """A `Group`, or with a codec a `TypedGroup`, whose calls block."""

    def __init__(self, group: Any, loop: asyncio.AbstractEventLoop) -> None:
        self.group = group
        self._loop = loop

    def broadcast(self, value: Any, **options: Any) -> Any:
        """As `Group.broadcast`."""
        return self._call(self.group.broadcast(value, **options))

    def send(self, to: str, value: Any, **options: Any) -> Any:
        """As `Group.send`."""
        return self._call(self.group.send(to, value, **options))

    def ask(self, to: str, value: Any, **options: Any) -> Any:
        """As `TypedGroup.ask`."""
        return self._call(self.group.ask(to, value, **options))

    def reply(self, question: Any, value: Any, **options: Any) -> Any:
        """As `TypedGroup.reply`."""
        return self._call(self.group.reply(question, value, **options))

    def receive(self, timeout_s: float | None = None) -> Any:
        """The next message; `TimeoutError` if none comes in time."""

        async def next_message() -> Any:
            async with asyncio.timeout(timeout_s):
                return await self.group.receive()

        return self._call(next_message())

    def done(self, message: Any) -> None:
        """As `Group.done`."""
        self._loop.call_soon_threadsafe(self.group.done, message)

    def stats(self) -> Any:
        """As `Group.stats`."""

        async def ask() -> Any:
            return getattr(self.group, "group", self.group).stats()

        return self._call(ask())

    def __iter__(self) -> Iterator[Any]:
        """Every message, until the group is closed."""
        while True:
            try:
                yield self.receive()
            except GroupClosedError:
                return

    def leave(self) -> None:
        """As `Group.leave`."""
        self._call(self.group.leave())

    def _call(self, work: Coroutine[Any, Any, Result]) -> Result:
        if not self._loop.is_running():
            work.close()
            raise GroupClosedError("group", "it was left", "Join again to take part")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


class SyncJoining:
    """The result of `sync_join`: enter it to be a member, leave it to say good-bye."""

    def __init__(self, joining: Any) -> None:
        self._joining = joining
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="whence", daemon=True)

    def __getattr__(self, name: str) -> NoReturn:
        if not name.startswith("_") and hasattr(SyncGroup, name):
            fix = "Write `with whence.sync_join(...) as group:`, and use the group inside"
            raise MisuseError("sync_join", f"{name!r} is asked for before the group is entered", fix)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __enter__(self) -> SyncGroup:
        if self._thread.ident is not None:
            raise MisuseError(
                "sync_join", "it was entered before", "Call whence.sync_join again for each use"
            )
        self._thread.start()
        try:
            group = asyncio.run_coroutine_threadsafe(self._joining.__aenter__(), self._loop).result()
        except BaseException:
            self._stop()
            raise
        return SyncGroup(group, self._loop)

    def __exit__(self, *_: object) -> None:
        try:
            asyncio.run_coroutine_threadsafe(self._joining.__aexit__(None, None, None), self._loop).result()
        finally:
            self._stop()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
