"""The page of the demonstration: tables, figures, and sentences made from the data."""

from __future__ import annotations

from whence.studies.base import Cell, Figure, Panel, Table
from whence.studies.cuts import cross, lines
from whence.studies.results import Label, Results

# name of the section, measure, its title with unit, caption
MEASURES = (
    (
        "order",
        "violations_per_1000",
        "violations per 1,000 remote deliveries",
        "Deliveries that came before a message of their own causal past, per 1,000 deliveries at nodes other "
        "than the origin, as counted by the verifier.",
    ),
    (
        "latency",
        "delivery_mean_ms",
        "mean delivery latency, ms",
        "From the broadcast to the delivery at another node. All networks have the same mean delay per link; "
        "flooding takes the fastest of many paths, so that the first copy comes sooner the more delays vary.",
    ),
    (
        "held",
        "held_mean_ms",
        "mean wait before delivery, ms",
        "From the first copy of a message at a node to its delivery there, over all remote deliveries: what "
        "order costs, the network's share left out. FIFO waits for the sender's earlier messages, vector for "
        "the whole causal past.",
    ),
    (
        "bytes",
        "control_bytes_per_packet",
        "control bytes per packet",
        "Everything on the wire that is not payload, the frame included.",
    ),
    (
        "memory",
        "entries_peak_max",
        "peak entries at one node",
        "Entries of control information at the fullest node: clock entries, held messages and what they wait "
        "for, sampled every 50 ms.",
    ),
)
HEADINGS = {
    "order": "Where FIFO breaks causality",
    "latency": "How soon a message is delivered",
    "held": "How long a message waits for its past",
    "bytes": "What it costs in bytes",
    "memory": "What it costs in memory",
}


def tables(results: Results) -> list[Table]:
    """One for each measure, and what order costs."""
    made = [
        cross(results, measure, ("network", "protocol"), "nodes", name, title)
        for name, measure, title, _ in MEASURES
    ]
    title = "remote deliveries that waited, %"
    share = cross(results, "held_percent", ("network", "protocol"), "nodes", "held", title)
    return [*made, share, costs(results)]


def figures(results: Results) -> list[Figure]:
    """Each measure in growing groups and over wilder networks."""
    largest = results.values("nodes")[-1]
    networks = results.values("network")
    wildest = "exponential" if "exponential" in networks else networks[-1]
    made = []
    for name, measure, title, caption in MEASURES:
        growing = lines(results, measure, "nodes", "protocol", network=wildest)
        wilder = lines(results, measure, "network", "protocol", nodes=largest)
        panels = (
            Panel(f"growing groups, {wildest} delays", "nodes", title, growing, x_log2=True),
            Panel(f"wilder networks, {largest} nodes", "link delay", title, wilder),
        )
        made.append(Figure(name, HEADINGS[name], caption, panels))
    return made


def headline(results: Results) -> Table:
    """Every measure for each network and protocol, in the largest group."""
    largest = results.values("nodes")[-1]
    measures = {
        "violations_per_1000": "violations per 1,000",
        "delivery_mean_ms": "latency, ms",
        "held_mean_ms": "wait, ms",
        "control_bytes_per_packet": "control bytes",
        "entries_peak_max": "peak entries",
    }
    rows = [
        (network, protocol, *estimates)
        for network in results.values("network")
        for protocol in results.values("protocol")
        if any(
            estimates := [
                results.estimate(measure, network=network, protocol=protocol, nodes=largest)
                for measure in measures
            ]
        )
    ]
    title = f"A group of {largest} at a glance: means over the seeds, with 95 % intervals"
    return Table("glance", title, ("network", "protocol", *measures.values()), tuple(rows))


