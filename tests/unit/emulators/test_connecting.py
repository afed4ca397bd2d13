"""The emulators' docs/connecting.md: its connection strings are those of their default ports."""

from __future__ import annotations

from outbox_relay.emulators.cosmos import server as account
from outbox_relay.emulators.program import PROGRAM
from outbox_relay.emulators.servicebus import auth
from tests.support.pages import ROOT

PAGE = (ROOT / "packages" / "emulators" / "docs" / "connecting.md").read_text(encoding="utf-8")
README = (ROOT / "packages" / "emulators" / "README.md").read_text(encoding="utf-8")
SDKS = ("Python", "JavaScript", ".NET", "Java", "Go")


def default_port(command: str) -> int:
    port = PROGRAM.parse([command]).options["options"].port
    assert isinstance(port, int)
    return port


def test_the_connection_strings_are_those_that_the_emulators_print() -> None:
    address = f"AccountEndpoint=http://127.0.0.1:{default_port('cosmos')}/;"
    bus = f"Endpoint=sb://127.0.0.1:{default_port('servicebus')};"

    assert f"\n{address}AccountKey={account.DEFAULT_KEY};\n" in PAGE
    assert (
        f"\n{bus}SharedAccessKeyName={auth.KEY_NAME};SharedAccessKey={auth.DEFAULT_KEY};UseDevelopmentEmulator=true;\n"
        in PAGE
    )


def test_each_sdk_has_a_setting_for_data_messages_and_administration() -> None:
    tables = [part.split("\n\n")[0] for part in PAGE.split("| run by |\n|---|---|---|\n")[1:]]

    assert len(tables) == 3
    for table in tables:
        first = [line.strip("| ").split(" |")[0] for line in table.splitlines()]
        assert [name.split(" (")[0] for name in first] == list(SDKS)
        assert all(len(line.strip("|").split("|")) == 3 for line in table.splitlines())


def test_the_readme_leads_here() -> None:
    for page in ("connecting", "containers", "compatibility"):
        assert f"](docs/{page}.md)" in README
