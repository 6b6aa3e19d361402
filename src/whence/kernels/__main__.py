"""`python -m whence.kernels`: compile the kernels that are not compiled, one after the other, and say so.

Whoever needs one compiles it. Where several processes will need it at once each would, so do it before.
"""

from __future__ import annotations

import sys
import time

from whence.kernels.contract import kernels


def main() -> None:
    """Compile what is not compiled."""
    for name, kernel in kernels():
        if not kernel.is_compiled():
            sys.stderr.write(f"compiling the kernel of {name} (once for each machine and release) ")
            sys.stderr.flush()
            start_s = time.process_time()
            kernel.warm_up()
            sys.stderr.write(f"{time.process_time() - start_s:.1f} CPU s\n")


if __name__ == "__main__":
    main()
