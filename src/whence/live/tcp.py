"""Reliable links over TCP: listens, dials, and leaves the rest to connections and peering."""

from __future__ import annotations

import asyncio
import errno
from collections import Counter
from collections.abc import Coroutine, Iterator
from typing import TYPE_CHECKING, Any

from whence.core.message import NodeId
from whence.errors import PlatformError
from whence.live.dialler import keep_dialling
from whence.live.secure import connection_to
from whence.session.addresses import Address
from whence.session.links import Link

if TYPE_CHECKING:
    from whence.live.node import Node


class TcpTransport:
    """One listening socket, one connection per pair of members."""

    def __init__(self, node: Node, *, renews: bool = False) -> None:
        self._node = node
        self._renews = renews  # a member may come back as a new process, without its state
        self.dropped: Counter[str] = Counter()  # stays empty: a reliable link drops nothing
        self._server: asyncio.Server | None = None

    def make_link(self, peer: NodeId, address: Address) -> Link:
        """The link to one peer: the member with the smaller name dials."""
        return Link(peer, address, dials=self._node.settings.node < peer, renews=self._renews)

    async def listen(self) -> None:
        """Bind the address; nobody is answered yet."""
        node = self._node
        host, port = node.settings.listen
        backlog = max(128, 2 * len(node.links))
        try:
            self._server = await asyncio.get_running_loop().create_server(
                lambda: connection_to(node, None), host, port, backlog=backlog, start_serving=False
            )
        except OSError as error:
            raise cannot_listen(node.settings.listen, error) from error

    async def start(self) -> list[Coroutine[Any, Any, None]]:
        """Begin to answer; answers the work that goes on until the node leaves."""
        if self._server is not None:
            await self._server.start_serving()
        return [keep_dialling(self._node, link) for link in self._node.links.values() if link.dials]

    def goodbye_times(self, deadline_s: float) -> Iterator[float]:
        """Say good-bye once, and wait until the deadline: the link repeats what is lost."""
        yield deadline_s

    def close(self) -> None:
        """Accept nobody any more."""
        if self._server is not None:
            self._server.close()
        self._node.peering.abort_strangers()


def cannot_listen(address: Address, error: OSError) -> PlatformError:
    """Why an address cannot be bound."""
    what = f"port {address.port} on {address.host}"
    if error.errno == errno.EADDRINUSE:
        return PlatformError(
            what, "it is in use", "Stop the program that uses it, or give this node another port in `peers`"
        )
    reason = error.strerror or str(error)
    return PlatformError(what, f"it cannot be listened on ({reason})", "Check the address of this node")
