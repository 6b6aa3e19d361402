"""Limits on everything that a peer or a slow reader could make grow, with units in the names."""

from __future__ import annotations

import msgspec

from whence.errors import ParameterError

_FRAME_SLACK_BYTES = 64 * 1024  # control information beside the payload
_FRAME_SLACK_PER_MEMBER_BYTES = 128  # 14 numbers: the longest test of VCube has 13 for each member
_NUMBER_BYTES = 9  # the longest number of MessagePack
_HARD_FACTOR = 8


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one node allows. The defaults suit a group of tens of nodes on a local network.

    `max_payload_bytes` must be the same at every member, and `clock_slack_s` at those that keep a trace
    together; the rest is each node's own business.
    """

    max_payload_bytes: int = 1024 * 1024

    # Sending: `broadcast` waits while a peer has more than this unacknowledged. What the protocol
    # relays for others may pass it, up to `hard_factor` times as much: then the peer is given up.
    queue_messages: int = 4096
    queue_bytes: int = 8 * 1024 * 1024
    hard_factor: int = _HARD_FACTOR

    datagram_bytes: int = 1400  # packets share a datagram up to this size; a larger one travels alone

    # Receiving: acknowledgements are withheld while the application has this much left to read.
    unread_messages: int = 16384
    unread_bytes: int = 32 * 1024 * 1024

    connect_timeout_s: float = 5.0
    handshake_timeout_s: float = 5.0
    backoff_first_s: float = 0.05
    backoff_max_s: float = 5.0
    heartbeat_s: float = 2.0  # a PING leaves when nothing else has for this long
    silence_s: float = 10.0  # a connection that has been silent for this long is dead
    ack_delay_s: float = 0.02  # an acknowledgement waits this long for company
    leave_timeout_s: float = 5.0  # how long `leave` waits for its last messages to be acknowledged
    warn_after_s: float = 5.0  # a broadcast that waits for longer says why, once
    clock_slack_s: float = 0.005  # the members' clocks agree so well: for the verifier, if a trace is kept
    # A member that nobody of more than half the group has reached for this long is retired; None: never.
    retire_after_s: float | None = None

    def check(self) -> None:
        """Refuse values that cannot work, naming the field."""
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is None and name == "retire_after_s":
                continue
            number = isinstance(value, int | float) and not isinstance(value, bool)
            whole = not name.endswith("_s")
            if not number or value <= 0 or (whole and not isinstance(value, int)):
                kind = "a positive whole number" if whole else "a positive number of seconds"
                raise ParameterError(f"limit {name!r}", f"{value!r} is not {kind}", "Change or remove it")
        if not 256 <= self.datagram_bytes <= 65_507:
            raise ParameterError(
                "limit 'datagram_bytes'", f"{self.datagram_bytes} is not from 256 to 65507", "Use 1400"
            )
        if self.silence_s <= self.heartbeat_s:
            raise ParameterError(
                "limit 'silence_s'",
                f"{self.silence_s} s is not more than the heartbeat of {self.heartbeat_s} s",
                "Make it at least three times heartbeat_s",
            )

    def max_frame_bytes(self, members: int, *, matrix: bool = False) -> int:
        """The longest frame that a correct peer can send; with `matrix`, a whole clock of all pairs."""
        slack_bytes = _FRAME_SLACK_BYTES + _FRAME_SLACK_PER_MEMBER_BYTES * members
        return self.max_payload_bytes + slack_bytes + (_NUMBER_BYTES * members * members if matrix else 0)

    def hard_messages(self, members: int) -> int:
        """How many unacknowledged messages a peer may have before it is given up.

        Every member may have twice its soft limit under way before it waits for the slow peer (see
        flow.py), and where messages are relayed all of them pass through every queue: so not less
        than two shares per member.
        """
        return self.queue_messages * max(self.hard_factor, 2 * members + 2)

    def hard_bytes(self, members: int) -> int:
        """The same in bytes."""
        return self.queue_bytes * max(self.hard_factor, 2 * members + 2)
