"""Impossible scenarios: each check names the field, the reason and the fix.

Types and ranges of single fields are declared in `model.py` and checked when a file is decoded;
here is what takes more than one field to see.
"""

from __future__ import annotations

from math import isfinite
from typing import Any

from msgspec import Struct

from whence.overlay.graphs import regular_problem
from whence.protocols import registry
from whence.sim import distributions
from whence.sim.cores import cores_of
from whence.sim.distributions import Constant, Delay, Ramp, Tagged
from whence.sim.faults import plan_faults
from whence.sim.links_planned import plan_of
from whence.sim.model import (
    Anyone,
    Burst,
    Contacts,
    Crash,
    Full,
    Grid,
    Hypercube,
    Link,
    Overlay,
    Periodic,
    Poisson,
    Random,
    Replies,
    Scenario,
    Sending,
    Skew,
    Workload,
    node_names,
)
from whence.sim.selection import scenario_error, select
from whence.sim.topology import link_specs, make_graph
from whence.sim.workload import ORIGIN

LOSS_MAX = 0.99  # above, a retransmitting link tries hundreds of times per packet
LINKS_MAX = 4_000_000
REPLIES_MAX = 100_000  # expected replies to one message
_OVERRIDABLE = (
    "delay",
    "loss",
    "hop_delay_us",
    "hop_loss",
    "duplicate",
    "fifo",
    "service_us",
    "bandwidth_bytes_per_s",
    "process_us",
    "retransmit_us",
)


def validate(scenario: Scenario) -> None:
    """Raise a ScenarioError (or the protocol's own error) if the scenario cannot be run as it says."""
    _check_numbers(scenario, "")
    _check_overlay(scenario)
    _check_protocol(scenario)
    _check_topology(scenario)
    _check_links(scenario)
    _check_workloads(scenario)
    plan_faults(scenario)
    select(scenario.record.sample_nodes, node_names(scenario.nodes), "record.sample_nodes", scenario.seed)


def _check_numbers(value: object, path: str) -> None:
    """Every number finite and every distribution drawable, wherever it stands."""
    if isinstance(value, float) and not isfinite(value):
        raise scenario_error(path, f"{value} is not a number to compute with", "Use a finite number")
    if isinstance(value, list | tuple):
        for at, element in enumerate(value):
            _check_numbers(element, f"{path}[{at}]")
    if isinstance(value, dict):
        for key, element in value.items():
            _check_numbers(element, f"{path}.{key}")
    if isinstance(value, Struct):
        if isinstance(value, Delay):
            trouble = distributions.problem(value)
            if trouble is not None:
                raise scenario_error(f"{path}.{trouble[0]}", trouble[1], "Exchange or change the two")
        for name in value.__struct_fields__:
            _check_numbers(getattr(value, name), f"{path}.{name}" if path else name)


def _check_protocol(scenario: Scenario) -> None:
    info = registry.lookup(scenario.protocol)
    names = node_names(scenario.nodes)
    cores_of(scenario)(names[0], names)  # refuses unknown parameters
    if info.fifo_links:
        for where, link in [("link", scenario.link), *_overridden_links(scenario)]:
            _check_in_order(scenario.protocol, where, link)


def _overridden_links(scenario: Scenario) -> list[tuple[str, Link]]:
    if not scenario.overrides:
        return []
    return [("overrides", link) for link in link_specs(scenario, make_graph(scenario)).values()]


def _check_in_order(protocol: str, where: str, link: Link) -> None:
    """Link memory counts the copies on each link: they must come in order, and just once."""
    if link.duplicate:
        raise scenario_error(
            f"{where}.duplicate", f"protocol {protocol!r} needs links that bring a packet once", "Use 0"
        )
    if not link.fifo and not isinstance(link.delay, Constant | Ramp):
        raise scenario_error(
            f"{where}.fifo", f"protocol {protocol!r} needs links that keep the order", "Use fifo = true"
        )
    if link.loss and link.retransmit_us is None:
        raise scenario_error(
            f"{where}.loss", f"protocol {protocol!r} needs reliable links", "Set retransmit_us"
        )


def _check_topology(scenario: Scenario) -> None:
    nodes = scenario.nodes
    if not registry.lookup(scenario.protocol).any_topology:
        _check_tree_links(scenario)
    match scenario.topology:
        case Contacts():
            _check_contacts(scenario)
        case Full() if nodes * (nodes - 1) > LINKS_MAX:
            raise scenario_error(
                "topology", f"a full mesh of {nodes} nodes has {nodes * (nodes - 1)} links", "Use random"
            )
        case Random(degree=degree):
            trouble = regular_problem(nodes, degree)
            if trouble is not None:
                raise scenario_error(
                    "topology.degree", trouble, "Use an even degree from 2 to nodes - 1, or more nodes"
                )
            if nodes * degree > LINKS_MAX:
                raise scenario_error(
                    "topology.degree", f"it makes {nodes * degree} links", "Use a smaller one"
                )
        case Grid(columns=int(columns)) if columns > nodes:
            raise scenario_error(
                "topology.columns", f"{nodes} nodes do not fill one row of {columns}", f"Use at most {nodes}"
            )


