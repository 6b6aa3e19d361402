"""`python -m whence` is the command `whence`."""

from __future__ import annotations

import sys
from typing import NoReturn


def start() -> NoReturn:
    """Load the command line and run it; Ctrl-C while it loads is an ordinary end, too."""
    try:
        from whence.cli.main import main
    except KeyboardInterrupt:
        sys.stderr.write("interrupted: nothing was begun; run the same command again\n")
        sys.exit(130)
    main()


if __name__ == "__main__":
    start()
