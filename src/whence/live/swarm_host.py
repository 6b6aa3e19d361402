"""The host of a core whose links open and close: what the overlay tells it, and what it closes itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from whence.core.effects import CloseLink, Effect, Send
from whence.core.message import NodeId, Packet
from whence.live.host import Host
from whence.protocols.prc.links import Overlaid
from whence.session.wire import data_frame
from whence.trace.schema import Kind, Recorder, command_text


class SwarmHost(Host):
    """A `Host` for the protocols of `protocols/prc/links.py`."""

    max_frame_bytes: int
    on_close: Callable[[NodeId, str], None]  # the core has forgotten its link to the peer, or must

    @property
    def overlaid(self) -> Overlaid:
        """The core, by its right type."""
        return cast(Overlaid, self.core)

    def start(self, recorder: Recorder | None) -> None:
        """Before the first input. Every process lives once: who comes back has another name."""
        self.recorder = recorder

    def joined(self) -> None:
        """Mark in the trace from when on this process must deliver what is broadcast."""
        if self.recorder is not None:
            self.recorder.event(self.core.me, self._clock.now_us(), Kind.SAMPLE, None, 1, detail="joined")

    def command(self, verb: str, *names: NodeId) -> None:
        """Tell the core what the overlay has decided."""
        if not self.stopped:
            now_us = self._clock.now_us()
            effects = self.core.command(verb, names, now_us)
            self._input(effects, now_us, Kind.COMMAND, detail=command_text(verb, names))

    def receive(self, peer: NodeId, packets: list[Packet], now_us: int | None = None) -> None:
        """As `Host.receive`. A buffer may bring what is here already: ask the core what it holds."""
        super().receive(peer, packets, now_us)
        self.held = len(self.overlaid.unechoed)

    def _send(self, effect: Send) -> int:
        """A packet that no peer would accept (too long a buffer) ends its link, which is always safe."""
        frame = data_frame(effect.packet)
        if len(frame) > self.max_frame_bytes:
            for peer in effect.to:
                self.on_close(peer, f"a packet of {len(frame)} bytes is too long for it")
            return 0
        for peer in effect.to:
            self._links[peer].out.pending.append(frame)
        self.largest_frame_bytes = max(self.largest_frame_bytes, len(frame))
        return len(frame)

    def _carry_out_rare(self, effect: Effect) -> None:
        if isinstance(effect, CloseLink):
            if self.recorder is not None:
                # Its core knows already, and does nothing when a replay tells it.
                self.recorder.event(self.core.me, self._clock.now_us(), Kind.LINK_DOWN, peer=effect.peer)
            self.on_close(effect.peer, "the protocol gave its handshake up")
        else:
            super()._carry_out_rare(effect)
