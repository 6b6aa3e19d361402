"""What the page of the VCube study says whatever comes out: captions, notes, how the paper is read.

Nothing here states what was measured: `vcube_findings.py` does, from the runs.
"""

from __future__ import annotations

TABLE_1_CAPTION = (
    "Without aggregation a run sends exactly N (N − 1) packets. The paper's own column of reductions jumps "
    "between 128 and 256 nodes. R1 is fitted to this table, R0 is not."
)
TABLE_2_CAPTION = "Packets by the number of messages in them, on a logarithmic scale."
TABLE_2_NOTE = (
    "Accepted for R0: ± 3 points on one message, ± 1 on the others, a largest packet of 11 to 16 messages."
)
TABLE_3_CAPTION = (
    "The paper's two column headings are swapped: its text says that 8.45 % of the packets with aggregation "
    "are larger than all packets without, which is 3.91 % + 4.54 % of the column headed “No Aggr.”."
)
TABLE_3_NOTE = (
    "By the paper's account: 20 bytes, and for each message 50 + 4 (dependencies + 1). No packet has exactly "
    "100 bytes. Accepted for R0: ± 10 points."
)
FIGURE_1_CAPTION = (
    "One fixed tree against one tree per source. Every message passes the root of the fixed tree, which "
    "sends log2 N copies of it, one per u.t.: N log2 N exceeds the 500 u.t. of the window from 128 nodes on, "
    "and the root's queue grows as long as nodes broadcast. The paper shows the shape only, from another "
    "publication, and prints no numbers."
)
FIGURE_1_NOTE = "Right: the window in which nodes broadcast, cut into ten parts."
FIGURE_6_CAPTION = (
    "Messages by what they depend on: of how many other nodes the sender had delivered a message when it "
    "broadcast. The paper prints three points."
)
FIGURE_6_NOTE = "Accepted for R0: 27 ± 5 % without dependencies, at most 40 to 70."
FIGURE_7_CAPTION = (
    "From the broadcast to the arrival (reception) and to the delivery at another node. Aggregation keeps a "
    "message back only while the child could not deliver it anyway. In the largest group queues dominate, "
    "and fewer packets queue less."
)
FIGURE_7_CHANGE = (
    "The same latencies with aggregation against those without, seed by seed. The paper prints two points of "
    "the left plot and one of the right; up to 512 nodes it has delivery within 3.2 % either way."
)
FIGURE_7_NOTE = (
    "Means over messages and nodes. Held: from arrival to delivery. Queue: mean wait of a packet for its "
    "transmission. The paper prints the growth of reception latency from 8 to 1024 nodes as 2.1 (with) and "
    "2.2 (without): not reproduced, these cannot be ratios of latencies."
)
FIGURE_8_CAPTION = (
    "Only the messages that arrive in packets of two, beside the same messages at the same nodes in the same "
    "runs without aggregation."
)
FIGURE_8_NOTE = (
    "Changes against being sent alone, where the runs have 30 such copies or more. The paper has reception "
    "up to 13.6 % later, delivery the same but for 1024 nodes, and no aggregation at 8 nodes. No tolerance "
    "is set for this figure."
)
FIGURE_9_CAPTION = (
    "How many nodes never buffer more than so many messages at a time. Demanded is only that more nodes stay "
    "at or below 50 with aggregation. The paper's long tail (24 and 212 nodes that buffer more than 250) is "
    "not reproduced by any reading of the network."
)
FIGURE_9_NOTE = (
    "A message is buffered if it is not delivered in the step in which it arrives. The paper prints “less "
    "than 25 % of the nodes” at or below 50 without aggregation: 256 is that bound."
)
FIGURE_10_CAPTION = (
    "Nodes by the largest packet that they ever sent. Smaller messages leave room for more of them in 1500 "
    "bytes. The paper prints the shares of two ranges: see the table."
)
FIGURE_11_CAPTION = (
    "Messages in packets with several, and messages that are delivered later than they arrive: one tree per "
    "source against a single tree. In one tree all messages take the same way, and only the spread of delays "
    "puts them out of order."
)
FIGURE_11_NOTE = (
    "The paper: at least 86 % fewer aggregated (at 32 nodes) and 84 % fewer delayed (at 128). In groups of "
    "16 and 32 a run has few such messages, so that the scale “paper” repeats them 300 times for this figure "
    "under R0. Nothing is demanded where all runs of a point have fewer than 1,000 of them together."
)

READING_COLUMNS = ("what", "the paper prints", "R0", "R1 (fitted)", "because")
READING = (
    (
        "broadcast times",
        "Poisson, λ = 1000 u.t.",
        "uniform in [0, 500) u.t.",
        "uniform in [0, 550) u.t.",
        "the printed distribution contradicts Figure 6; the authors' sibling simulator draws uniformly",
    ),
    (
        "propagation (tpp)",
        "normal, 100 ± 25 u.t.",
        "normal, 100 ± 25 u.t.",
        "normal, 100 ± 35.4 u.t.",
        "drawn for each packet, a negative draw again; links are not FIFO",
    ),
    ("transmission (tt)", "1 u.t.", "1 u.t. a copy", "as R0", "one FIFO sending queue per node (tq)"),
    (
        "processing (tpc)",
        "1 u.t.",
        "1 u.t. after arrival",
        "as R0",
        "a constant delay; packets do not wait for each other",
    ),
    (
        "size of a packet",
        "header + k (clock + message)",
        "20 + Σ (50 + 4 (dependencies + 1)) bytes",
        "as R0",
        "Birman's compression: what changed since the node's last broadcast, and its own entry",
    ),
    ("MTU", "1500 bytes", "1500 bytes", "as R0", "what does not fit goes into a further packet"),
    (
        "children",
        "1 < s ≤ h",
        "s = 1 … h, in this order",
        "as R0",
        "as printed, Algorithm 1 leaves nodes out",
    ),
)

RESIDUAL_COLUMNS = ("what", "paper", "here", "why")
WHY_REDUCTION = (
    "Aggregation needs messages out of order, so it grows with the spread of delays: R1's is √2 times the "
    "printed one. No reading follows the paper's jump from 15.4 % to 24.5 % between 128 and 256 nodes."
)
WHY_DEPENDENCIES = (
    "Messages with more dependencies make larger packets (Table 3). No uniform window has both of the "
    "paper's shares: a narrower one lowers this share and raises that of messages without dependencies."
)
WHY_GROWTH = (
    "Not reproduced. They cannot be ratios of mean latencies: the mean number of hops alone grows by 2.9, "
    "from 1.7 to 5.0."
)
WHY_QUEUE = (
    "Near saturation a little more traffic makes far longer queues: without aggregation a node sends 1023 "
    "copies, and has little more than the window and the time of the last messages for them."
)
WHY_RECEPTION = (
    "Kept back for a shorter time: what a message waits for comes soon after it. Not demanded; delivery, "
    "which matters, agrees."
)
WHY_PAIRS = (
    "In a packet of two the first message comes with what it waited for here, so that it is nearly always "
    "delivered at once. Not demanded."
)
WHY_TAIL = (
    "Not reproduced by any reading. A tail would need nodes that fall far behind the others; nothing in the "
    "paper's section 5 makes nodes differ."
)
WHY_SINGLE = (
    "The paper does not say how a message gets to the root. Here the source sends it straight there, over "
    "one link."
)
WHY_FEW = (
    "A run of so small a group has only a few delayed messages (see the table), and 30 runs, the paper's "
    "number, can miss the accepted 80 % by chance: this figure takes 300 runs at 16 and 32 nodes."
)
