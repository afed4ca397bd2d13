"""The relay and its baselines."""
