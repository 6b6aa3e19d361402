"""Keeps one link connected: dials, waits for the connection to end, backs off, dials again."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from whence.live.secure import connection_to
from whence.session.links import Link

if TYPE_CHECKING:
    from whence.live.node import Node


async def keep_dialling(node: Node, link: Link) -> None:
    """Connect to the peer of `link` again and again, until it is gone for good.

    A peer that may come back never is; and one that was wrongly declared faulty must be told.
    """
    loop = asyncio.get_running_loop()
    limits = node.limits
    attempts = 0
    while link.alive or link.renews:
        began_s, before = loop.time(), _progress(link)
        try:
            async with asyncio.timeout(limits.connect_timeout_s):
                _, connection = await loop.create_connection(lambda: connection_to(node, link), *link.address)
        except OSError as error:  # TimeoutError is one
            link.last_error = error
            if attempts == 0:  # the first of a row, or a peer that is down would fill the log
                detail = f"cannot reach {link.peer} at {link.address} ({error}); trying again"
                node.journal.note("unreachable", link.peer, detail)
        else:
            await connection.closed
        # A connection that achieved nothing is as bad as none: a peer that refuses us, or always
        # sends the same nonsense, is asked less and less often.
        useful = _progress(link) != before or loop.time() - began_s > limits.backoff_max_s
        attempts = 0 if useful else attempts + 1
        delay_s = min(limits.backoff_max_s, limits.backoff_first_s * 2.0 ** min(attempts, 30))
        delay_s *= random.uniform(0.5, 1.0)  # so that a group does not come back in step
        await asyncio.sleep(max(delay_s, link.refuse_until_s - loop.time()))


def _progress(link: Link) -> tuple[int, int]:
    return link.incoming.received, link.out.acknowledged
