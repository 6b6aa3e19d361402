"""From what the kernel counted in one run to the numbers that the paper's tables and figures show.

Times are in the paper's unit: one u.t. is 1,000 microseconds. A measure that needs a copy or a packet of
which the run has none is None, never zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

UNIT_US = 1_000  # of one u.t.
WINDOW_PARTS = 10  # Figure 1: the window in which nodes broadcast, cut into equal parts
MESSAGES_SHOWN = 5  # Table 2 tells packets of 1 to 5 messages apart
BYTES_EDGES = (100, 200, 300, 400)  # Table 3
DEPENDENCY_EDGES = (0, *range(4, 80, 5))  # Figure 6: 0; 1 to 4; 5 to 9; ...
BUFFER_EDGES = tuple(range(25, 301, 25))  # Figure 9
LARGEST_MAX = 22  # Figure 10


def derive(counted: Mapping[str, Any], nodes: int) -> dict[str, float | None]:
    """Every number of one run; `counted` is its measures.json."""
    packets, copies = counted["packets"], counted["deliveries"]
    return {
        "packets": packets,
        "reduction_percent": 100 * (1 - packets / (nodes * (nodes - 1))),
        "aggregated_percent": _percent(counted["aggregated_packets"], packets),
        "aggregated_messages": counted["aggregated_messages"],
        "delayed_messages": counted["delayed"],
        "undelivered": counted["messages"] * (nodes - 1) - copies,
        "reception_ut": _mean_ut(counted["reception_us"], counted["receptions"]),
        "delivery_ut": _mean_ut(counted["delivery_us"], copies),
        "held_ut": _mean_ut(counted["held_us"], copies),
        "queued_ut": _mean_ut(counted["queued_us"], packets),
        **_packets(counted),
        **_messages(counted),
        **_nodes(counted),
        **_pairs(counted),
        **_starts(counted),
    }


def _packets(counted: Mapping[str, Any]) -> dict[str, float | None]:
    """Tables 2 and 3."""
    packets, by_messages = counted["packets"], counted["packets_by_messages"]
    shares: dict[str, float | None] = {
        f"packets_of_{messages}": _percent(_at(by_messages, messages), packets)
        for messages in range(1, MESSAGES_SHOWN + 1)
    }
    shares["packets_of_more"] = _percent(sum(by_messages[MESSAGES_SHOWN + 1 :]), packets)
    aggregated = sum(by_messages[2:])
    for messages in range(2, MESSAGES_SHOWN + 1):
        shares[f"aggregated_of_{messages}"] = _percent(_at(by_messages, messages), aggregated)
    shares["aggregated_of_more"] = _percent(sum(by_messages[MESSAGES_SHOWN + 1 :]), aggregated)
    shares["largest_packet"] = len(by_messages) - 1
    sizes = {int(size): count for size, count in counted["packets_by_bytes"].items()}
    for low, high in zip((0, *BYTES_EDGES), (*BYTES_EDGES, None), strict=True):
        inside = sum(n for size, n in sizes.items() if size > low and (high is None or size <= high))
        shares[f"bytes_above_{low}"] = _percent(inside, packets)
    shares["bytes_over_1400"] = _percent(sum(n for size, n in sizes.items() if size > 1400), packets)
    return shares


def _messages(counted: Mapping[str, Any]) -> dict[str, float | None]:
    """Figure 6."""
    found, messages = counted["messages_by_dependencies"], counted["messages"]
    lows = (0, *(edge + 1 for edge in DEPENDENCY_EDGES[:-1]))
    shares = {
        f"dependencies_from_{low}": _percent(sum(found[low : high + 1]), messages)
        for low, high in zip(lows, DEPENDENCY_EDGES, strict=True)
    }
    shares["dependencies_over_12"] = _percent(sum(found[13:]), messages)
    shares["dependencies_max"] = len(found) - 1
    return shares


def _nodes(counted: Mapping[str, Any]) -> dict[str, float | None]:
    """Figures 9 and 10."""
    peaks, largest = counted["held_peaks"], counted["messages_max"]
    found: dict[str, float | None] = {
        f"nodes_buffering_at_most_{edge}": _count(peak <= edge for peak in peaks) for edge in BUFFER_EDGES
    }
    found["buffered_max"] = max(peaks)
    for messages in range(1, LARGEST_MAX + 1):
        found[f"largest_{messages}_percent"] = _percent(
            _count(one == messages for one in largest), len(largest)
        )
    found["largest_7_to_11_percent"] = _percent(_count(7 <= one <= 11 for one in largest), len(largest))
    found["largest_8_to_12_percent"] = _percent(_count(8 <= one <= 12 for one in largest), len(largest))
    found["largest_max"] = max(largest)
    return found


def _pairs(counted: Mapping[str, Any]) -> dict[str, float | None]:
    """Figure 8."""
    copies = counted.get("pair_copies")
    if copies is None:
        return {}
    found: dict[str, float | None] = {"pair_copies": copies}
    for prefix in ("pair", "pair_plain"):
        reception = _mean_ut(counted[f"{prefix}_reception_us"], copies)
        delivery = _mean_ut(counted[f"{prefix}_delivery_us"], copies)
        found[f"{prefix}_reception_ut"] = reception
        found[f"{prefix}_delivery_ut"] = delivery
        found[f"{prefix}_held_ut"] = None if reception is None or delivery is None else delivery - reception
    return found


def _starts(counted: Mapping[str, Any]) -> dict[str, float | None]:
    """Figure 1."""
    sums, counts = counted["reception_us_by_start"], counted["receptions_by_start"]
    return {
        f"reception_start_{part}_ut": _mean_ut(total, count)
        for part, (total, count) in enumerate(zip(sums, counts, strict=True))
    }


def differences(counted: Mapping[str, Any], measured: Mapping[str, float | None]) -> int:
    """How many numbers Spark measures otherwise from the full trace than the kernel counted."""
    copies, receptions = counted["deliveries"], counted["receptions"]
    expected: dict[str, float | None] = {
        "broadcasts": counted["messages"],
        "deliveries": copies + counted["messages"],
        "packets": counted["packets"],
        "reception_mean_us": counted["reception_us"] / receptions,
        "reception_max_us": counted["reception_max_us"],
        "delivery_mean_us": counted["delivery_us"] / copies,
        "delivery_max_us": counted["delivery_max_us"],
        "held_mean_us": counted["held_us"] / copies,
        "held_max_us": counted["held_max_us"],
        "held_share": counted["delayed"] / copies,
        "held_peak_max": max(counted["held_peaks"]),
    }
    return sum(measured.get(name) != value for name, value in expected.items())


def _at(histogram: list[int], place: int) -> int:
    return histogram[place] if place < len(histogram) else 0


def _count(truths: Iterable[bool]) -> int:
    return sum(truths)


def _percent(part: float, whole: float) -> float | None:
    return 100 * part / whole if whole else None


def _mean_ut(total_us: float, count: float) -> float | None:
    return total_us / count / UNIT_US if count else None
