"""Operate the relay: the commands of `python -m relay`, the console, and the dead-letter queues.

The relay imports nothing of this package, and the deployed app does not contain it.
"""
