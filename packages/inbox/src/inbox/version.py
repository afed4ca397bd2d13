"""The version of this distribution, as in its pyproject.toml."""

__version__ = "0.1.0"
