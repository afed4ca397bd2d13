"""The contact service's API on the local Cosmos DB."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from uuid import uuid4

import httpx
import pytest
from azure.cosmos.aio import ContainerProxy, CosmosClient

from local.stack.environment import DATABASE
from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.testing import FaultClient
from outbox_relay.outbox import UnitOfWork
from samples.contacts.api import create_app
from samples.contacts.domain import InvalidContact
from samples.contacts.service import Contacts
from samples.contacts.stores import open_contacts

PERSON: dict[str, Any] = {
    "name": {"firstName": "John", "lastName": "Doe"},
    "description": "This is a contact",
    "email": "johndoe@contoso.com",
    "company": {
        "companyName": "Contoso",
        "street": "Street",
        "houseNumber": "1a",
        "postalCode": "092821",
        "city": "Palo Alto",
        "country": "US",
    },
}


@pytest.fixture
async def container(cosmos: CosmosServer) -> AsyncIterator[ContainerProxy]:
    # Few retries, because the tests are about errors that outlast them.
    options: dict[str, Any] = {"retry_total": 1, "retry_backoff_factor": 0.01, "retry_throttle_total": 1}
    async with CosmosClient(cosmos.endpoint, cosmos.key, **options) as client:
        yield client.get_database_client(DATABASE).get_container_client("data")


@pytest.fixture
async def api(container: ContainerProxy) -> AsyncIterator[httpx.AsyncClient]:
    @asynccontextmanager
    async def connect() -> AsyncIterator[Contacts]:
        yield Contacts(partial(UnitOfWork, container))

    app = create_app(connect)
    # As a server does, respond to an exception instead of raising it.
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://contacts.example") as client,
    ):
        yield client


async def events(container: ContainerProxy) -> list[dict[str, Any]]:
    feed = container.query_items_change_feed(start_time="Beginning")
    return [item["data"] async for item in feed if item["type"] == "domainEvent"]


async def created(api: httpx.AsyncClient, **changes: Any) -> httpx.Response:
    answer = await api.post("/contacts", json={**PERSON, **changes})
    assert answer.status_code == 201, answer.text
    return answer


def is_problem(answer: httpx.Response, status: int, detail: str) -> bool:
    """Assert that this is a problem, RFC 9457, with this status, whose detail contains `detail`."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    content = answer.json()
    assert content.keys() >= {"type", "title", "status", "detail"}
    assert (answer.status_code, content["status"]) == (status, status), content
    assert detail in content["detail"], content
    return True


async def test_a_created_contact_can_be_read_at_its_location(api: httpx.AsyncClient) -> None:
    answer = await created(api)

    read = await api.get(answer.headers["Location"])
    assert read.status_code == 200
    assert read.json() == answer.json()
    assert read.headers["ETag"] == answer.headers["ETag"]
    assert {name: read.json()[name] for name in PERSON} == PERSON
    assert read.json()["modifiedAt"] is None


async def test_the_client_may_choose_the_id_once(api: httpx.AsyncClient, container: ContainerProxy) -> None:
    chosen = str(uuid4())
    answer = await created(api, id=chosen)

    again = await api.post("/contacts", json={**PERSON, "id": chosen})

    assert answer.json()["id"] == chosen
    assert is_problem(again, 409, "already")
    assert len(await events(container)) == 1


