"""Stores of the messages that a consumer has handled."""
