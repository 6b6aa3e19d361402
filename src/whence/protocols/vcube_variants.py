"""The protocol "vcube" as it is registered: the paper's algorithm, or ours for groups that change."""

from __future__ import annotations

from collections.abc import Iterable

from whence.core.message import NodeId
from whence.errors import ParameterError
from whence.protocols.vcube import VCube
from whence.protocols.vcube_member_state import START_TIMEOUT_US, TEST_INTERVAL_US, TEST_TIMEOUT_US
from whence.protocols.vcube_members import VCubeMembers
from whence.protocols.vcube_state import MTU_BYTES


def vcube(
    me: NodeId,
    members: Iterable[NodeId],
    *,
    aggregate: bool = True,
    tree: str = "source",
    mtu_bytes: int = MTU_BYTES,
    size_model: str = "wire",
    detect: bool = False,
    joins: bool = False,
    test_interval_us: int = TEST_INTERVAL_US,
    test_timeout_us: int = TEST_TIMEOUT_US,
    start_timeout_us: int = START_TIMEOUT_US,
) -> VCube:
    """The paper's protocol, or with `detect` ours for groups that change.

    `joins`: this node was not there from the beginning, or comes back, and asks to be let in.
    """
    if not isinstance(detect, bool):
        raise ParameterError("detect", f"{detect!r} is not a boolean", "Use true or false")
    if not detect:
        if joins:
            raise ParameterError("joins", "without detect nobody can be let in", "Set detect to true")
        return VCube(me, members, aggregate=aggregate, tree=tree, mtu_bytes=mtu_bytes, size_model=size_model)
    if tree != "source":
        raise ParameterError("tree", f"detect does not work with {tree!r}", "Use 'source'")
    return VCubeMembers(
        me,
        members,
        aggregate=aggregate,
        mtu_bytes=mtu_bytes,
        size_model=size_model,
        joins=joins,
        test_interval_us=test_interval_us,
        test_timeout_us=test_timeout_us,
        start_timeout_us=start_timeout_us,
    )