@pytest.mark.parametrize(
    ("aspect", "body", "action"),
    [
        ("name", {"firstName": "Jane", "lastName": "Roe"}, "ContactNameUpdatedEvent"),
        ("email", {"email": "jane@contoso.com"}, "ContactEmailUpdatedEvent"),
        ("company", {**PERSON["company"], "city": "Redmond"}, "ContactCompanyUpdatedEvent"),
        ("description", {"description": "2019-01-01T00:00:01.0000000Z"}, "ContactDescriptionUpdatedEvent"),
    ],
)
async def test_each_part_can_be_changed_separately_with_its_event(
    api: httpx.AsyncClient, container: ContainerProxy, aspect: str, body: dict[str, Any], action: str
) -> None:
    contact = await created(api)
    path = contact.headers["Location"]

    changed = await api.put(f"{path}/{aspect}", json=body, headers={"If-Match": contact.headers["ETag"]})

    assert changed.status_code == 200
    value = body.get(aspect, body)
    assert changed.json() == {**contact.json(), aspect: value, "modifiedAt": changed.json()["modifiedAt"]}
    assert changed.json()["modifiedAt"] is not None
    assert changed.headers["ETag"] not in ("", contact.headers["ETag"])
    assert (await api.get(path)).headers["ETag"] == changed.headers["ETag"]
    event = (await events(container))[-1]
    assert (event["action"], event["contactId"], event["version"], event[aspect]) == (
        action,
        contact.json()["id"],
        2,
        value,
    )


async def test_several_changes_at_once_are_one_version_with_an_event_for_each(
    api: httpx.AsyncClient, container: ContainerProxy
) -> None:
    contact = await created(api)
    changes = {"email": "jane@contoso.com", "name": {"firstName": "Jane", "lastName": "Roe"}, "company": None}

    changed = await api.patch(contact.headers["Location"], json=changes, headers={"If-Match": "*"})

    assert changed.json()["name"] == changes["name"]
    assert changed.json()["company"] == PERSON["company"]
    assert [(event["action"], event["version"]) for event in (await events(container))[1:]] == [
        ("ContactNameUpdatedEvent", 2),
        ("ContactEmailUpdatedEvent", 2),
    ]


async def test_a_request_that_changes_nothing_raises_no_event_and_keeps_the_version(
    api: httpx.AsyncClient, container: ContainerProxy
) -> None:
    contact = await created(api)

    answer = await api.patch(contact.headers["Location"], json=PERSON, headers={"If-Match": "*"})

    assert (answer.status_code, answer.headers["ETag"]) == (200, contact.headers["ETag"])
    assert len(await events(container)) == 1


async def test_a_deleted_contact_is_not_found_and_its_id_stays_in_use(
    api: httpx.AsyncClient, container: ContainerProxy
) -> None:
    contact = await created(api)
    path = contact.headers["Location"]

    answer = await api.delete(path, headers={"If-Match": contact.headers["ETag"]})

    assert (answer.status_code, answer.content) == (204, b"")
    assert is_problem(await api.get(path), 404, "is deleted")
    assert is_problem(await api.delete(path, headers={"If-Match": "*"}), 404, "is deleted")
    assert is_problem(
        await api.put(f"{path}/email", json={"email": "a@b"}, headers={"If-Match": "*"}), 404, "is deleted"
    )
    assert is_problem(await api.post("/contacts", json={**PERSON, "id": contact.json()["id"]}), 409, "already")
    assert (await api.get("/contacts")).json() == {"items": [], "continuation": None}
    assert [event["action"] for event in await events(container)] == ["ContactCreatedEvent", "ContactDeletedEvent"]


async def test_a_change_requires_a_matching_version(api: httpx.AsyncClient) -> None:
    contact = await created(api)
    path = f"{contact.headers['Location']}/email"

    assert is_problem(await api.put(path, json={"email": "a@b"}), 428, "If-Match is required")
    assert is_problem(await api.delete(contact.headers["Location"]), 428, "If-Match is required")
    for stale in ('"another"', f"W/{contact.headers['ETag']}", contact.headers["ETag"].strip('"')):
        answer = await api.put(path, json={"email": "a@b"}, headers={"If-Match": stale})
        assert is_problem(answer, 412, "another version")
    for current in (contact.headers["ETag"], f'"another", {contact.headers["ETag"]}', "*"):
        answer = await api.put(path, json={"email": PERSON["email"]}, headers={"If-Match": current})
        assert answer.status_code == 200


