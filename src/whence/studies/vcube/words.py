"""The words of the VCube study: captions, notes, how the paper is read, and why numbers differ."""

from __future__ import annotations

TABLE_1_CAPTION = (
    "Without aggregation a run sends exactly N (N − 1) packets. The paper's own column of reductions jumps "
    "between 128 and 256 nodes. R1 is fitted to this table, R0 is not."
)
TABLE_2_CAPTION = "Packets by the number of messages in them, on a logarithmic scale."
TABLE_2_NOTE = "The paper's column is of one simulation of 49,262 packets."
TABLE_3_CAPTION = (
    "The paper's two column headings are swapped: its text says that 8.45 % of the packets with aggregation "
    "are larger than all packets without, which is 3.91 % + 4.54 % of the column headed “No Aggr.”."
)
TABLE_3_NOTE = (
    "By the paper's account: 20 bytes, and for each message 50 + 4 (dependencies + 1). No packet has exactly "
    "100 bytes."
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
FIGURE_6_NOTE = "The paper's shares are of one run."
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
    "transmission. The paper prints that reception latency is 2.1 (with) and 2.2 (without) times higher at "
    "1024 nodes than at 8: as ratios that cannot be, as “+ 210 %” and “+ 220 %” it would be 3.1 and 3.2."
)
FIGURE_8_CAPTION = (
    "Only the messages that arrive in packets of two, beside the same messages at the same nodes in the same "
    "runs without aggregation."
)
FIGURE_8_NOTE = (
    "Changes against being sent alone, where the runs have 30 such copies or more. The paper has reception "
    "up to 13.6 % later, delivery the same but for 1024 nodes, and no aggregation at 8 nodes."
)
FIGURE_9_CAPTION = (
    "How many nodes never buffer more than so many messages at a time. The paper's long tail (24 and "
    "212 nodes that buffer more than 250) is not reproduced by any reading of the network."
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
    "under R0. Sizes at which all runs together have fewer than 1,000 of them are left out of the least."
)

READING_COLUMNS = ("what", "the paper prints", "R0", "R1 (fitted)", "because")
READING = (
    ("broadcast times", "Poisson, λ = 1000 u.t.", "uniform in [0, 500) u.t.", "uniform in [0, 550) u.t.",
     "the printed distribution contradicts Figure 6; the authors' sibling simulator draws uniformly"),
    ("propagation (tpp)", "normal, 100 ± 25 u.t.", "normal, 100 ± 25 u.t.", "normal, 100 ± 35.4 u.t.",
     "drawn for each packet, a negative draw again; links are not FIFO"),
    ("transmission (tt)", "1 u.t.", "1 u.t. a copy", "as R0", "one FIFO sending queue per node (tq)"),
    ("processing (tpc)", "1 u.t.", "1 u.t. after arrival", "as R0",
     "a constant delay; packets do not wait for each other"),
    ("size of a packet", "header + k (clock + message)", "20 + Σ (50 + 4 (dependencies + 1)) bytes", "as R0",
     "Birman's compression: what changed since the node's last broadcast, and its own entry"),
    ("MTU", "1500 bytes", "1500 bytes", "as R0", "what does not fit goes into a further packet"),
    ("children", "1 < s ≤ h", "s = 1 … h, in this order", "as R0",
     "as printed, Algorithm 1 leaves nodes out"),
)  # fmt: skip

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
    "They cannot be ratios of mean latencies: the mean number of hops alone grows by 2.9, from 1.7 to 5.0. "
    "That “2.1 times higher” may mean + 210 %, a ratio of 3.1, was thought of when ours were known."
)
WHY_QUEUE = (
    "Near saturation a little more traffic makes far longer queues: without aggregation a node sends 1023 "
    "copies, and has little more than the window and the time of the last messages for them."
)
WHY_RECEPTION = "Kept back for a shorter time: what a message waits for comes soon after it."
WHY_PAIRS = (
    "In a packet of two the first message comes with what it waited for here, so that it is nearly always "
    "delivered immediately."
)
WHY_TAIL = (
    "Under no reading that was tried. A tail needs nodes that fall far behind the others; nothing in the "
    "paper's section 5 makes nodes differ."
)
WHY_SINGLE = (
    "The paper does not say how a message gets to the root. Here the source sends it straight there, over "
    "one link."
)
WHY_FEW = (
    "A run of so small a group has only a few delayed messages (see the table), and 30 runs, the paper's "
    "number, vary by ± 6 points: this figure takes 300 runs at 16 and 32 nodes."
)

READINGS_TITLE = "Readings of the network: root mean square of the differences from the paper, in points"
READINGS_NOTE = (
    "In brackets how many of the numbers agree or are near, of those that were run. R0: uniform starts "
    "in 500 u.t., deviation 25; R1: 550 and 35.4; U35: 500 and 35.4; T25 and T35: triangular starts "
    "(the sum of two uniform draws from 295 u.t.), 25 and 35.4. All but R0 were fitted to some of "
    "these. None has all of them, nor does any of some 90 further settings that were tried: none is "
    "adopted."
)
LARGE_NOTE = "The paper ends at 1024 nodes. One run has no interval."
SEVERAL_NOTE = (
    "Every node broadcasts four messages in the same window: four times the load, and later messages of "
    "a node depend on its earlier ones. “One” is the paper's case of the same size."
)
CRASHES_NOTE = (
    "Our extension, docs/vcube.md: VCube's own tests every 200 u.t., a timeout of 1,000. All crash at "
    "one time, for good. Latency of the survivors' messages: broadcast before the crash, until all know "
    "of it, and after. A message whose way leads through a crashed node waits for the detection: that "
    "is what “until” shows. Tests: control packets a node and second."
)
