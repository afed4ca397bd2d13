"""The SQL of the stores, written once for all databases, without I/O."""
