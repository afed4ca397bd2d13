"""A connection pooler that refuses the parameters of a session, as PgBouncer does."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import pytest

import changefeed
from changefeed import SetupError

# https://www.postgresql.org/docs/current/protocol-error-fields.html; the text is PgBouncer's (src/client.c).
_REFUSAL = b"SFATAL\0C08P01\0Munsupported startup parameter: options\0\0"


@contextmanager
def pooler() -> Iterator[int]:
    """A server that refuses one connection; its port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)

        def refuse() -> None:
            connection, _ = server.accept()
            with connection:
                connection.settimeout(10)
                connection.recv(4096)
                connection.sendall(b"E" + struct.pack("!i", len(_REFUSAL) + 4) + _REFUSAL)

        thread = Thread(target=refuse)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            thread.join(10)


def test_a_pooler_that_refuses_the_sessions_parameters_is_named_with_the_remedy() -> None:
    with pooler() as port, pytest.raises(SetupError, match=r"PgBouncer. Connect to the server directly") as raised:
        changefeed.connect(
            f"postgresql://user:secret@127.0.0.1:{port}/database?sslmode=disable&gssencmode=disable"
        )
    assert "secret" not in str(raised.value)