def _check_contacts(scenario: Scenario) -> None:
    plan_of(scenario)  # refuses a plan that cannot be read, or that has other nodes
    again = {f"overrides[{at}]": each.retransmit_us for at, each in enumerate(scenario.overrides)}
    for where, retransmit_us in {"link": scenario.link.retransmit_us, **again}.items():
        if retransmit_us is not None:
            raise scenario_error(
                f"{where}.retransmit_us",
                "a contact that ends takes what is in flight with it",
                "Leave it out",
            )


def _check_tree_links(scenario: Scenario) -> None:
    """The trees of a protocol go over links that a ring, a grid or a random graph does not have."""
    topology = scenario.topology
    if registry.lookup(scenario.protocol).point_to_point:
        if not isinstance(topology, Full):
            raise scenario_error(
                "topology", f"protocol {scenario.protocol!r} routes messages itself", "Use full"
            )
        return
    if not isinstance(topology, Full | Hypercube):
        raise scenario_error(
            "topology", f"protocol {scenario.protocol!r} needs its trees' links", "Use full or hypercube"
        )
    if scenario.params.get("detect") and not isinstance(topology, Full):
        raise scenario_error(
            "topology", "when nodes crash, any two others may have to talk", "Use full, or detect = false"
        )
    if isinstance(topology, Hypercube) and not topology.rooted and scenario.params.get("tree") == "single":
        raise scenario_error(
            "topology.rooted", "the single tree needs links to its root", "Use rooted = true"
        )


# Overlays


def _check_overlay(scenario: Scenario) -> None:
    """Refuse what an overlay does not take, and what only an overlay takes."""
    links = scenario.params.get("links")
    if not isinstance(scenario.topology, Overlay):
        if links == "dynamic":
            raise scenario_error("params.links", "no overlay opens links here", "Use topology overlay")
        if scenario.record.window_us is not None:
            raise scenario_error(
                "record.window_us", "only runs over an overlay have a series", "Leave it out"
            )
        return
    if "links" not in registry.lookup(scenario.protocol).parameters:
        able = [name for name in registry.names() if "links" in registry.lookup(name).parameters]
        raise scenario_error(
            "topology",
            f"protocol {scenario.protocol!r} knows no links that open and close",
            f"Use one of: {', '.join(able)}",
        )
    if links not in (None, "dynamic"):
        raise scenario_error(
            "params.links", f"an overlay opens and closes links, not {links!r}", "Leave it out"
        )
    _check_equal_links(scenario)
    _check_overlay_faults(scenario)


def _check_equal_links(scenario: Scenario) -> None:
    """All links of an overlay have the same delay at a time, and nothing else happens on them."""
    if not isinstance(scenario.link.delay, Constant | Ramp):
        raise scenario_error("link.delay", "packets would overtake each other", "Use constant or ramp")
    plain = Link(delay=scenario.link.delay)
    for name in _OVERRIDABLE:
        if getattr(scenario.link, name) != getattr(plain, name):
            raise scenario_error(f"link.{name}", "links of an overlay take their delay alone", "Leave it out")
    for name in ("control", "overrides"):
        if getattr(scenario, name):
            raise scenario_error(name, "all links of an overlay are alike", "Leave it out")


def _check_overlay_faults(scenario: Scenario) -> None:
    for at, fault in enumerate(scenario.faults):
        where = f"faults[{at}]"
        if isinstance(fault, Crash):
            if fault.restart_us is not None:
                raise scenario_error(
                    f"{where}.restart_us",
                    "a node that has lost its links cannot prove what it has seen",
                    "Leave it out: over an overlay who crashes is gone",
                )
        elif not isinstance(fault, Skew):
            raise scenario_error(
                where, "links of an overlay are reliable and keep the order", "Use crash or skew"
            )


# Links


def _check_links(scenario: Scenario) -> None:
    _check_loss(scenario.link.loss, "link.loss")
    _check_loss(scenario.link.hop_loss, "link.hop_loss")
    if scenario.control is not None:
        _check_loss(scenario.control.loss, "control.loss")
        _check_loss(scenario.control.hop_loss, "control.hop_loss")
    for at, override in enumerate(scenario.overrides):
        where = f"overrides[{at}]"
        if all(getattr(override, name) is None for name in _OVERRIDABLE):
            raise scenario_error(where, "it changes nothing", f"Set one of: {', '.join(_OVERRIDABLE)}")
        if override.loss is not None:
            _check_loss(override.loss, f"{where}.loss")
        if override.hop_loss is not None:
            _check_loss(override.hop_loss, f"{where}.hop_loss")
    if scenario.overrides:
        link_specs(scenario, make_graph(scenario))  # refuses an override that no link matches