async def test_of_concurrent_changes_to_one_version_one_succeeds_and_the_others_get_412(
    api: httpx.AsyncClient, container: ContainerProxy
) -> None:
    contact = await created(api)
    headers = {"If-Match": contact.headers["ETag"]}
    path = f"{contact.headers['Location']}/email"

    answers = await asyncio.gather(
        *(api.put(path, json={"email": f"{number}@contoso.com"}, headers=headers) for number in range(10))
    )

    assert sorted(answer.status_code for answer in answers) == [200] + [412] * 9
    (first,) = [answer for answer in answers if answer.status_code == 200]
    assert (await api.get(contact.headers["Location"])).json() == first.json()
    assert len(await events(container)) == 2


async def test_a_client_that_has_the_version_gets_304(api: httpx.AsyncClient) -> None:
    contact = await created(api)
    for form in ("{}", "W/{}", '"another", {}', "*"):
        known = {"If-None-Match": form.format(contact.headers["ETag"])}

        answer = await api.get(contact.headers["Location"], headers=known)

        assert (answer.status_code, answer.content) == (304, b""), form
        assert answer.headers["ETag"] == contact.headers["ETag"]


async def test_a_client_with_another_version_gets_the_current_one(api: httpx.AsyncClient) -> None:
    contact = await created(api)

    for known in ('"another"', '"another", W/"older"'):
        answer = await api.get(contact.headers["Location"], headers={"If-None-Match": known})
        assert answer.status_code == 200


async def test_all_contacts_are_found_by_paging(api: httpx.AsyncClient) -> None:
    answers = [await created(api, description=str(number)) for number in range(7)]
    etags = {answer.json()["id"]: answer.headers["ETag"] for answer in answers}

    found: list[dict[str, Any]] = []
    sizes = []
    parameters = {"pageSize": "3"}
    while True:
        page = (await api.get("/contacts", params=parameters)).json()
        found += page["items"]
        sizes.append(len(page["items"]))
        if page["continuation"] is None:
            break
        parameters["continuation"] = page["continuation"]

    assert sizes[:2] == [3, 3]
    assert {item["id"]: item.pop("etag") for item in found} == etags
    by_id = {answer.json()["id"]: answer.json() for answer in answers}
    assert {item["id"]: item for item in found} == by_id


async def test_an_invalid_continuation_is_rejected(api: httpx.AsyncClient) -> None:
    assert is_problem(await api.get("/contacts", params={"continuation": "abc"}), 400, "not issued by this list")


INVALID: list[tuple[dict[str, Any], str]] = [
    ({"email": "nobody"}, "#/email"),
    ({"name": {"firstName": " ", "lastName": "Doe"}}, "#/name/firstName"),
    ({"name": {"firstName": "J\n", "lastName": "Doe"}}, "#/name/firstName"),
    ({"company": {}}, "#/company/companyName"),
    ({"description": "x" * 4001}, "#/description"),
    ({"id": "4711"}, "#/id"),
    ({"a/b~c": 1}, "#/a~1b~0c"),
]


async def test_an_invalid_contact_is_rejected_with_the_location_of_the_error(
    api: httpx.AsyncClient, container: ContainerProxy
) -> None:
    for changes, place in INVALID:
        answer = await api.post("/contacts", json={**PERSON, **changes})

        assert is_problem(answer, 400, "is invalid")
        (error,) = answer.json()["errors"]
        assert error["pointer"] == place
        assert error["detail"]
    assert await events(container) == []


