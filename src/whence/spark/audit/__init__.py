"""The auditor of foreign logs on Spark: for logs larger than memory, and for streams."""
