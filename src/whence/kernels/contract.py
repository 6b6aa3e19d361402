"""What a kernel is: it says whether it takes a scenario, and runs it with the outcome of the cores.

    missing(scenario)                    # None, or why there is no kernel for its protocol and topology
    kernel = load(scenario)              # its module, imported now: numba takes half a second
    kernel.refusal(scenario, level)      # None, or why the cores must run it
    kernel.run(scenario, recorder, level)

A kernel is a module `kernels/<paper>/kernel.py` with the functions of `Kernel`. Only `lab/run.py` chooses
between kernels and cores.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias, cast

from whence.errors import MisuseError
from whence.sim.model import Contacts, Full, Hypercube, Overlay, Scenario
from whence.sim.outcome import Outcome
from whence.trace.schema import Level, Recorder

TESTED = "inside what the kernel's tests hold to the cores"

# What of a kernel's arrays is kept in `Outcome.detail`: the name of a part, and what that part must know.
Keep: TypeAlias = Mapping[str, Any]
NOTHING: Keep = MappingProxyType({})

# Protocol -> the kernel's package and the topologies that it knows.
_KERNELS: Mapping[str, tuple[str, tuple[type, ...]]] = {
    "vcube": ("vcube", (Full, Hypercube)),
    "tdca": ("deadline", (Full,)),
    "odca": ("deadline", (Full,)),
    "oppnet": ("oppnet", (Contacts,)),
    "prc": ("prc", (Overlay,)),
}


class KernelRefusalError(MisuseError):
    """A kernel cannot run a scenario: the cores can."""


class Kernel(Protocol):
    """The functions of a kernel's module."""

    COMPILE_SECONDS: float  # measured: to compile it, once for each machine and release

    def refusal(self, scenario: Scenario, level: Level = ..., keep: Keep = ...) -> str | None:
        """Return why the cores must run a scenario; None if the kernel can."""

    def run(
        self, scenario: Scenario, recorder: Recorder | None = ..., level: Level = ..., keep: Keep = ...
    ) -> Outcome:
        """Run a scenario and tell `recorder` its rows.

        Raises KernelRefusalError, before the first row, for what `refusal` names and for what only the run
        itself shows.
        """

    def warm_up(self) -> None:
        """Compile the kernel, or load what is compiled."""

    def is_compiled(self) -> bool:
        """Return whether `run` can begin without compiling."""


def missing(scenario: Scenario) -> str | None:
    """Return why there is no kernel for a scenario's protocol and topology; None if there is one."""
    known = _KERNELS.get(scenario.protocol)
    if known is None:
        return f"there is no kernel for protocol {scenario.protocol!r}"
    if not isinstance(scenario.topology, known[1]):
        names = " or ".join(each.__name__.lower() for each in known[1])
        return f"the topology is not {names}"
    return None


def load(scenario: Scenario) -> Kernel:
    """Return the kernel for a scenario's protocol and topology, which `missing` says is there."""
    return cast(Kernel, import_module(f"whence.kernels.{_KERNELS[scenario.protocol][0]}.kernel"))


def refuse(kernel: str, reason: str | None) -> None:
    """Raise if there is a reason."""
    if reason is not None:
        raise KernelRefusalError(f"kernel of {kernel}", reason, "Run it through the cores")
