"""The tables of the stores, and how those of earlier versions become them."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources

from outbox_relay.inbox.stores.sql.dialects import Dialect, Operation, Statement


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the tables.

    Attributes:
        version: Its number, from 1.
        statements: Its statements. A table's name, such as `inbox_handled`, is written without a schema.
    """

    version: int
    statements: tuple[str, ...]


def migrations(dialect: Dialect) -> list[Migration]:
    """Return all migrations of a database, in order."""
    folder = resources.files("outbox_relay.inbox.stores.sql").joinpath("migrations", dialect.name)
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return [Migration(int(file.name[:4]), _statements(file.read_text("utf-8"), dialect)) for file in files]


def install(dialect: Dialect) -> Operation[None]:
    """Create the tables, or migrate them, in one transaction. Of two processes, the second waits for the first.

    Raises:
        WrongTables: A later version of this library has made the tables.
    """
    known = migrations(dialect)
    version = yield from _version(dialect)
    if version == len(known):
        return
    if dialect.lock_tables is not None:
        yield dialect.lock_tables
    version = yield from _version(dialect)
    if version > len(known):
        raise WrongTables(
            f"The inbox tables have version {version}, and this library knows {len(known)}: update it."
        )
    schema = dialect.table("schema")
    if not (yield dialect.has_table("schema")).rows:
        yield Statement(f"create table {schema} (version integer not null)")
    for migration in known[version:]:
        for statement in migration.statements:
            yield Statement(statement)
        yield Statement(f"insert into {schema} (version) values (?)", (migration.version,))


def check(dialect: Dialect) -> Operation[None]:
    """Return if the tables are there in this version. It creates and migrates nothing.

    Raises:
        WrongTables: They are not.
    """
    version, known = (yield from _version(dialect)), len(migrations(dialect))
    if not version:
        raise WrongTables(
            "It has no tables of inbox: no consumer has used it, or the address names another store."
        )
    if version != known:
        remedy = "update it" if version > known else "they are migrated when a consumer with this version starts"
        raise WrongTables(f"The inbox tables have version {version}, and this library knows {known}: {remedy}.")


class WrongTables(ValueError):
    """The tables of a store are not those of this version."""


def _version(dialect: Dialect) -> Operation[int]:
    if (yield dialect.has_table("schema")).rows:
        found = yield Statement(f"select max(version) from {dialect.table('schema')}")
        return found.rows[0][0] or 0
    # Version 1 has recorded none.
    return len((yield dialect.has_table("handled")).rows)


def _statements(text: str, dialect: Dialect) -> tuple[str, ...]:
    lines = [line for line in text.splitlines() if not line.startswith("--")]
    placed = "\n".join(lines).replace("{inbox}", dialect.table(""))
    return tuple(part.strip() for part in placed.split(";") if part.strip())
