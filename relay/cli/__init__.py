"""`python -m relay`: check and try a deployment, see to the quarantine, publish again.

Start at `relay.cli.main`. The function app imports nothing of this.
"""
