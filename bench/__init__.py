"""Measures the relay against its baselines, on the local stack: `python -m bench`. See docs/benchmarks.md."""
