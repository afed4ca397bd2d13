"""The sources of events: what the relay needs of any outbox, and a package for each kind."""
