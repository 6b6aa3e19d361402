"""Whether each domain by itself kept causal order: theorem 1 speaks of runs whose parts are all in order.

A hop is a message of its domain: it is sent when a server gives it to its link and delivered when that server
delivers it or forwards it. Judged by what was sent and delivered alone, with sets of counts, not by the
clocks of the protocol: a hop must be its sender's next one to that server, and all hops to that server of
which its sender knew must have been delivered there.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import NamedTuple

from whence.core.message import NodeId

Place = tuple[int, NodeId]  # a domain, a server in it
Key = tuple[str, int]  # a message


class _Hop(NamedTuple):
    domain: int
    sender: NodeId
    past: dict[tuple[NodeId, NodeId], int]  # pair of servers -> hops of the domain that its sender knew of
    number: int  # of its pair


class LocalOrder:
    """Counts the hops that overtook another one of their own domain."""

    def __init__(self) -> None:
        self.violations = 0
        self._known: defaultdict[Place, Counter[tuple[NodeId, NodeId]]] = defaultdict(Counter)
        self._got: defaultdict[Place, Counter[NodeId]] = defaultdict(Counter)
        self._flying: dict[tuple[Key, NodeId], _Hop] = {}

    def sent(self, domain: int, sender: NodeId, to: NodeId, key: Key) -> None:
        """A server gives a hop to its link; what it forwards it has delivered in the domain it came from."""
        self.delivered(sender, key)
        known = self._known[domain, sender]
        past = dict(known)
        known[sender, to] += 1
        self._flying[key, to] = _Hop(domain, sender, past, known[sender, to])

    def delivered(self, node: NodeId, key: Key) -> None:
        """A hop is at its end; nothing happens if none was on its way there."""
        hop = self._flying.pop((key, node), None)
        if hop is None:
            return
        got = self._got[hop.domain, node]
        missed = any(count > got[k] for (k, to), count in hop.past.items() if to == node and k != hop.sender)
        self.violations += missed or hop.number != got[hop.sender] + 1
        got[hop.sender] += 1
        known = self._known[hop.domain, node]
        for pair, count in (*hop.past.items(), ((hop.sender, node), hop.number)):
            known[pair] = max(known[pair], count)
