"""Trees of domains by the law of paper 004, section 6.2: s servers a domain, k sub-domains each, depth d."""

from __future__ import annotations

from whence.overlay.domain_graph import Groups
from whence.sim.model import node_names

TREE = "tree-law"
TREE_SERVERS, TREE_FANOUT = 5, 4  # s, k
TREE_DEPTHS = {f"tree of depth {depth}": depth for depth in (1, 2, 3)}


def tree_servers(depth: int) -> int:
    """n = 1 + (s - 1)(k^(d+1) - 1)/(k - 1)."""
    domains = sum(int(TREE_FANOUT**level) for level in range(depth + 1))
    return 1 + (TREE_SERVERS - 1) * domains


def deep_tree(depth: int) -> tuple[Groups, tuple[str, str]]:
    """The domains, and two servers in leaves that are as far apart as two can be.

    Of each domain but the leaves k servers are routers, each the first server of a sub-domain.
    """
    names = iter(node_names(tree_servers(depth)))
    level = [[next(names) for _ in range(TREE_SERVERS)]]
    groups = list(level)
    for _ in range(depth):
        level = [
            [router, *(next(names) for _ in range(TREE_SERVERS - 1))]
            for group in level
            for router in group[-TREE_FANOUT:]
        ]
        groups += level
    return tuple(tuple(group) for group in groups), (level[0][-1], level[-1][-1])
