"""One process per server, one `whence mom up` per folder: locks that end with the process that holds them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path

from whence.errors import PlatformError

_TRIES = 20
_PAUSE_S = 0.01


class Lock:
    """A locked file that says the process id of its holder. The kernel frees it however the holder ends."""

    def __init__(self, path: Path, what: str, fix: str) -> None:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # what servers keep is private
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise PlatformError(
                str(path), error.strerror or str(error), "Set `folder` to one that may be written"
            ) from error
        if not self._try_hard():
            holder = os.pread(self._fd, 32, 0).decode(errors="replace").strip()
            os.close(self._fd)
            raise PlatformError(what, f"it runs already (process {holder or 'unknown'})", fix)
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, b"%d\n" % os.getpid(), 0)

    def _try_hard(self) -> bool:
        """More than once: `holder_of` may have the file for a moment, in whoever looks on."""
        for _ in range(_TRIES):
            with contextlib.suppress(OSError):
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            time.sleep(_PAUSE_S)
        return False

    def close(self) -> None:
        """Free it; in a child after a fork, let go of the copy, which does not free it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def holder_of(path: Path) -> int | None:
    """The process that holds a lock; None if nobody does."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        text = os.pread(fd, 32, 0).strip()
        return int(text) if text.isdigit() else None
    else:
        return None
    finally:
        os.close(fd)
