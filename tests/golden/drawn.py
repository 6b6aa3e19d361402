"""How the scenarios of the goldens were drawn. They are kept as data: nothing here is needed to compare.

Only what a scenario sets is written down, so that a default that changes is found out as well.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

Plain = dict[str, Any]

EACH = 15  # scenarios of each kind
DURATION_US = 60_000


def _distribution(draw: Random, scale_us: int) -> Plain:
    return draw.choice(
        [
            {"kind": "constant", "value_us": scale_us},
            {"kind": "uniform", "low_us": scale_us // 10, "high_us": 2 * scale_us},
            {"kind": "normal", "mean_us": scale_us, "deviation_us": scale_us},
            {"kind": "exponential", "mean_us": scale_us, "min_us": scale_us // 20},
            {"kind": "pareto", "min_us": 1 + scale_us // 3, "shape": 1.5, "max_us": 50 * scale_us + 1},
            {"kind": "lognormal", "median_us": scale_us + 1, "sigma": 1.0, "max_us": 50 * scale_us + 1},
        ]
    )


def _link(draw: Random, *, ordered: bool = False, again: bool | None = None) -> Plain:
    """`ordered`: everything arrives, once, in order. `again`: whether what is lost is sent again."""
    link: Plain = {"delay": _distribution(draw, draw.choice([100, 1_000, 5_000]))}
    if ordered or draw.random() < 0.4:
        link["fifo"] = True
    if not ordered and draw.random() < 0.5:
        link["duplicate"] = draw.choice([0.01, 0.1, 0.5])
    if draw.random() < 0.3:
        link["service_us"] = draw.randint(1, 50)
    if draw.random() < 0.3:
        link["bandwidth_bytes_per_s"] = draw.randint(100_000, 10_000_000)
    if draw.random() < 0.3:
        link["process_us"] = draw.randint(1, 80)
    if draw.random() < 0.3:
        link["hop_delay_us"] = draw.randint(1, 80)
    if draw.random() < 0.6:
        link["loss"] = draw.choice([0.01, 0.1, 0.4])
    if again or (again is None and (ordered or draw.random() < 0.5)):
        link["retransmit_us"] = draw.randint(500, 5_000)
    return link


def _workloads(draw: Random, *, lifetimes: bool = False, unicast: bool = False) -> list[Plain]:
    interval_us = DURATION_US // draw.randint(4, 12)
    loads = [
        draw.choice(
            [
                {"kind": "periodic", "interval_us": interval_us, "jitter_us": interval_us // 2},
                {"kind": "poisson", "interval_us": interval_us, "payload_max_bytes": 500},
                {"kind": "window", "count": 4, "stop_us": DURATION_US},
                {"kind": "burst", "size": 3, "gap_us": 50, "interval_us": interval_us, "start_us": 10},
            ]
        )
        | {
            "senders": draw.choice(["all", "all", "all", 2, ["n0"]]),
            "payload_bytes": draw.choice([0, 8, 300]),
        }
    ]
    if draw.random() < 0.8:
        loads.append(
            {"kind": "replies", "probability": 0.3, "depth": 3, "count": 4, "delay": _distribution(draw, 500)}
        )
        if unicast and draw.random() < 0.5:
            loads[-1]["to"] = "origin"
    for load in loads:
        if lifetimes and draw.random() < 0.6:
            load["lifetime"] = {"kind": "exponential", "mean_us": 9_000, "min_us": 1_000}
    return loads


def _faults(draw: Random) -> list[Plain]:
    lasting = {"kind": "uniform", "low_us": DURATION_US // 20, "high_us": DURATION_US // 3}
    stop_us = draw.choice([DURATION_US // 2, DURATION_US // 2, None])
    drawn = {"stop_us": DURATION_US, "lasting": lasting}
    possible: list[tuple[float, Plain]] = [
        (0.4, {"kind": "partition", "start_us": DURATION_US // 5, "stop_us": stop_us}),
        (0.3, {"kind": "random_partitions", "count": draw.randint(1, 3), **drawn}),
        (0.5, {"kind": "random_crashes", "count": draw.randint(1, 2), **drawn}),
        (0.2, {"kind": "crash", "nodes": 1, "at_us": DURATION_US // 3}),
        (0.3, {"kind": "slow", "nodes": 1, "factor": 3.0, "extra_us": 700, "stop_us": DURATION_US // 2}),
        (0.3, {"kind": "skew", "nodes": "all", "offset_us": 9_000, "drift_ppm": 300, "drawn": True}),
    ]
    return [fault for probability, fault in possible if draw.random() < probability]


def _topology(draw: Random, nodes: int) -> Plain:
    kinds: list[Plain] = [{"kind": "full"}, {"kind": "ring"}, {"kind": "grid"}]
    if nodes > 3:
        kinds.append({"kind": "random", "degree": 2})
    if nodes % 2 == 0 and nodes > 4:
        kinds.append({"kind": "random", "degree": 3})
    return draw.choice(kinds)


def _basis(draw: Random, protocol: str, params: Plain) -> Plain:
    """On any links, with any faults."""
    nodes = draw.randint(3, 9)
    plain: Plain = {
        "nodes": nodes,
        "protocol": protocol,
        "seed": draw.randrange(2**40),
        "params": params,
        "topology": _topology(draw, nodes),
        "link": _link(draw),
        "workloads": _workloads(draw),
        "faults": _faults(draw),
        "stop": {"duration_us": DURATION_US, "drain": draw.random() < 0.8, "drain_max_us": 2_000_000},
    }
    if draw.random() < 0.3:
        delay = _distribution(draw, 20_000)
        plain["overrides"] = [{"from_nodes": "n0", "both_ways": True, "delay": delay, "fifo": True}]
    if draw.random() < 0.3:
        plain["record"] = {"sample_every_us": DURATION_US // 5}
    return plain


def _flooded(protocol: str) -> Callable[[Random], Plain]:
    return lambda draw: _basis(draw, protocol, {"relay": False} if draw.random() < 0.2 else {})


def _vcube(draw: Random) -> Plain:
    tree = draw.choice(["source", "source", "single"])
    params = {"aggregate": draw.random() < 0.7, "tree": tree, "mtu_bytes": draw.choice([0, 150, 1500])}
    params["size_model"] = draw.choice(["wire", "paper"])
    plain = _basis(draw, "vcube", params)
    plain["nodes"] = draw.choice([2, 5, 8, 10])
    plain["topology"] = draw.choice([{"kind": "full"}, {"kind": "hypercube", "rooted": True}])
    plain.pop("overrides", None)
    return plain


def _vcube_detect(draw: Random) -> Plain:
    times = {"test_interval_us": 2_000, "test_timeout_us": 12_000, "start_timeout_us": 25_000}
    plain = _basis(draw, "vcube", {"detect": True, "mtu_bytes": draw.choice([0, 150, 1500]), **times})
    plain["topology"] = {"kind": "full"}
    plain["nodes"] = draw.choice([3, 5, 8])
    plain["link"] = _link(draw, again=True)
    plain["stop"] = {"duration_us": 3 * DURATION_US, "drain": False}
    crash = {
        "kind": "crash",
        "nodes": "n1",
        "at_us": 15_000,
        "restart_us": draw.choice([None, 20_000, 60_000]),
    }
    if draw.random() < 0.8:
        plain["faults"] = [*(each for each in plain["faults"] if "crash" not in each["kind"]), crash]
    return plain


def _contacts(draw: Random, nodes: int) -> Plain:
    """Short meetings; some nodes enter late and leave early."""
    presence = []
    for node in range(nodes):
        enters_us = 0 if draw.random() < 0.6 else draw.randrange(15_000)
        leaves_us = DURATION_US if draw.random() < 0.6 else draw.randrange(25_000, DURATION_US)
        presence.append([node, enters_us, leaves_us])
    rows = []
    for one in range(nodes):
        for other in range(one + 1, nodes):
            at_us = draw.randrange(1_000, 9_000)
            while at_us + 4_000 < DURATION_US:
                lasts_us = draw.randrange(200, 4_000)
                start_us = max(at_us, presence[one][1], presence[other][1])
                stop_us = min(at_us + lasts_us, presence[one][2], presence[other][2])
                if start_us < stop_us:
                    rows.append([one, other, start_us, stop_us])
                at_us += lasts_us + draw.randrange(1_000, 12_000)
    return {"kind": "contacts", "rows": rows, "presence": presence}


def _over_contacts(draw: Random, plain: Plain) -> Plain:
    plain["nodes"] = nodes = draw.randint(3, 7)
    plain["topology"] = _contacts(draw, nodes)
    plain["link"] = {"delay": {"kind": "uniform", "low_us": 1, "high_us": 180}}
    plain["workloads"] = [
        {"kind": "periodic", "interval_us": 1_500, "jitter_us": 300, "from_entry": draw.random() < 0.5}
    ]
    plain["faults"] = [fault for fault in plain["faults"] if fault["kind"] == "skew"]
    plain.pop("overrides", None)
    return plain


def _barrier(mode: str) -> Callable[[Random], Plain]:
    def made(draw: Random) -> Plain:
        params: Plain = {"mode": mode}
        mortal = draw.random() < 0.6
        if mortal:
            params["lifetime_us"] = draw.choice([2_000, 9_000, 60_000])
            late_us = draw.choice([0, 1_000, 1_000_000])
            params |= {"late_us": late_us} if mode == "safe" else {}
        if mode == "safe" and mortal:
            params["skew_us"] = draw.choice([0, 500, 20_000])
        plain = _basis(draw, "barrier", params)
        plain["workloads"] = _workloads(draw, lifetimes=mortal)
        return _over_contacts(draw, plain) if draw.random() < 0.2 else plain

    return made


def _oppnet(mode: str) -> Callable[[Random], Plain]:
    def made(draw: Random) -> Plain:
        seed = draw.randrange(2**40)
        params: Plain = {"mode": mode, "gap_us": draw.choice([50, 100, 400]), "seed": seed}
        params["setup_max_us"] = draw.choice([0, 300, 1_000])
        late_us = draw.choice([10_000_000, 60, 0])
        params |= {"late_us": late_us} if mode == "safe" else {}
        params["capacity"] = draw.choice([0, 0, 8])
        if draw.random() < 0.6:
            params["lifetime_us"] = draw.choice([2_000, 6_000, 20_000])
            params |= {"skew_us": draw.choice([0, 500, 20_000])} if mode == "safe" else {}
        return _over_contacts(draw, _basis(draw, "oppnet", params) | {"seed": seed})

    return made


def _deadline(protocol: str, mode: str, pull: str | None = None) -> Callable[[Random], Plain]:
    def made(draw: Random) -> Plain:
        params: Plain = {"mode": mode, "lifetime_us": draw.choice([2_000, 10_000, 60_000])}
        if mode == "published":
            params["tick_us"] = draw.choice([100, 1_000])
            params |= {"strict": draw.random() < 0.5} if protocol == "odca" else {}
        else:
            params |= {"deadlines": draw.random() < 0.5, "copies": draw.choice([1, 2, 3])}
            params |= {"margin_us": draw.choice([0, 200]), "clock_error_us": draw.choice([0, 0, 300])}
            params |= {"buffer_bytes": draw.choice([0, 2_000])} if draw.random() < 0.3 else {}
        if pull is not None:
            params |= {"pull": pull, "retry_us": draw.choice([0, 500, 3_000]), "pulls": draw.randint(1, 4)}
            params["reply_bytes"] = draw.choice([300, 16_384])
        plain = _basis(draw, protocol, params)
        plain["topology"] = {"kind": "full"}
        plain["link"] = _link(draw, again=False)
        plain["workloads"] = _workloads(draw, lifetimes=True)
        if draw.random() < 0.5:
            plain["control"] = {"delay": {"kind": "constant", "value_us": 200}, "hop_loss": 0.05}
        return plain

    return made


def _in_order(protocol: str) -> Callable[[Random], Plain]:
    def made(draw: Random) -> Plain:
        params: Plain = {"links": "static"} if protocol != "link_memory" else {}
        if protocol != "preventive" and draw.random() < 0.5:
            params["own_after_echo"] = True
        return _basis(draw, protocol, params) | {"link": _link(draw, ordered=True)}

    return made


def _point_to_point(protocol: str) -> Callable[[Random], Plain]:
    def made(draw: Random) -> Plain:
        params: Plain = {"stamps": draw.choice(["updates", "full"])}
        if protocol == "domains":
            params["domains"] = draw.choice(["bus", "daisy", "tree", "flat"])
            params["size"] = draw.choice([0, 3])
        plain = _basis(draw, protocol, params)
        plain["topology"] = {"kind": "full"}
        plain["nodes"] = draw.randint(4, 9)
        plain["workloads"] = [*_workloads(draw, unicast=True), {"kind": "poisson", "interval_us": 3_000}]
        plain.pop("overrides", None)
        return plain

    return made


def _log(draw: Random) -> Plain:
    """Groups that remember, over links that come and go: what is kept, and how long anything lives."""
    params: Plain = {"window": draw.choice([2, 16, 256]), "cork_us": draw.choice([0, 0, 500])}
    params |= {"tick_us": 2_000, "pull_us": 6_000, "jump_us": 30_000, "ack_us": 5_000, "alone_us": 10_000}
    kind = draw.choice(["plain", "chained", "short", "mortal", "stable", "drawn"])
    mortal = kind == "mortal"
    params |= {
        "plain": {},
        "chained": {"chain": True},
        "short": {"keep": "count", "keep_count": 8, "history": draw.choice(["all", "new"])},
        "mortal": {"lifetimes": True, "skew_us": draw.choice([0, 20_000]), "keep": "lifetime"},
        "stable": {"stability": True, "keep": draw.choice(["forever", "stable"])},
        "drawn": {"exchange": "random", "gap_us": 300, "setup_max_us": 500, "seed": draw.randrange(2**40)},
    }[kind]
    plain = _basis(draw, "log", params) | {"link": _link(draw, ordered=True)}
    plain["workloads"] = _workloads(draw, lifetimes=mortal)
    plain["stop"] = {"duration_us": 2 * DURATION_US, "drain": False}
    if draw.random() < 0.3:
        plain = _over_contacts(draw, plain)
        plain["link"]["fifo"] = True
    return plain


KINDS: dict[str, Callable[[Random], Plain]] = {
    "fifo": _flooded("fifo"),
    "reliable": _flooded("reliable"),
    "vector": _flooded("vector"),
    "vcube": _vcube,
    "vcube-detect": _vcube_detect,
    "barrier-safe": _barrier("safe"),
    "barrier-published": _barrier("published"),
    "oppnet-safe": _oppnet("safe"),
    "oppnet-published": _oppnet("published"),
    "tdca-safe": _deadline("tdca", "safe"),
    "tdca-published": _deadline("tdca", "published"),
    "odca-exact": _deadline("odca", "safe", "exact"),
    "odca-window": _deadline("odca", "safe", "window"),
    "odca-published": _deadline("odca", "published"),
    "link_memory": _in_order("link_memory"),
    "prc-static": _in_order("prc"),
    "preventive-static": _in_order("preventive"),
    "matrix": _point_to_point("matrix"),
    "domains": _point_to_point("domains"),
    "vector-large": lambda draw: _basis(draw, "vector", {}) | {"nodes": 10, "topology": {"kind": "grid"}},
}


def scenarios() -> list[Plain]:
    """All of them, one of each kind after the other."""
    return [
        {"name": f"{kind}-{at}", **make(Random(f"golden {kind} {at}"))}
        for at in range(EACH)
        for kind, make in KINDS.items()
    ]


def logs() -> list[Plain]:
    """As many of protocol `log` as of every other kind."""
    return [{"name": f"log-{at}", **_log(Random(f"golden log {at}"))} for at in range(EACH)]


def overlays() -> list[Plain]:
    """40 runs over links that open and close, 20 of them with departures and short timeouts."""
    return [_overlay(at, Random(f"golden overlay {at}")) for at in range(40)]


def _overlay(at: int, draw: Random) -> Plain:
    nodes = draw.randint(6, 14)
    slow_us = draw.choice([20_000, 60_000, 90_000])
    plain: Plain = {
        "name": f"overlay-{at}",
        "protocol": ("prc", "preventive")[at % 2],
        "nodes": nodes,
        "seed": draw.randrange(2**40),
        "duration_us": 4_000_000,
        "joins_us": 800_000,
        "latency": [{"at_us": 1_000_000, "delay_us": 2_000}, {"at_us": 2_500_000, "delay_us": slow_us}],
        "shuffle_every_us": draw.choice([200_000, 400_000]),
        "shuffle_stop_us": 3_000_000,
        "broadcast_start_us": 500_000,
        "broadcast_stop_us": 3_000_000,
        "broadcast_every_us": draw.choice([50_000, 90_000]),
        "params": {},
        "departures": [],
    }
    if at % 4 > 1:
        gone = draw.sample(range(nodes), draw.randint(1, 3))
        plain["departures"] = [{"at_us": draw.randrange(900_000, 3_000_000), "node": node} for node in gone]
        plain["params"] = {"timeout_us": draw.choice([100_000, 150_000, 500_000])}
    return plain
