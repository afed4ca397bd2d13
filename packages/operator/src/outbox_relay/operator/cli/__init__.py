"""`python -m relay`: commands that check and test a deployment, manage the quarantine, and publish events again.

Start at `outbox_relay.operator.cli.main`. The function app does not import this package.
"""
