"""Measures the relay beside its rivals, on the local stack: `python -m bench`. See docs/benchmarks.md."""
