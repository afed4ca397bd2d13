"""What the relay is measured beside: each takes the same documents to the same topic in its own way."""