def costs(results: Results) -> Table:
    """Vector less fifo, paired by seed, for each network and size."""
    rows: list[tuple[Cell, ...]] = []
    measures = {
        "held_mean_ms": "mean wait, ms",
        "delivery_mean_ms": "mean latency, ms",
        "held_peak_max": "held at once",
        "control_bytes_per_packet": "control bytes",
        "entries_peak_max": "entries",
    }
    for network in results.values("network"):
        for nodes in results.values("nodes"):
            differences = [
                results.compare(measure, "protocol", "fifo", "vector", network=network, nodes=nodes)
                for measure in measures
            ]
            if any(one is not None for one in differences):
                rows.append((network, nodes, *differences))
    return Table(
        "costs",
        "The price of causal order: vector less fifo",
        ("network", "nodes", *measures.values()),
        tuple(rows),
        "Differences within each seed, with the 95 % interval of the differences. Mean latency varies more "
        "than mean wait: after the first message that only vector holds, the two runs no longer draw the "
        "same delays. Held at once: the most messages that wait at one node at one time.",
    )


def findings(results: Results) -> list[str]:
    """The sentences at the top of the page; one that lacks its data is left out."""
    made = [_broken(results), _kept(results), _latency(results), _bytes(results), _memory(results)]
    return [sentence for sentence in made if sentence]


def _broken(results: Results) -> str:
    worst = max(
        (
            (found.mean, network, nodes)
            for network in results.values("network")
            for nodes in results.values("nodes")
            if (
                found := results.estimate(
                    "violations_per_1000", protocol="fifo", network=network, nodes=nodes
                )
            )
        ),
        default=None,
    )
    if worst is None:
        return ""
    rate, network, nodes = worst
    total = results.total("causal", protocol="fifo")
    remote = results.total("remote_deliveries", protocol="fifo")
    calm = results.total("causal", protocol="fifo", network="constant")
    return (
        f"FIFO broke causal order {total:,.0f} times in {remote:,.0f} remote deliveries: {calm:,.0f} times "
        f"where all delays are equal, and up to {rate:.1f} times per 1,000 deliveries where they are not "
        f"({network} delays, {nodes} nodes)."
    )


def _kept(results: Results) -> str:
    remote = results.total("remote_deliveries", protocol="vector")
    broken = results.total("causal", protocol="vector")
    if not remote:
        return ""
    return f"Vector clocks broke it {broken:,.0f} times in {remote:,.0f} remote deliveries on the same seeds."


def _latency(results: Results) -> str:
    largest = results.values("nodes")[-1]
    parts = []
    for network in results.values("network"):
        fixed: dict[str, Label] = {"network": network, "nodes": largest}
        latency = results.estimate("delivery_mean_ms", protocol="fifo", **fixed)
        wait = results.compare("held_mean_ms", "protocol", "fifo", "vector", **fixed)
        if latency is not None and wait is not None and latency.mean:
            share = 100 * wait.mean / latency.mean
            parts.append(f"{wait.mean:.2f} ms ({share:.1f} %) with {network} delays")
    if not parts:
        return ""
    return (
        f"In a group of {largest}, waiting for the causal past adds to the mean latency: {', '.join(parts)}."
    )


def _bytes(results: Results) -> str:
    sizes = results.values("nodes")
    fifo = results.estimate("control_bytes_per_packet", protocol="fifo")
    small = results.estimate("control_bytes_per_packet", protocol="vector", nodes=sizes[0])
    large = results.estimate("control_bytes_per_packet", protocol="vector", nodes=sizes[-1])
    if fifo is None or small is None or large is None:
        return ""
    return (
        f"A packet carries {fifo.mean:.1f} control bytes under FIFO; under vector clocks, which send only "
        f"what changed, {small.mean:.1f} in a group of {sizes[0]} and {large.mean:.1f} in one of {sizes[-1]}."
    )


def _memory(results: Results) -> str:
    largest = results.values("nodes")[-1]
    fifo = results.maximum("entries_peak_max", protocol="fifo", nodes=largest)
    vector = results.maximum("entries_peak_max", protocol="vector", nodes=largest)
    if fifo is None or vector is None:
        return ""
    return (
        f"The fullest node of a group of {largest} held {fifo:,.0f} control entries under FIFO "
        f"and {vector:,.0f} under vector clocks."
    )
