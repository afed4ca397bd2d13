"""Connection strings: what they set is kept, and no error shows a part of one."""

from __future__ import annotations

import pytest

import changefeed
from changefeed import SetupError
from changefeed.statements import Statement

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
    session = changefeed.connect(f"{changefeed_database}&options=-c%20application_name%3Dmine&connect_timeout=7")
    shown = [
        session.execute(Statement(f"show {name}")).rows[0][0] for name in ("application_name", "statement_timeout")
    ]
    session.close()

    assert shown == ["mine", "1min"]


def test_a_statement_timeout_of_the_url_counts(changefeed_database: str) -> None:
    session = changefeed.connect(f"{changefeed_database}&options=-c%20statement_timeout%3D5s")
    shown = session.execute(Statement("show statement_timeout")).rows[0][0]
    session.close()

    assert shown == "5s"
