"""Measures the relay against its baselines, on the local stack. See docs/benchmarks.md."""