def _check_loss(loss: float, where: str) -> None:
    if loss > LOSS_MAX:
        raise scenario_error(
            where, f"with {loss} next to nothing arrives", f"Use at most {LOSS_MAX}, or a partition fault"
        )


# Workloads


def _check_workloads(scenario: Scenario) -> None:
    if all(isinstance(workload, Replies) for workload in scenario.workloads):
        reason = "nobody broadcasts anything to reply to" if scenario.workloads else "nobody broadcasts"
        raise scenario_error("workloads", reason, "Add one, e.g. kind = 'poisson'")
    names = node_names(scenario.nodes)
    for at, workload in enumerate(scenario.workloads):
        where = f"workloads[{at}]"
        _check_times(workload, where, scenario.stop.duration_us)
        if isinstance(workload, Anyone):
            if registry.lookup(scenario.protocol).point_to_point:
                raise scenario_error(
                    where, f"protocol {scenario.protocol!r} sends to one node", "Use a kind that has `to`"
                )
            continue
        senders = select(workload.senders, names, f"{where}.senders", scenario.seed)
        _check_destinations(scenario, workload, at, senders)
        if workload.lifetime is not None and not registry.lookup(scenario.protocol).lifetimes:
            raise scenario_error(
                f"{where}.lifetime", f"protocol {scenario.protocol!r} knows no lifetimes", "Leave it out"
            )
        match workload:
            case Periodic(from_entry=True) if not isinstance(scenario.topology, Contacts):
                raise scenario_error(f"{where}.from_entry", "nobody enters", "Use it with topology contacts")
            case Periodic(jitter_us=jitter, interval_us=interval) if jitter > interval:
                raise scenario_error(
                    f"{where}.jitter_us", f"{jitter} is above the interval of {interval}", "Use less"
                )
            case Burst(size=size, gap_us=gap, interval_us=interval) if (size - 1) * gap > interval:
                raise scenario_error(
                    f"{where}.size", "a burst would outlast the interval", "Use a smaller size or gap_us"
                )
            case Poisson(payload_bytes=low, payload_max_bytes=int(high)) if high < low:
                raise scenario_error(
                    f"{where}.payload_max_bytes", f"{high} is below payload_bytes = {low}", "Use more"
                )
            case Replies():
                _check_replies(workload, len(senders), where)


def _check_destinations(scenario: Scenario, workload: Sending, at: int, senders: list[int]) -> None:
    """`to` names nodes, and leaves every sender another node to send to."""
    where = f"workloads[{at}].to"
    if not registry.lookup(scenario.protocol).point_to_point:
        if workload.to is not None:
            raise scenario_error(
                where, f"the messages of protocol {scenario.protocol!r} go to everybody", "Leave it out"
            )
        return
    if workload.to == ORIGIN:
        if not isinstance(workload, Replies):
            raise scenario_error(where, "only a reply has somebody to go back to", "Name the nodes")
        return
    names = node_names(scenario.nodes)
    chosen = select("all" if workload.to is None else workload.to, names, where, scenario.seed)
    if any(set(chosen) <= {sender} for sender in senders):
        raise scenario_error(where, "a sender would have nobody to send to", "Name more nodes")


def _check_times(workload: Workload, where: str, duration_us: int) -> None:
    if workload.start_us >= duration_us:
        raise scenario_error(
            f"{where}.start_us",
            f"{workload.start_us} is not before the end of the run at {duration_us}",
            "Start earlier, or lengthen stop.duration_us",
        )
    if workload.stop_us is not None and workload.stop_us <= workload.start_us:
        raise scenario_error(
            f"{where}.stop_us", f"{workload.stop_us} is not after start_us", "Stop later, or start earlier"
        )


def _check_replies(workload: Replies, senders: int, where: str) -> None:
    """Replies to replies grow geometrically: refuse what no machine could finish."""
    if workload.probability == 0.0:
        raise scenario_error(f"{where}.probability", "nobody ever replies", "Use more than 0")
    if workload.count is not None:
        return
    growth = senders * workload.probability
    expected, level = 0.0, 1.0
    for _ in range(workload.depth):
        level *= growth
        expected += level
        if expected > REPLIES_MAX:
            raise scenario_error(
                f"{where}.depth",
                f"one message would cause more than {REPLIES_MAX} replies",
                "Use a smaller depth or probability, fewer senders, or set count",
            )


def kinds(union: Any) -> dict[str, type[Tagged]]:
    """The `kind` words of a tagged union, with their classes."""
    return {each.__struct_config__.tag: each for each in union.__args__}
