"""Conditional requests: If-Match and If-None-Match by RFC 9110, section 13.

The dependencies are coroutines though they await nothing: FastAPI runs others in threads, which takes longer than
what they do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Self

from fastapi import Header

from samples.contacts.api.problems import PreconditionRequired

# Such as "0800-6144" and W/"0800-6144".
_TAG = re.compile(r'(W/)?("[!#-~]*")')


@dataclass(frozen=True, slots=True)
class EntityTags:
    """Some versions of a resource: `any`, or those named; `weak` are those of them with W/ before."""

    any: bool
    strong: tuple[str, ...]
    weak: tuple[str, ...]

    @classmethod
    def parsed(cls, header: str) -> Self:
        """From the header's value. What is no tag is no version's: an ETag without its quotes never matches."""
        found = _TAG.findall(header)
        return cls(
            any=header == "*",
            strong=tuple(tag for weak, tag in found if not weak),
            weak=tuple(tag for weak, tag in found if weak),
        )

    def match_strongly(self, etag: str) -> bool:
        """As If-Match compares: a weak tag is like no other."""
        return self.any or etag in self.strong

    def match_weakly(self, etag: str) -> bool:
        """As If-None-Match compares: W/ makes no difference."""
        return self.any or etag in self.strong or etag in self.weak

    @property
    def single(self) -> str | None:
        """The one version named, where there is one."""
        tags = self.strong + self.weak
        return tags[0] if len(tags) == 1 else None


async def demanded_version(
    if_match: Annotated[
        str, Header(description="The ETag of the version to change, in its quotes; `*` for any. Missing: 428.")
    ] = "",
) -> EntityTags:
    """The version that the client means to change.

    Raises:
        PreconditionRequired: It names none. Two clients that change one contact would not notice one another.
    """
    if not if_match:
        raise PreconditionRequired
    return EntityTags.parsed(if_match)


async def known_version(
    if_none_match: Annotated[
        str, Header(description="The ETag of the version that the client has, in its quotes. Unchanged: 304.")
    ] = "",
) -> EntityTags:
    """The version that the client has already."""
    return EntityTags.parsed(if_none_match)