async def test_a_rule_of_the_domain_that_the_schema_does_not_declare_is_reported_as_400(
    api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    contact = await created(api)

    def reject(*_: Any) -> None:
        raise InvalidContact("the email address is blocked")

    monkeypatch.setattr("samples.contacts.domain.Contact.set_email", reject)

    answer = await api.put(
        f"{contact.headers['Location']}/email", json={"email": "a@b"}, headers={"If-Match": "*"}
    )

    assert is_problem(answer, 400, "The email address is blocked.")


async def test_an_invalid_parameter_is_rejected_by_name(api: httpx.AsyncClient) -> None:
    for path, name in (("/contacts?pageSize=0", "pageSize"), ("/contacts/4711", "contact_id")):
        answer = await api.get(path)
        assert is_problem(answer, 400, "is invalid")
        assert [error["parameter"] for error in answer.json()["errors"]] == [name]


async def test_every_other_error_is_a_problem_too(api: httpx.AsyncClient) -> None:
    assert is_problem(await api.get(f"/contacts/{uuid4()}"), 404, "There is no contact")
    assert is_problem(await api.get("/nothing"), 404, "Not Found")
    refused = await api.put("/contacts")
    assert is_problem(refused, 405, "Method Not Allowed")
    assert refused.headers["Allow"] == "GET, POST"
    assert "GET" in (await api.post("/docs")).headers["Allow"]
    garbage = await api.post("/contacts", content=b"{", headers={"content-type": "application/json"})
    assert is_problem(garbage, 400, "is invalid")


async def test_throttling_is_reported_with_the_time_to_wait(api: httpx.AsyncClient, faults: FaultClient) -> None:
    contact = await created(api)
    for operation in ("read", "batch"):
        fault = await faults.add("throttle", operation, for_ms=20_000, retry_after_ms=1_200)

        answer = await api.put(
            f"{contact.headers['Location']}/email", json={"email": "a@b"}, headers={"If-Match": "*"}
        )

        assert is_problem(answer, 429, "throttled")
        assert answer.headers["Retry-After"] == "2"
        await faults.remove(fault)


@pytest.mark.parametrize("applies", [True, False])
async def test_a_commit_whose_response_is_lost_is_applied_once(
    api: httpx.AsyncClient, container: ContainerProxy, faults: FaultClient, applies: bool
) -> None:
    contact = await created(api)
    await faults.add("timeout", "batch", applies=applies)

    answer = await api.put(
        f"{contact.headers['Location']}/email",
        json={"email": "a@b"},
        headers={"If-Match": contact.headers["ETag"]},
    )

    assert answer.status_code == 200
    assert answer.headers["ETag"] == (await api.get(contact.headers["Location"])).headers["ETag"]
    assert len(await events(container)) == 2


async def test_a_commit_that_stays_uncertain_is_reported_as_503(
    api: httpx.AsyncClient, container: ContainerProxy, faults: FaultClient
) -> None:
    contact = await created(api)
    uncertain = await faults.add("timeout", "batch", for_ms=20_000)

    answer = await api.put(
        f"{contact.headers['Location']}/email", json={"email": "a@b"}, headers={"If-Match": "*"}
    )

    assert is_problem(answer, 503, "is unknown")
    assert int(answer.headers["Retry-After"]) >= 1
    assert await faults.applied(uncertain) >= 3
    assert len(await events(container)) == 1


async def test_an_outage_is_reported_as_503(api: httpx.AsyncClient, faults: FaultClient) -> None:
    contact = await created(api)
    await faults.add("unavailable", for_ms=20_000)

    answer = await api.get(contact.headers["Location"])

    assert is_problem(answer, 503, "could not be read")
    assert int(answer.headers["Retry-After"]) >= 1


async def test_a_missing_container_is_reported_as_502(cosmos: CosmosServer) -> None:
    environment = {"COSMOS": cosmos.connection_string, "COSMOS_CONTAINER": "nowhere"}
    app = create_app(lambda: open_contacts(environment))
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://contacts.example") as client,
    ):
        assert is_problem(await client.get(f"/contacts/{uuid4()}"), 502, "refused")


async def test_an_internal_error_reveals_no_details(
    api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("the key is 4711")

    monkeypatch.setattr("samples.contacts.service.Contacts.read", fail)

    answer = await api.get(f"/contacts/{uuid4()}")

    assert is_problem(answer, 500, "The service failed")
    assert "4711" not in answer.text
