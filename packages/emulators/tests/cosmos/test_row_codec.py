"""HybridRow in both directions, by property: against another codec, which a client of batches would have."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from outbox_relay.emulators.cosmos import hybridrow
from outbox_relay.emulators.cosmos.hybridrow import InvalidRow, ResultRow
from packages.emulators.tests.cosmos.recordings import load
from packages.emulators.tests.cosmos.rows import batch_of, results_in

KINDS = ["Create", "Patch", "Read", "Delete", "Replace", "Upsert"]

# Texts around the lengths at which a length takes one more byte, and with characters of several bytes.
texts = st.text(max_size=40) | st.sampled_from([127, 128, 16_383, 16_384]).map("x".__mul__)
operations = st.lists(
    st.fixed_dictionaries(
        {"operationType": st.sampled_from(KINDS)},
        optional={
            "partitionKey": texts,
            "id": texts,
            "resourceBody": texts,
            "ifMatch": texts,
            "minimal": st.just(value=True),
        },
    ),
    min_size=1,
    max_size=6,
)
results = st.lists(
    st.builds(
        ResultRow,
        status=st.integers(200, 599),
        substatus=st.integers(0, 10_000),
        etag=st.none() | texts,
        body=st.none() | texts.filter(lambda text: not text.startswith("{")),
        charge=st.floats(0, 10_000),
    ),
    max_size=6,
)


def expected(operation: dict[str, Any]) -> dict[str, Any]:
    found = dict(operation)
    if found.pop("minimal", False):
        found["minimalReturnPreference"] = True
    return found


@given(operations)
def test_operations_are_read_as_another_codec_wrote_them(written: list[dict[str, Any]]) -> None:
    assert hybridrow.operations(batch_of(*written)) == [expected(each) for each in written]


@given(results)
@example([ResultRow(status=200, substatus=0, etag="{", body=None, charge=1.0)])
def test_results_are_written_as_another_codec_reads_them(rows: list[ResultRow]) -> None:
    named = [
        {"status": row.status, "substatus": row.substatus, "charge": row.charge}
        | ({} if row.etag is None else {"_etag": row.etag})
        | ({} if row.body is None else {"body": row.body})
        for row in rows
    ]
    found = results_in(hybridrow.results(rows))

    assert found == named


@given(operations, st.data())
def test_altered_bytes_are_refused_or_read_but_never_an_error_of_the_reader(
    written: list[dict[str, Any]], data: st.DataObject
) -> None:
    body = bytearray(batch_of(*written))
    at = data.draw(st.integers(0, len(body) - 1))
    body[at] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.integers(1, len(body)))

    for altered in (bytes(body), bytes(body[:cut])):
        try:
            assert isinstance(hybridrow.operations(altered), list)
        except InvalidRow:
            continue


def test_recorded_batches_of_the_dotnet_sdk_are_read() -> None:
    kinds = set()
    for name in ("batch", "bulk"):
        for exchange in load(name):
            if exchange.is_row_batch and exchange.is_whole and exchange.body:
                kinds |= {operation["operationType"] for operation in hybridrow.operations(exchange.body)}

    assert kinds == set(KINDS)
