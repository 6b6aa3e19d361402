"""What a delivery costs as the group grows: cores and codec, no sockets. `barrier` against `vector`.

    python bench/bench_cores.py [--rounds N] [--sizes 4 16 64]

Every member speaks once, then every member receives what all others said, round after round: each message
names all of the round before, which is the dearest for both. Microseconds of thread CPU per delivery, for
broadcasting with encoding, for decoding, and for the core; the two protocols alternate, and a ratio is the
median of the pairs'. Barriers at most twice `vector` with 64 speakers is what is aimed at.
"""

from __future__ import annotations

import argparse
import json
import statistics
from time import thread_time_ns

from forked import PAYLOAD
from whence.core.effects import Deliver, Deliveries, Effects, Send
from whence.protocols import registry
from whence.session.wire import FrameReader, encode_packet, packets_frame

TURNS = 6  # of a round; the first is not counted


def delivered(effects: Effects) -> int:
    """The messages that are delivered with these effects."""
    return sum(len(each[0]) if type(each) is Deliveries else type(each) is Deliver for each in effects)


def one_round(protocol: str, size: int) -> tuple[float, float, float]:
    """Microseconds per delivery: to broadcast, to decode, to receive."""
    names = [f"n{at:03}" for at in range(size)]
    cores = [registry.make(protocol, name, names, {"relay": False}) for name in names]
    reader = FrameReader(cores[0].packet_type, 1 << 20)
    for core in cores:
        for peer in set(names) - {core.me}:
            core.link_up(peer, 0)
    spent_ns, count = [0, 0, 0], 0
    for turn in range(TURNS):
        began = thread_time_ns()
        said = [core.broadcast(PAYLOAD, turn) for core in cores]
        frames = [
            packets_frame(encode_packet(effect.packet))
            for effects in said
            for effect in effects
            if type(effect) is Send
        ]
        spent = [thread_time_ns() - began, 0, 0]
        for core in cores:
            others = [(peer, frame) for peer, frame in zip(names, frames, strict=True) if peer != core.me]
            began = thread_time_ns()
            packets = [(peer, reader.feed(frame)) for peer, frame in others]
            decoded = thread_time_ns()
            effects = [core.receive_many(peer, each, turn) for peer, each in packets]
            spent[1] += decoded - began
            spent[2] += thread_time_ns() - decoded
            count += sum(map(delivered, effects)) if turn else 0
        if turn:
            spent_ns = [total + part for total, part in zip(spent_ns, spent, strict=True)]
    assert count == (TURNS - 1) * size * (size - 1), "a delivery is missing"
    broadcast, decode, receive = (total / count / 1e3 for total in spent_ns)
    return broadcast, decode, receive


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sizes", type=int, nargs="+", default=[4, 16, 64])
    options = parser.parse_args()
    for size in options.sizes:
        pairs = [(one_round("vector", size), one_round("barrier", size)) for _ in range(options.rounds)]
        line: dict[str, float] = {"members": size}
        for name, rounds in zip(("vector", "barrier"), zip(*pairs, strict=True), strict=True):
            best = min(rounds, key=sum)
            line[f"{name} us"] = round(sum(best), 2)
            parts = ", ".join(
                f"{what} {us:.2f}" for what, us in zip(("broadcast", "decode", "core"), best, strict=True)
            )
            print(f"{size:4} members  {name:8} {sum(best):6.2f} us per delivery ({parts})")
        ratios = sorted(sum(barrier) / sum(vector) for vector, barrier in pairs)
        line["ratio"] = round(statistics.median(ratios), 2)
        print(f"     barrier : vector {line['ratio']:.2f} (from {ratios[0]:.2f} to {ratios[-1]:.2f})")
        print(json.dumps({"bench": "cores", **line}))


if __name__ == "__main__":
    main()
