"""Which addresses are of a container, in whatever spelling, and which are of none."""

from __future__ import annotations

import asyncio
import time
from string import ascii_letters
from typing import Any

import pytest
from azure.storage.blob.aio import ContainerClient
from hypothesis import given
from hypothesis import strategies as st

from outbox_relay import inbox
from outbox_relay.inbox.errors import DeadLetter
from tests.support import virtual_time

OURS = "https://acct.blob.core.windows.net/large"


def name_of(address: str, container: str = OURS) -> str:
    return inbox.BlobContents(ContainerClient.from_container_url(container))._name_of(address)


@pytest.mark.parametrize(
    "container",
    [OURS, "https://Acct.Blob.core.windows.net/large", "https://acct.blob.core.windows.net:443/large", f"{OURS}/"],
)
@pytest.mark.parametrize(
    "address",
    [
        f"{OURS}/a/1",
        "https://Acct.blob.CORE.windows.net/large/a/1",
        "https://acct.blob.core.windows.net:443/large/a/1",
        "HTTPS://acct.blob.core.windows.net:/large/a/1",
        f"{OURS}/a%2F1",
        f"{OURS}/%61/1",
    ],
)
def test_an_address_is_compared_as_rfc_3986_says(address: str, container: str) -> None:
    assert name_of(address, container) == "a/1"


def test_an_account_on_a_port_and_without_tls_is_compared_too() -> None:
    assert name_of("http://127.0.0.1:10000/acct/large/1", "http://127.0.0.1:10000/acct/large") == "1"
    assert name_of("http://localhost:80/acct/large/1", "http://LOCALHOST/acct/large") == "1"


ELSEWHERE = [
    "",
    "large/a",
    "http://[",
    "https://[::1/x",
    "https://acct.blob.core.windows.net\uff0flarge/a",
    "http://acct.blob.core.windows.net/large/a",
    "https://acct.blob.core.windows.net:8443/large/a",
    "https://acct.blob.core.windows.net:99999/large/a",
    "https://acct.blob.core.windows.net:x/large/a",
    "https://user@acct.blob.core.windows.net/large/a",
    "https://user:secret@acct.blob.core.windows.net/large/a",
    "https://acct.blob.core.windows.net@elsewhere.example/large/a",
    "https://acct.blob.core.windows.net.elsewhere.example/large/a",
    "https://acct.blob.core.windows.net/LARGE/a",
    OURS,
    f"{OURS}/",
    f"{OURS}-other/a",
    f"{OURS}//a",
    f"{OURS}/a//b",
    f"{OURS}/./a",
    f"{OURS}/../other/a",
    f"{OURS}/%2e%2E/other/a",
    f"{OURS}/..%2fother/a",
    f"{OURS}/..%5cother%5ca",
    f"{OURS}/..\\other\\a",
    f"{OURS}/a%00b",
    f"{OURS}/a%0ab",
    f"{OURS}/a%7f",
    f"{OURS}/a%c2%9b",
    f"{OURS}/a\tb",
    f" \x00{OURS}/a",
    f"{OURS}/a\n",
    f"{OURS}/\ud800",
    f"{OURS}/%ed%a0%80",
    f"{OURS}/%ff",
    f"{OURS}/{'x' * 1025}",
]


@pytest.mark.parametrize("address", ELSEWHERE)
def test_an_address_that_is_in_another_place_or_in_none_is_dead_lettered(address: str) -> None:
    with pytest.raises(DeadLetter, match="content-elsewhere") as refused:
        asyncio.run(inbox.BlobContents(ContainerClient.from_container_url(OURS)).fetch(address, 1))

    assert refused.value.description == (
        "The message names a blob that is not in the container acct.blob.core.windows.net/large."
    )


def test_the_longest_name_is_one() -> None:
    assert name_of(f"{OURS}/{'x' * 1024}") == "x" * 1024


PIECES = st.sampled_from(
    ["https://", "acct.blob.core.windows.net", "/large/", "..", "%2e", "\\", "[", "@", ":", "\ud800"]
)


@given(st.lists(PIECES | st.text(st.characters(codec=None), max_size=3), max_size=8).map("".join))
def test_whatever_is_no_address_of_the_container_is_dead_lettered_and_no_error(address: str) -> None:
    for text in (address, f"{OURS}/{address}"):
        try:
            name = name_of(text)
        except DeadLetter as refused:
            assert refused.reason == "content-elsewhere"  # noqa: PT017 - either is right, and nothing else is
        else:
            assert name.isprintable()
            assert {"", ".", ".."}.isdisjoint(name.split("/"))


@given(st.text(ascii_letters + "/:?#% &鍵", min_size=1, max_size=40).filter(lambda name: "//" not in f"/{name}/"))
def test_the_address_of_every_blob_leads_to_its_name(name: str) -> None:
    container = ContainerClient.from_container_url(OURS)

    assert name_of(container.get_blob_client(name).url) == name


class SlowContainer:
    """Container that sends its blobs at a fixed number of bytes a second."""

    url = OURS

    def __init__(self, bytes_s: float) -> None:
        self._bytes_s = bytes_s

    async def download_blob(self, name: str, *, offset: int, length: int) -> Any:
        self._body = b"x" * (length - 1)
        self.size = len(self._body)
        await asyncio.sleep(self.size / self._bytes_s)
        return self

    async def readall(self) -> bytes:
        return self._body


def test_a_body_has_the_time_that_its_bytes_take() -> None:
    body = inbox.BlobContents(SlowContainer(250_000)).fetch(f"{OURS}/a", 50_000_000)

    assert len(virtual_time.run(body)) == 50_000_000


def test_a_body_that_does_not_come_is_given_up() -> None:
    async def fetch() -> float:
        with pytest.raises(TimeoutError):
            await inbox.BlobContents(SlowContainer(1)).fetch(f"{OURS}/a", 50_000_000)
        return time.monotonic()

    assert virtual_time.run(fetch()) == 60 + 200
