"""The one maker of a scenario's cores: the engine, the replay and the kernels have them from here.

What a core must know and the scenario says elsewhere is derived: over an overlay a core begins alone and with
`links = "dynamic"`; protocols that draw set-up times (`oppnet`, `log`) do it from the scenario's own seed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from whence.core.message import NodeId
from whence.core.protocol import Protocol as Core
from whence.protocols import registry
from whence.sim.model import Overlay, Scenario

Make: TypeAlias = Callable[[NodeId, Sequence[NodeId]], Core]  # (me, members) -> a fresh core


def core_params(scenario: Scenario) -> dict[str, Any]:
    """Return the parameters of a scenario's cores: those that it gives and those that follow from it."""
    if isinstance(scenario.topology, Overlay):
        return {"links": "dynamic", **scenario.params}
    if "seed" in registry.lookup(scenario.protocol).parameters:
        return {"seed": scenario.seed, **scenario.params}
    return dict(scenario.params)


def cores_of(scenario: Scenario) -> Make:
    """Return the function that makes the cores of a scenario."""
    params = core_params(scenario)
    alone = isinstance(scenario.topology, Overlay)

    def make(me: NodeId, members: Sequence[NodeId]) -> Core:
        return registry.make(scenario.protocol, me, [me] if alone else members, params)

    return make
