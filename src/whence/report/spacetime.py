"""A violation as a space-time diagram: one line per node, time from left to right, one arrow per message.

Columns are the distinct times in order, evenly spaced: what matters is who came before whom, and real
times (written below) would squeeze half of the events onto one spot. The node that delivers too early has
the first line and the origin of the late message the second, so that their arrow crosses no other line.
"""

from __future__ import annotations

from html import escape

from whence.studies.witness import Mark, Witness

_LEFT, _RIGHT, _TOP, _LANE, _COLUMN, _BOTTOM = 64, 70, 34, 72, 116, 62


def svg(witness: Witness) -> str:
    """The diagram as one `<svg>` element."""
    lanes = {node: at for at, node in enumerate(dict.fromkeys([witness.node, *_nodes(witness)]))}
    times = sorted({mark.time_us for mark in witness.marks})
    columns = {time_us: at for at, time_us in enumerate(times)}

    def place(mark: Mark) -> tuple[int, int]:
        return _LEFT + 40 + columns[mark.time_us] * _COLUMN, _TOP + lanes[mark.node] * _LANE

    width = _LEFT + _RIGHT + (len(times) - 1) * _COLUMN + 40
    height = _TOP + (len(lanes) - 1) * _LANE + _BOTTOM
    label = f"Space-time diagram. {' '.join(witness.sentences)}"
    parts = [
        f'<svg role="img" aria-label="{escape(label)}" class="spacetime" viewBox="0 0 {width} {height}"'
        f' style="max-width: {width}px">',
        *_arrow_heads(),
    ]
    for node, at in lanes.items():
        y = _TOP + at * _LANE
        parts.append(f'<line class="lane" x1="{_LEFT}" y1="{y}" x2="{width - 16}" y2="{y}"/>')
        parts.append(f'<text class="node" x="{_LEFT - 12}" y="{y + 4}">{escape(node)}</text>')
    for time_us, at in columns.items():
        text = f"{(time_us - times[0]) / 1000:.1f} ms"
        parts.append(f'<text class="time" x="{_LEFT + 40 + at * _COLUMN}" y="{height - 8}">{text}</text>')
    parts += [_arrow(witness, place(start), place(end), end.message) for start, end in _flights(witness)]
    last = len(lanes) - 1
    parts += [_mark(witness, mark, *place(mark), last=lanes[mark.node] == last) for mark in witness.marks]
    parts.append("</svg>")
    return "\n".join(parts)


def _nodes(witness: Witness) -> list[str]:
    return [mark.node for mark in witness.marks]


def _role(witness: Witness, message: str) -> str:
    return "first" if message == witness.first else "second" if message == witness.second else "between"


def _arrow_heads() -> list[str]:
    return [
        "<defs>",
        *(
            f'<marker id="head-{role}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"'
            f' orient="auto"><path class="head {role}" d="M0 0L8 4L0 8z"/></marker>'
            for role in ("first", "second", "between")
        ),
        "</defs>",
    ]


def _flights(witness: Witness) -> list[tuple[Mark, Mark]]:
    """Each delivery with the broadcast that it comes from, if that is shown."""
    broadcasts = {mark.message: mark for mark in witness.marks if mark.kind == "broadcast"}
    return [
        (broadcasts[mark.message], mark)
        for mark in witness.marks
        if mark.kind == "deliver"
        and mark.message in broadcasts
        and broadcasts[mark.message].node != mark.node
    ]


def _arrow(witness: Witness, start: tuple[int, int], end: tuple[int, int], message: str) -> str:
    role = _role(witness, message)
    (x1, y1), (x2, y2) = start, end
    length = max(1.0, ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5)
    x2, y2 = round(x2 - 9 * (x2 - x1) / length), round(y2 - 9 * (y2 - y1) / length)  # end at the mark's rim
    return f'<path class="flight {role}" d="M{x1} {y1}L{x2} {y2}" marker-end="url(#head-{role})"/>'


def _mark(witness: Witness, mark: Mark, x: int, y: int, *, last: bool) -> str:
    role = _role(witness, mark.message)
    wrong = mark.node == witness.node and mark.message == witness.second and mark.kind == "deliver"
    ring = f'<circle class="wrong" cx="{x}" cy="{y}" r="12"/>' if wrong else ""
    # Names stand where no arrow passes: arrows reach the first line from below, the others mostly from
    # above, and leave a broadcast to the right.
    said = "sent" if mark.kind == "broadcast" else "delivered"
    below = last or (mark.kind == "deliver" and mark.node != witness.node)
    side = " left" if mark.kind == "broadcast" and not last else ""
    return (
        f'{ring}<circle class="event {mark.kind} {role}" cx="{x}" cy="{y}" r="6"/>'
        f'<text class="message {role}{side}" x="{x}" y="{y + 26 if below else y - 16}">'
        f"{escape(mark.message)} {said}</text>"
    )
