"""A scenario as data: everything that a simulated run depends on, and nothing else.

docs/scenarios.md describes every field for readers; `files.py` reads and writes the files;
`validation.py` refuses what cannot be run. All times are whole microseconds of simulated time.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct, field

from whence.core.message import NodeId
from whence.sim.distributions import Constant, Delay, Distribution, Micros, PositiveMicros, Tagged
from whence.trace.schema import Level

SEED_MAX = 2**63 - 1  # what TOML and JSON readers everywhere can hold
NODES_MAX = 100_000
PAYLOAD_MAX_BYTES = 16 << 20
COUNT_MAX = 10**9

Probability = Annotated[float, Meta(ge=0.0, le=1.0)]
Count = Annotated[int, Meta(ge=1, le=COUNT_MAX)]
OffsetMicros = Annotated[int, Meta(ge=-(10**12), le=10**12)]
PayloadBytes = Annotated[int, Meta(ge=0, le=PAYLOAD_MAX_BYTES)]

# Which nodes: "all", one name, a list of names, or how many to draw from the seed.
Nodes: TypeAlias = str | list[NodeId] | int


class _Section(Struct, frozen=True, forbid_unknown_fields=True):
    """A table of a scenario file."""


# Topology


class Full(Tagged, frozen=True, kw_only=True, tag="full"):
    """Every node is linked to every other."""


class Ring(Tagged, frozen=True, kw_only=True, tag="ring"):
    """Each node is linked to the next one, the last to the first."""


class Grid(Tagged, frozen=True, kw_only=True, tag="grid"):
    """Rows and columns; by default as square as it goes."""

    columns: Annotated[int, Meta(ge=1)] | None = None


class Random(Tagged, frozen=True, kw_only=True, tag="random"):
    """A connected graph drawn from the seed, with `degree` neighbours for every node."""

    degree: Annotated[int, Meta(ge=1)]


class Hypercube(Tagged, frozen=True, kw_only=True, tag="hypercube"):
    """VCube's links: each node to the first of each of its clusters; all to node 0 if `rooted`."""

    rooted: bool = False


class Contacts(Tagged, frozen=True, kw_only=True, tag="contacts"):
    """Links that come and go as a contact plan says, and nodes that enter and leave.

    The plan is read from `file`, made by `generator`, or written out in `rows`. Node n0 is the plan's first.
    """

    file: str | None = None
    format: str = "plan"  # of the file: what `whence contacts` writes, or another format that it reads
    generator: Literal["walkers", "buses"] | None = None
    options: dict[str, Any] = field(default_factory=dict)  # of the generator
    seed: Annotated[int, Meta(ge=0, le=SEED_MAX)] | None = None  # of the generator; None: the scenario's
    rows: list[tuple[int, int, int, int]] | None = None  # (node, node, start_us, stop_us)
    presence: list[tuple[int, int, int]] | None = None  # with rows: (node, start_us, stop_us)


class Overlay(Tagged, frozen=True, kw_only=True, tag="overlay"):
    """Links that peer sampling opens and closes while messages flow; n0 founds the group.

    All links have the same delay at a time. A link that closes takes what is in flight with it.
    """

    joins_us: PositiveMicros  # the others join one after the other, evenly, in this time
    join_batch: Count = 1  # this many ask at the same time
    shuffle_every_us: PositiveMicros  # from a node's join on
    shuffle_stop_us: Micros  # no shuffle at or after this
    sampling: Literal["spray", "authors"] = "spray"  # as the paper's text has it, or its authors' program


Topology: TypeAlias = Full | Ring | Grid | Random | Hypercube | Contacts | Overlay


# Links


class Link(_Section, frozen=True, kw_only=True):
    """How packets travel over each direction of each link.

    Hops are steps between the two nodes' places on a grid as square as it goes, whatever the topology.
    """

    delay: Delay = Constant(value_us=1_000)
    loss: Probability = 0.0
    hop_delay_us: Micros = 0  # on top of the delay, for each hop
    hop_loss: Probability = 0.0  # chance to be lost at each hop, besides `loss`
    duplicate: Probability = 0.0  # chance of one extra copy, with a delay of its own
    fifo: bool = False  # a packet never arrives before one that was sent earlier on the same link
    service_us: Micros = 0  # time in the sender's queue, one packet after the other
    bandwidth_bytes_per_s: Count | None = None  # per link and direction
    process_us: Micros = 0  # the receiver spends this on each packet; packets do not wait for each other
    retransmit_us: PositiveMicros | None = None  # a lost packet is sent again after this, until it arrives


