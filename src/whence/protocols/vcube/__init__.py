"""Paper 000: aggregation over per-source VCube trees."""
