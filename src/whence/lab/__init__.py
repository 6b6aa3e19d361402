"""The laboratory: runs, grids and attempts, without Spark."""