class Override(_Section, frozen=True, kw_only=True):
    """What is different on some links; what is not given stays as in `link`."""

    from_nodes: Nodes = "all"
    to_nodes: Nodes = "all"
    both_ways: bool = False  # also from `to_nodes` to `from_nodes`
    delay: Delay | None = None
    loss: Probability | None = None
    hop_delay_us: Micros | None = None
    hop_loss: Probability | None = None
    duplicate: Probability | None = None
    fifo: bool | None = None
    service_us: Micros | None = None
    bandwidth_bytes_per_s: Count | None = None
    process_us: Micros | None = None
    retransmit_us: PositiveMicros | None = None


# Workloads. `lifetime` is drawn for each message; None leaves it to the protocol. `to` is for point-to-point
# protocols: each message goes to one of these nodes (None: of all) other than its sender, drawn from the
# seed;
# to = "origin" sends replies back.


class Periodic(Tagged, frozen=True, kw_only=True, tag="periodic"):
    """Each sender broadcasts every `interval_us`, each time up to `jitter_us` late."""

    interval_us: PositiveMicros
    senders: Nodes = "all"
    payload_bytes: PayloadBytes = 64
    lifetime: Distribution | None = None
    to: Nodes | None = None
    count: Count | None = None  # broadcasts per sender
    start_us: Micros = 0
    stop_us: Micros | None = None
    jitter_us: Micros = 0
    from_entry: bool = False  # contacts: start_us and interval_us count from each time that the sender enters


class Poisson(Tagged, frozen=True, kw_only=True, tag="poisson"):
    """Each sender broadcasts at random, with `interval_us` between two broadcasts on average."""

    interval_us: PositiveMicros
    senders: Nodes = "all"
    payload_bytes: PayloadBytes = 64
    payload_max_bytes: PayloadBytes | None = None  # sizes are drawn from `payload_bytes` up to this
    lifetime: Distribution | None = None
    to: Nodes | None = None
    count: Count | None = None
    start_us: Micros = 0
    stop_us: Micros | None = None


class Window(Tagged, frozen=True, kw_only=True, tag="window"):
    """Each sender broadcasts `count` messages at times drawn in [start_us, stop_us).

    Uniformly, or by the triangular law: each time is the mean of two uniform ones.
    """

    count: Annotated[int, Meta(ge=1, le=10**7)]
    stop_us: PositiveMicros
    senders: Nodes = "all"
    payload_bytes: PayloadBytes = 64
    lifetime: Distribution | None = None
    to: Nodes | None = None
    start_us: Micros = 0
    law: Literal["uniform", "triangular"] = "uniform"


class Burst(Tagged, frozen=True, kw_only=True, tag="burst"):
    """Each sender broadcasts `size` messages, `gap_us` apart, and does so again every `interval_us`."""

    size: Count
    interval_us: PositiveMicros
    senders: Nodes = "all"
    payload_bytes: PayloadBytes = 64
    lifetime: Distribution | None = None
    to: Nodes | None = None
    gap_us: Micros = 0
    count: Count | None = None  # bursts per sender
    start_us: Micros = 0
    stop_us: Micros | None = None


class Replies(Tagged, frozen=True, kw_only=True, tag="replies"):
    """A node that delivers a message of another replies with a broadcast: this creates causality."""

    probability: Probability
    delay: Distribution = Constant(value_us=0)
    depth: Annotated[int, Meta(ge=1, le=1_000)] = 1  # a reply to a reply to ... at most
    senders: Nodes = "all"
    payload_bytes: PayloadBytes = 64
    lifetime: Distribution | None = None
    to: Nodes | None = None
    count: Count | None = None  # replies per sender
    start_us: Micros = 0
    stop_us: Micros | None = None


class Anyone(Tagged, frozen=True, kw_only=True, tag="anyone"):
    """Every `interval_us` one member of the group, drawn from all that have joined, broadcasts."""

    interval_us: PositiveMicros
    payload_bytes: PayloadBytes = 64
    start_us: Micros = 0
    stop_us: Micros | None = None


