"""Configure the relay: settings, streams, and the clients of Azure's services."""
