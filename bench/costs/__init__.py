"""Money and limits of a deployment, from list prices: `python -m bench.costs`. See docs/capacity.md."""
