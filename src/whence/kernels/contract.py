"""What a kernel is: it says whether it takes a scenario, and runs it with the outcome of the cores.

    missing(scenario)                    # None, or why there is no kernel for its protocol and topology
    kernel = load(scenario)              # its module, imported now: numba takes half a second
    kernel.refusal(scenario, level)      # None, or why the cores must run it
    kernel.run(scenario, recorder, level)

A kernel is a module `kernels/<paper>/kernel.py` with the functions of `Kernel`. Only `lab/run.py` chooses
between kernels and cores.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeAlias, cast

from whence import plugins
from whence.errors import MisuseError
from whence.sim.model import Contacts, Full, Hypercube, Overlay, Scenario
from whence.sim.outcome import Outcome
from whence.trace.schema import Level, Recorder

TESTED = "inside what the kernel's tests hold to the cores"

# What of a kernel's arrays is kept in `Outcome.detail`: the name of a part, and what that part must know.
Keep: TypeAlias = Mapping[str, Any]
NOTHING: Keep = MappingProxyType({})


class KernelEntry(NamedTuple):
    """The kernel of the protocol `name`: its module, and the topologies that it knows."""

    name: str
    module: str
    topologies: tuple[type, ...]


_KERNELS = {
    entry.name: entry
    for entry in (
        KernelEntry("vcube", "whence.kernels.vcube.kernel", (Full, Hypercube)),
        KernelEntry("tdca", "whence.kernels.deadline.kernel", (Full,)),
        KernelEntry("odca", "whence.kernels.deadline.kernel", (Full,)),
        KernelEntry("oppnet", "whence.kernels.oppnet.kernel", (Contacts,)),
        KernelEntry("prc", "whence.kernels.prc.kernel", (Overlay,)),
    )
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
    known = _entry(scenario)
    if known is None:
        return f"there is no kernel for protocol {scenario.protocol!r}"
    if not isinstance(scenario.topology, known.topologies):
        names = " or ".join(each.__name__.lower() for each in known.topologies)
        return f"the topology is not {names}"
    return None


def load(scenario: Scenario) -> Kernel:
    """Return the kernel for a scenario's protocol and topology, which `missing` says is there."""
    entry = _entry(scenario)
    if entry is None:
        raise KernelRefusalError("kernel", missing(scenario) or "it is gone", "Run it through the cores")
    return cast(Kernel, import_module(entry.module))


def kernels() -> Iterator[tuple[str, Kernel]]:
    """Yield our own kernels and their papers' names, each once, importing them one by one."""
    for module in dict.fromkeys(entry.module for entry in _KERNELS.values()):
        yield module.split(".")[-2], cast(Kernel, import_module(module))


def _entry(scenario: Scenario) -> KernelEntry | None:
    own = _KERNELS.get(scenario.protocol)
    return own or plugins.declared("KERNELS", KernelEntry, _KERNELS).get(scenario.protocol)


def refuse(kernel: str, reason: str | None) -> None:
    """Raise if there is a reason."""
    if reason is not None:
        raise KernelRefusalError(f"kernel of {kernel}", reason, "Run it through the cores")
