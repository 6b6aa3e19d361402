"""The words of the tour."""

from __future__ import annotations

from typing import NamedTuple


class Words(NamedTuple):
    """What a chapter says whatever comes out."""

    title: str
    how: str
    figure: str
    caption: str


CHAPTERS = {
    "000": Words(
        title="VCube: one hypercube tree per source",
        how=(
            "Every node broadcasts over its own spanning tree. A message that a child could not deliver "
            "yet is kept back, and travels in one packet with what it waits for: fewer packets, and no "
            "delivery is later for it."
        ),
        figure="Fewer packets at no cost in time",
        caption=(
            "Every node broadcasts once in half a second; delays of 100 ± 25 ms. The paper's own starts "
            "contradict its Figure 6: R0 is how we read them."
        ),
    ),
    "001": Words(
        title="Causal barriers: order among nodes that meet by chance",
        how=(
            "A message names its immediate predecessors, and waits where they are missing, until they "
            "come or their lifetime is over. No node knows who is in the group."
        ),
        figure="Order costs little where the way is long",
        caption=(
            "Two hours of city buses that carry messages for each other; the paper's day has fourteen. "
            "Logarithmic."
        ),
    ),
    "002": Words(
        title="TDCA and ODCA: causal order before a deadline",
        how=(
            "A message that is late is worthless. TDCA gives up what does not come by itself; ODCA asks "
            "the senders of later messages for what they must have had."
        ),
        figure="What asking gains",
        caption=(
            "Loss of 5 % on each hop, deadlines of half a second on average; two seeds a point. This "
            "reading of the network was fitted to the paper's range."
        ),
    ),
    "003": Words(
        title="PRC-broadcast: order by the links, not by names",
        how=(
            "Over FIFO links a flood is in causal order by itself. PRC keeps that true while links open "
            "and close: a new link is used only when nothing that is under way elsewhere can be overtaken "
            "over it."
        ),
        figure="A packet that does not grow with the group",
        caption="The same floods by PRC and by vector clocks; one run of each size, without an interval.",
    ),
    "004": Words(
        title="Causality domains: the clock of a domain, not of the system",
        how=(
            "Servers send each other point-to-point messages. With one matrix clock a message costs the "
            "square of all servers; in domains of √n, linked by routers, it costs in proportion to n. "
            "Order holds as long as the domains form no cycle."
        ),
        figure="Linear instead of quadratic",
        caption=(
            "Two servers that are no routers send each other messages; every entry of every stamp is "
            "counted. Points of the paper are its laws, 4 n² and 12 n."
        ),
    ),
}
COMMON_NOTE = (
    "Twelve nodes, fifty messages a second, half of them answered; link delays exponential, 10 ms on "
    "average; three seeds. Flooding protocols on a random graph of degree 4, the others where any two "
    "nodes can talk. matrix and domains send to one node, the others to all. tdca and odca: lifetimes of "
    "2 s. PRC, link memory and preventive broadcast need FIFO links, on which a flood keeps causal order by "
    "itself. oppnet is not here: it needs contacts, and has them in its chapter. The origins of log are "
    "lives of nodes: of these Spark measures no latency yet."
)
SUMMARY = (
    "Each of five systems in the environment that it was made for, simulated on Spark, judged by a "
    "verifier that knows no protocol, measured, and set beside what its paper prints. Then all protocols "
    "under one workload, and one violation as the verifier proves it."
)
