"""Conditional requests: If-Match and If-None-Match, RFC 9110 section 13.

The dependencies are coroutines although they await nothing, because FastAPI runs other functions in a thread pool.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Self

from fastapi import Header

from samples.contacts.api.problems import PreconditionRequired

# For example "0800-6144" or W/"0800-6144".
_TAG = re.compile(r'(W/)?("[!#-~]*")')


@dataclass(frozen=True, slots=True)
class EntityTags:
    """The entity tags in a header. `any` means `*`; `weak` are the tags with the prefix W/."""

    any: bool
    strong: tuple[str, ...]
    weak: tuple[str, ...]

    @classmethod
    def parse(cls, header: str) -> Self:
        """Parse a header. Invalid tags, such as one without quotes, are ignored and match nothing."""
        found = _TAG.findall(header)
        return cls(
            any=header == "*",
            strong=tuple(tag for weak, tag in found if not weak),
            weak=tuple(tag for weak, tag in found if weak),
        )

    def match_strongly(self, etag: str) -> bool:
        """Compare tags as If-Match does: a weak tag never matches."""
        return self.any or etag in self.strong

    def match_weakly(self, etag: str) -> bool:
        """Compare tags as If-None-Match does: the prefix W/ makes no difference."""
        return self.any or etag in self.strong or etag in self.weak

    @property
    def single(self) -> str | None:
        """The tag, if there is exactly one."""
        tags = self.strong + self.weak
        return tags[0] if len(tags) == 1 else None


async def require_if_match(
    if_match: Annotated[
        str, Header(description="The ETag, in quotes, of the version to change; `*` for any. Required, or 428.")
    ] = "",
) -> EntityTags:
    """Return the versions that the client accepts to change.

    Raises:
        PreconditionRequired: The header is missing. Without it, a client could overwrite another one's change.
    """
    if not if_match:
        raise PreconditionRequired
    return EntityTags.parse(if_match)


async def parse_if_none_match(
    if_none_match: Annotated[
        str, Header(description="The ETag, in quotes, of the version the client has. If unchanged: 304.")
    ] = "",
) -> EntityTags:
    """Return the versions that the client already has."""
    return EntityTags.parse(if_none_match)
