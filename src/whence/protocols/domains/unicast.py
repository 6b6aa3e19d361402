"""What point-to-point protocols share: a known group, links that come up, and packets that wait for them."""

from __future__ import annotations

from collections.abc import Iterable

from whence.core.effects import Effects, Send
from whence.core.group import check_payload, check_peer, group_of
from whence.core.message import MessageId, NodeId, Packet
from whence.core.protocol import Protocol, State
from whence.errors import MisuseError
from whence.protocols.domains.consumer import plain, restored


class Unicast(Protocol):
    """Members are indexed by their place in the sorted list, so that all nodes agree without talking.

    A packet for a peer without a link waits in `unsent` and leaves, in order, when the link comes up.
    """

    def __init__(self, me: NodeId, members: Iterable[NodeId]) -> None:
        self.members, self.index, self.my_index = group_of(me, members)
        self.me = me
        self.last = 0
        self.neighbours: set[NodeId] = set()
        self.unsent: dict[NodeId, list[Packet]] = {}

    def broadcast(self, payload: bytes, now_us: int) -> Effects:
        """Point-to-point protocols have no broadcast: our misuse."""
        raise MisuseError(
            f"broadcast under protocol {self.name!r}", "its messages go to one node each", "Use send(to, ...)"
        )

    def _check_send(self, to: NodeId, payload: bytes) -> None:
        check_payload(payload)
        if to not in self.index:
            raise MisuseError(f"destination {to!r}", "it is not a member of the group", "Name a member")

    def _pass_to(self, peer: NodeId, packet: Packet, effects: Effects) -> None:
        """Give a packet to the link, or keep it until there is one."""
        if peer in self.neighbours:
            effects.append(Send((peer,), packet))
        else:
            self.unsent.setdefault(peer, []).append(packet)

    def link_up(self, peer: NodeId, now_us: int) -> Effects:
        check_peer(self.me, peer)
        self.neighbours.add(peer)
        return [Send((peer,), packet) for packet in self.unsent.pop(peer, [])]

    def link_down(self, peer: NodeId, now_us: int) -> Effects:
        self.neighbours.discard(peer)
        return []

    def _save_links(self) -> State:
        return {
            "last": self.last,
            "neighbours": sorted(self.neighbours),
            "unsent": [
                [peer, [plain(packet) for packet in packets]] for peer, packets in self.unsent.items()
            ],
        }

    def _restore_links(self, state: State) -> None:
        self.last = state["last"]
        self.neighbours = set(state["neighbours"])
        for peer, packets in state["unsent"]:
            self.unsent[peer] = [restored(fields, self.packet_type) for fields in packets]


def pair(source: NodeId, to: NodeId, count: int) -> MessageId:
    """How `explain` names a message of which only its place is known: the `count`-th from `source` to
    `to`."""
    return MessageId(f"{source}>{to}", count)