Sending: TypeAlias = Periodic | Poisson | Window | Burst | Replies  # those that name their senders
Workload: TypeAlias = Sending | Anyone


# Faults


class Partition(Tagged, frozen=True, kw_only=True, tag="partition"):
    """From `start_us` to `stop_us` (None: forever) no packet passes between two groups.

    Without `groups` the nodes are split at random into `parts`. Nodes that no group names form one
    more group together.
    """

    start_us: Micros
    stop_us: Micros | None = None
    groups: list[list[NodeId]] | None = None
    parts: Annotated[int, Meta(ge=2)] = 2


class RandomPartitions(Tagged, frozen=True, kw_only=True, tag="random_partitions"):
    """`count` partitions into `parts`, beginning at drawn times in [start_us, stop_us)."""

    count: Annotated[int, Meta(ge=1, le=10_000)]
    stop_us: PositiveMicros
    lasting: Distribution
    start_us: Micros = 0
    parts: Annotated[int, Meta(ge=2)] = 2


class Crash(Tagged, frozen=True, kw_only=True, tag="crash"):
    """The nodes stop at `at_us` and come back with their saved state at `restart_us` (None: never)."""

    nodes: Nodes
    at_us: Micros
    restart_us: Micros | None = None


class RandomCrashes(Tagged, frozen=True, kw_only=True, tag="random_crashes"):
    """`count` crashes of drawn nodes at drawn times in [start_us, stop_us), each for `lasting`."""

    count: Annotated[int, Meta(ge=1, le=10_000)]
    stop_us: PositiveMicros
    lasting: Distribution
    nodes: Nodes = "all"
    start_us: Micros = 0


class Slow(Tagged, frozen=True, kw_only=True, tag="slow"):
    """Packets from or to the nodes take `factor` times as long, and `extra_us` more, for a while."""

    nodes: Nodes
    start_us: Micros = 0
    stop_us: Micros | None = None
    factor: Annotated[float, Meta(ge=1.0, le=1e6)] = 1.0
    extra_us: Micros = 0


class Skew(Tagged, frozen=True, kw_only=True, tag="skew"):
    """The nodes' clocks are off by `offset_us` at the start and gain `drift_ppm` millionths.

    With `drawn` each node's offset and drift are drawn between minus and plus these values. `offsets_us`
    has one offset for each of the nodes, in place of `offset_us`. The trace keeps true time.
    """

    nodes: Nodes
    offset_us: OffsetMicros = 0
    offsets_us: list[OffsetMicros] | None = None
    drift_ppm: Annotated[int, Meta(ge=-500_000, le=500_000)] = 0
    drawn: bool = False


Fault: TypeAlias = Partition | RandomPartitions | Crash | RandomCrashes | Slow | Skew


# The whole


class Record(_Section, frozen=True, kw_only=True):
    """How much the trace says."""

    level: Literal["measures", "deliveries", "all"] = "all"
    sample_every_us: PositiveMicros | None = None  # gauges of every node that is up
    sample_nodes: Nodes = "all"  # of these nodes
    window_us: PositiveMicros | None = None  # with an overlay: sums over windows of this length

    def as_level(self) -> Level:
        """The trace's own word for it."""
        return Level[self.level.upper()]


class Stop(_Section, frozen=True, kw_only=True):
    """When the run ends: no broadcast at or after `duration_us`; then, with `drain`, until all is quiet."""

    duration_us: PositiveMicros
    drain: bool = True
    drain_max_us: Micros = 600_000_000


class Scenario(_Section, frozen=True, kw_only=True):
    """One simulated run, complete: the same scenario gives the same trace, always and everywhere."""

    nodes: Annotated[int, Meta(ge=1, le=NODES_MAX)]
    protocol: str
    stop: Stop
    name: str = "scenario"
    seed: Annotated[int, Meta(ge=0, le=SEED_MAX)] = 1
    params: dict[str, Any] = field(default_factory=dict)  # of the protocol
    topology: Topology = Full()
    link: Link = Link()
    control: Link | None = None  # how packets travel that the protocol calls control; None: as all others
    overrides: list[Override] = field(default_factory=list)
    workloads: list[Workload] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    record: Record = Record()


def node_names(count: int) -> list[NodeId]:
    """`n0` ... with as many digits as the last one needs, so that sorting by name is by number."""
    width = len(str(count - 1))
    return [f"n{index:0{width}d}" for index in range(count)]
