"""From the text of a query to its syntax."""

from __future__ import annotations

import functools
from typing import Any

from lark.exceptions import LarkError, UnexpectedInput, VisitError

from outbox_relay.emulators.cosmos.errors import BadRequest
from outbox_relay.emulators.cosmos.query.clauses import QueryBuilder
from outbox_relay.emulators.cosmos.query.grammar import parser
from outbox_relay.emulators.cosmos.query.syntax import Expression, Query

_LONGEST = 512 * 1024
"""https://learn.microsoft.com/azure/cosmos-db/concepts-limits#sql-query-limits"""


@functools.lru_cache(maxsize=1024)
def parse_query(text: str) -> Query:
    """Parse a query. Raises BadRequest if the text is not a query, or uses what is not supported."""
    query = _parse(text, "query")
    assert isinstance(query, Query)
    return query


@functools.lru_cache(maxsize=1024)
def parse_condition(text: str) -> tuple[str, Expression]:
    """Parse a patch's `FROM alias WHERE condition` into alias and condition. Raises BadRequest."""
    alias, where = _parse(text, "condition")
    return alias, where.expression


def _parse(text: str, start: str) -> Any:
    if len(text) > _LONGEST:
        raise BadRequest(f"The query has {len(text)} characters; the limit is {_LONGEST}.")
    try:
        return QueryBuilder(text).transform(parser().parse(text, start=start))
    except UnexpectedInput as error:
        place = f"near position {error.pos_in_stream}" if error.pos_in_stream is not None else "at the end"
        raise BadRequest(f"Syntax error, incorrect syntax {place}: {error.get_context(text).strip()}") from error
    except VisitError as error:
        if isinstance(error.orig_exc, BadRequest):
            raise error.orig_exc from error
        raise BadRequest(f"Syntax error: {error.orig_exc}") from error
    except LarkError as error:
        raise BadRequest(f"Syntax error: {error}") from error
