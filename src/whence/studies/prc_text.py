"""What the PRC study found, in sentences that hold the measured numbers."""

from __future__ import annotations

from whence.studies import prc_measures as m
from whence.studies.prc_expect import VIEWS
from whence.studies.prc_runs import FLOODING, HOUR, OPENING
from whence.studies.results import Results, farthest


def findings(results: Results) -> list[str]:
    """The sentences at the top of the page."""
    return [*_hour(results), _views(results), _table_1(results), *_frontier(results), _judged(results)]


def _sizes(results: Results) -> list[int]:
    return sorted({int(row.labels["nodes"]) for row in results.select(part=HOUR)})


def _mean(results: Results, measure: str, nodes: int) -> float:
    found = results.estimate(measure, part=HOUR, nodes=nodes)
    if found is None:
        raise ValueError(f"no hour of {nodes} processes has {measure}")
    return found.mean


def _hour(results: Results) -> list[str]:
    largest = _sizes(results)[-1]
    off = farthest(results.column("law_off_percent", part=HOUR), 0)
    space = ", ".join(
        f"{_mean(results, 'space_late', nodes):,.0f} entries with {nodes:,} processes"
        for nodes in _sizes(results)
    )
    left = sum(results.column("left", part=HOUR))
    early, late = (_mean(results, f"control_{when}", largest) for when in ("early", "late"))
    return [
        "In every minute with broadcasts, E is rate x delay x safe degree, "
        f"at most {abs(off or 0):.2f} % off.",
        f"At 2.5 s a process holds {space}; when the hour is over, {left:.0f} entries are left in all.",
        f"With {largest:,} processes, control traffic falls from {early:.2f} to {late:.2f} messages per "
        f"process and second as the delay grows to 2.5 s ({100 * (1 - late / early):.0f} % less), and is "
        "0 once nobody shuffles.",
    ]


def _views(results: Results) -> str:
    found = [
        f"{_mean(results, 'degree', nodes):.1f} with {nodes:,} processes"
        + (f" (paper: {VIEWS[nodes]:g})" if nodes in VIEWS else "")
        for nodes in _sizes(results)
    ]
    return f"Safe links of a process: {', '.join(found)}."


def _table_1(results: Results) -> str:
    def exponent(measure: str, protocol: str, axis: str) -> str:
        return f"{m.power(m.along(results, measure, protocol, axis))[1]:.2f}"

    return (
        "Table 1 holds as exponents: with the group, a message of vector grows by "
        f"{exponent('numbers_per_message', 'vector', 'nodes')} and of link memory by "
        f"{exponent('numbers_per_message', 'link_memory', 'nodes')}; memory grows by "
        f"{exponent('space', 'reliable', 'nodes')} for reliable, "
        f"{exponent('space', 'vector', 'nodes')} for vector, "
        f"{exponent('space', 'preventive', 'nodes')} for preventive and "
        f"{exponent('space', 'link_memory', 'nodes')} for link memory, whose own terms are the degree "
        f"({exponent('space', 'link_memory', 'degree')}) and what is in transit "
        f"({exponent('space', 'link_memory', 'delay_ms')})."
    )


def _frontier(results: Results) -> list[str]:
    sentences = []
    for nodes in m.sizes(results, "prc")[-3:]:
        rates = [f"{m.even_rate(results, protocol, nodes):,.0f} ({protocol})" for protocol in FLOODING]
        sentences.append(
            f"At 300 ms and {nodes:,} processes, PRC remembers less than the others up to "
            f"{' and '.join(rates)} broadcasts per second of the whole group."
        )
    nodes = m.sizes(results, "vector")[-1]
    cheap = m.even_rate_bytes(results, "vector", nodes)
    words = "at no rate" if cheap is None else f"from {cheap:.2g} broadcasts per second on"
    return [*sentences, f"In a group of {nodes}, PRC sends fewer bytes of control than vector {words}."]


def _judged(results: Results) -> str:
    rows = [row for row in results.rows if row.judged]
    kept = sum(row.ok for row in rows)
    moving = sum(row.labels["part"] == OPENING for row in rows)
    return (
        f"The verifier judged {len(rows)} recorded runs, {moving} with changing links: "
        f"{kept} kept every promise."
    )
