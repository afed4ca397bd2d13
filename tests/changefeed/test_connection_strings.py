"""Connection strings, whose parts no error shows, and a pooler that refuses parameters as PgBouncer does."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Thread

import pytest

from outbox_relay import changefeed
from outbox_relay.changefeed import SetupError
from outbox_relay.changefeed.statements import Statement
from tests.support.pooler import dropping_options

_PASSWORDS = [
    "s3c ret",
    "s3c%ret",
    "x@s3cret",
    "x:s3cret",
    "x/s3cret",
    "x?s3cret",
    "x#s3cret",
    "x]s3cret",
    "s3c%0",
]


@pytest.mark.parametrize("password", _PASSWORDS)
def test_no_error_shows_a_part_of_the_password(password: str) -> None:
    url = f"postgresql://user:{password}@127.0.0.1:1/x"

    with pytest.raises(changefeed.ChangefeedError) as raised:
        changefeed.connect(url, connect_timeout=2)

    assert "s3c" not in str(raised.value)
    assert "ret@" not in str(raised.value)


@pytest.mark.parametrize("password", ["x@s3cret", "s3c%ret", "x/s3cret"])
async def test_the_async_face_is_the_same(password: str) -> None:
    with pytest.raises(SetupError, match="percent-encoded") as raised:
        await changefeed.connect_async(f"postgresql://user:{password}@127.0.0.1:1/x")

    assert "s3c" not in str(raised.value)


def test_options_of_the_url_add_to_the_defaults(changefeed_database: str) -> None:
    shown = []
    for option in ("application_name%3Dmine&connect_timeout=7", "statement_timeout%3D5s"):
        session = changefeed.connect(f"{changefeed_database}&options=-c%20{option}")
        names = ("application_name", "statement_timeout")
        shown.append([session.execute(Statement(f"show {name}")).rows[0][0] for name in names])
        session.close()

    assert shown == [["mine", "1min"], ["", "5s"]]


def test_an_unlimited_statement_takes_longer_than_the_timeout(changefeed_database: str) -> None:
    session = changefeed.connect(changefeed_database, options="-c statement_timeout=50ms")
    sleep = Statement("select pg_sleep(0.2)")

    with pytest.raises(changefeed.DatabaseError, match="statement timeout"):
        session.execute(sleep)
    session.execute(replace(sleep, unlimited=True))
    with pytest.raises(changefeed.DatabaseError, match="nowhere"):
        session.execute(Statement("select nowhere", unlimited=True))

    assert session.execute(Statement("show statement_timeout")).rows == [("50ms",)]
    session.close()


# A connection pooler that refuses the parameters of a session, as PgBouncer does


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
    with (
        pooler() as port,
        pytest.raises(
            SetupError, match=r"PgBouncer in transaction mode. Connect to the server directly"
        ) as raised,
    ):
        changefeed.connect(
            f"postgresql://user:secret@127.0.0.1:{port}/database?sslmode=disable&gssencmode=disable"
        )
    assert "secret" not in str(raised.value)


def test_a_pooler_that_drops_the_sessions_parameters_is_named_with_the_remedy(changefeed_database: str) -> None:
    with (
        dropping_options(changefeed_database) as url,
        pytest.raises(
            SetupError, match=r"were dropped.*PgBouncer in transaction mode. Connect to the server directly"
        ),
    ):
        changefeed.connect(url)
