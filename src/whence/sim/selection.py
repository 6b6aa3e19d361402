"""What `senders`, `nodes` and the like mean: names, all, or so many drawn from the seed."""

from __future__ import annotations

from whence.core.message import NodeId
from whence.core.rng import purpose, shuffled, stream
from whence.errors import ScenarioError
from whence.sim.model import Nodes

_SELECT = purpose("select nodes")


def scenario_error(field: str, reason: str, fix: str) -> ScenarioError:
    """The error for one field of a scenario."""
    return ScenarioError(f"scenario field '{field}'", reason, fix)


def select(nodes: Nodes, names: list[NodeId], field: str, seed: int) -> list[int]:
    """The indices that `nodes` means, ascending; `field` also tells two draws of one scenario apart."""
    if isinstance(nodes, bool) or (isinstance(nodes, int) and not 1 <= nodes <= len(names)):
        raise scenario_error(
            field, f"{nodes} nodes cannot be drawn from {len(names)}", f"Use 1 to {len(names)}, or names"
        )
    if isinstance(nodes, int):
        return sorted(shuffled(stream(seed, _SELECT, purpose(field)), len(names))[:nodes])
    if nodes == "all":
        return list(range(len(names)))
    wanted = [nodes] if isinstance(nodes, str) else nodes
    if not wanted:
        raise scenario_error(field, "it names no node", 'Name some nodes, or use "all"')
    index = {name: at for at, name in enumerate(names)}
    for name in wanted:
        if name not in index:
            raise scenario_error(
                field,
                f"there is no node {name!r}",
                f"The nodes are {names[0]} to {names[-1]}" if len(names) > 1 else f"The node is {names[0]}",
            )
    if len(set(wanted)) < len(wanted):
        raise scenario_error(field, "it names a node twice", "Name each node once")
    return sorted(index[name] for name in wanted)
