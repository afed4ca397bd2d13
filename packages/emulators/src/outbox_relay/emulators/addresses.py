"""The address that an emulator listens on, and the one at which its clients reach it."""

from __future__ import annotations

LOOPBACK = "127.0.0.1"
HOST_VARIABLE = "EMULATORS_HOST"
"""The environment variable with the default of `--host`: containers set it, as nothing sees their loopback."""

_ALL = {"0.0.0.0": LOOPBACK, "::": "::1"}
_LOCAL = frozenset({LOOPBACK, "::1", "localhost"})


def is_local(host: str) -> bool:
    """Return whether a client on this machine reaches what listens on `host` by the name `localhost`."""
    return host in _ALL or host in _LOCAL


def elsewhere(host: str) -> dict[str, str]:
    """Return the line for a person on how clients on other machines, or behind a mapped port, reach `host`."""
    return {"From elsewhere": "with this machine's name, and the port as mapped"} if host in _ALL else {}


def reachable(host: str) -> str:
    """Return the host, as in a URL, at which a client on this machine reaches what listens on `host`."""
    found = _ALL.get(host, host)
    return f"[{found}]" if ":" in found else found


def host_name(text: str) -> str:
    """Parse the value of `--host`. Raises ValueError."""
    if not text or not text.isascii() or not text.strip("[]"):
        raise ValueError(f"must be a host name or an IP address, not '{text}'")
    return text.strip("[]")
