"""What a VCube run measures: the numbers behind the paper's tables and figures, as plain data.

Section 5 of the paper names a *message* what an application broadcasts and a *packet* what travels;
a *copy* is one message at one of the nodes that did not broadcast it. Sums are kept instead of means,
so that runs can be added up without loss.
"""

from __future__ import annotations

import msgspec


class Measures(msgspec.Struct, frozen=True, kw_only=True):
    """One run. Times are sums over copies (or packets), in microseconds, with the largest beside them."""

    nodes: int
    messages: int  # broadcast
    # Table 1
    packets: int  # sent; N (N - 1) without aggregation
    aggregated_packets: int  # with more than one message
    copies: int  # messages in all packets together
    aggregated_messages: int  # messages in the packets with more than one (Figure 11)
    # Tables 2 and 3, Figure 6: histograms; place k counts what has k
    packets_by_messages: list[int]
    packets_by_bytes: dict[int, int]  # by the paper's account; everything from BYTES_MAX on is at BYTES_MAX
    packet_bytes: int  # the sum, by the paper's account
    messages_by_dependencies: list[int]
    # Figures 7 and 8: from the broadcast to the arrival, to the delivery, and in between
    receptions: int
    reception_us: int
    reception_max_us: int
    deliveries: int  # at nodes other than the origin
    delivery_us: int
    delivery_max_us: int
    delayed: int  # copies that were delivered later than they arrived (Figure 11)
    held_us: int
    held_max_us: int
    queued_us: int  # over packets: in the sender's queue before being transmitted (tq)
    queued_max_us: int
    # Figures 9 and 10: by node
    held_peaks: list[int]  # most messages received and not delivered, after a step
    messages_max: list[int]  # most messages in one packet that the node sent
    final_us: int  # when the last packet arrived

    def aggregated_share(self) -> float:
        """The share of packets that carry more than one message (Table 1's last column)."""
        return self.aggregated_packets / self.packets if self.packets else 0.0

    def reduction(self) -> float:
        """How much fewer packets than copies: Table 1's reduction, where each copy alone were a packet."""
        return 1.0 - self.packets / self.copies if self.copies else 0.0


def trimmed(histogram: list[int]) -> list[int]:
    """Without the zeros at the end."""
    last = len(histogram)
    while last and not histogram[last - 1]:
        last -= 1
    return histogram[:last]
