"""A running group's counters for Prometheus and OpenTelemetry.

    telemetry.prometheus(group)                              # at every scrape: `group.stats()` as metrics
    telemetry.opentelemetry(group, metrics.get_meter("app"))

Both read `Group.stats` when they are asked and at no other time: a group that no one watches pays nothing.
Every metric has the labels `group` and `node`. Needs the extra `metrics`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from whence.errors import missing_extra
from whence.live.group import Group
from whence.live.stats import LinkStats, Stats

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter, Observation
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

ANSWER_S = 5.0  # of the event loop, when another thread asks
# Endings of the names of what goes down as well; everything else only grows.
GAUGES: tuple[str, ...] = (
    "unread_messages",
    "unread_bytes",
    "held_messages",
    "control_entries",
    "unacknowledged_messages",
)
GAUGES += ("unacknowledged_bytes", "size_bytes", "streams", "in_hand", "log_bytes", "connected")


class Sample(NamedTuple):
    """One number."""

    name: str
    labels: dict[str, str]
    value: float


def samples(group: Group, stats: Stats) -> Iterator[Sample]:
    """Every counter of a group, flat: numbers by name, those of a table or a link with a label."""
    labels = {"group": group.name, "node": group.node}
    for name, value in msgspec.structs.asdict(stats).items():
        if isinstance(value, int):
            yield Sample(f"whence_{name}", labels, value)
        elif name == "links":
            for peer, link in value.items():
                yield from _of("whence_link", {**labels, "peer": peer}, link)
                connected = float(link.state == "connected")
                yield Sample("whence_link_connected", {**labels, "peer": peer}, connected)
        elif isinstance(value, dict):
            yield from (Sample(f"whence_{name}", {**labels, "reason": key}, n) for key, n in value.items())
        elif value is not None:
            yield from _of(f"whence_{name}", labels, value)


def _of(prefix: str, labels: dict[str, str], part: msgspec.Struct) -> Iterator[Sample]:
    for name, value in msgspec.structs.asdict(part).items():
        if isinstance(value, int):
            yield Sample(f"{prefix}_{name}", labels, value)


def prometheus(group: Group, registry: CollectorRegistry | None = None) -> None:
    """Add the group to a registry (by default the global one); called in the group's event loop."""
    try:
        from prometheus_client import REGISTRY
    except ModuleNotFoundError as error:
        raise missing_extra("metrics for Prometheus", "prometheus_client", "metrics") from error
    (registry or REGISTRY).register(_Collector(partial(_ask, group, asyncio.get_running_loop())))


class _Collector:
    """What prometheus_client calls at a scrape, in a thread of its own."""

    def __init__(self, read: Callable[[], list[Sample]]) -> None:
        self._read = read

    def describe(self) -> Iterable[Metric]:
        return ()  # without it the registry would scrape while the group's own loop waits for it

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        families: dict[str, Any] = {}
        for name, labels, value in self._read():
            if name not in families:
                kind = GaugeMetricFamily if name.endswith(GAUGES) else CounterMetricFamily
                families[name] = kind(name, "See whence.Stats", labels=list(labels))
            families[name].add_metric(list(labels.values()), value)
        yield from families.values()


def _ask(group: Group, loop: asyncio.AbstractEventLoop) -> list[Sample]:
    """The samples, asked for from another thread; none when the group's loop is over."""

    async def read() -> list[Sample]:
        return list(samples(group, group.stats()))

    if not loop.is_running():
        return []
    return asyncio.run_coroutine_threadsafe(read(), loop).result(ANSWER_S)


def opentelemetry(group: Group, meter: Meter) -> None:
    """Observe the group with instruments of a meter; called in the group's event loop."""
    read = partial(_ask, group, asyncio.get_running_loop())

    def observe(name: str, _: CallbackOptions) -> Iterator[Observation]:
        from opentelemetry.metrics import Observation

        return (Observation(each.value, each.labels) for each in read() if each.name == name)

    for name in _names(group.stats()):
        is_gauge = name.endswith(GAUGES)
        make = meter.create_observable_gauge if is_gauge else meter.create_observable_counter
        make(name.replace("_", ".", 1), callbacks=[partial(observe, name)])


def _names(stats: Stats) -> list[str]:
    """Every name that samples of such a group may have, also of links that are not there yet."""
    parts: list[tuple[str, type[msgspec.Struct]]] = [("whence_link", LinkStats)]
    parts += [(f"whence_{name}", type(part)) for name in ("store", "log") if (part := getattr(stats, name))]
    inner = [f"{prefix}_{field.name}" for prefix, kind in parts for field in _numbers(kind)]
    outer = [
        f"whence_{name}"
        for name, value in msgspec.structs.asdict(stats).items()
        if isinstance(value, int | dict) and name != "links"
    ]
    return [*outer, *inner, "whence_link_connected"]


def _numbers(kind: type[msgspec.Struct]) -> list[Any]:
    return [field for field in msgspec.structs.fields(kind) if field.type is int]
