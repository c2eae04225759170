"""The origin of copies: what a ``mirror`` or one of ``sources`` takes, and under which subjects.

An origin has one ``filter_subject``, or several ``subject_transforms``: each takes what matches its ``src``,
and stores it under what its ``dest`` makes of the subject, or unchanged where that is empty.

Source: ADR-36, "Subject Mapping Transforms in Streams"; the errors and their order as servers answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

from plumbline.bounds import MAX_TRANSFORMS
from plumbline.reference_broker.nats.jetstream import errors, subjects
from plumbline.reference_broker.nats.jetstream.errors import ErrorCode
from plumbline.reference_broker.nats.jetstream.streams.mapping import mapping, mapping_ends, mapping_problem

ANY_SUBJECT = ">"
Ends = tuple[str, str]  # src and dest


def transforms(origin: dict[str, Any]) -> Sequence[Ends]:
    """``subject_transforms``; one without a destination only filters."""
    return [mapping_ends(one) for one in origin.get("subject_transforms") or ()]


def stored_subject(origin: dict[str, Any], subject: bytes) -> bytes | None:
    """The subject under which a message of ``origin`` is stored; None if it is not taken."""
    ends = transforms(origin)
    if not ends:
        pattern = origin.get("filter_subject")
        return subject if not pattern or subjects.covers(pattern.encode(), subject) else None
    found = (mapping(src, dest)(subject) for src, dest in ends)
    return next((each for each in found if each is not None), None)


def check_mirror(mirror: dict[str, Any]) -> None:
    """Raises ``JetStreamError`` for filters and transforms that no server takes."""
    _check(
        mirror,
        errors.MIRROR_MULTIPLE_FILTERS,
        errors.MIRROR_INVALID_FILTER,
        errors.MIRROR_INVALID_TRANSFORM,
        errors.MIRROR_OVERLAPPING_FILTERS,
    )


def check_sources(sources: Sequence[dict[str, Any]]) -> None:
    """The same for all sources of a stream, of which no two may be the same."""
    for source in sources:
        _check(
            source,
            errors.SOURCE_MULTIPLE_FILTERS,
            errors.SOURCE_INVALID_FILTER,
            errors.SOURCE_INVALID_TRANSFORM,
            errors.SOURCE_OVERLAPPING_FILTERS,
        )
    if len({identity(source) for source in sources}) < len(sources):
        raise errors.SOURCE_DUPLICATE()


def _check(
    origin: dict[str, Any],
    several_filters: ErrorCode,
    invalid_filter: ErrorCode,
    invalid_transform: ErrorCode,
    overlapping_filters: ErrorCode,
) -> None:
    ends = transforms(origin)
    if ends and origin.get("filter_subject"):
        raise several_filters()
    if len(ends) > MAX_TRANSFORMS:
        raise invalid_filter(reason=f"more than {MAX_TRANSFORMS} subject transforms")
    for src, dest in ends:
        if src and not subjects.is_valid(src.encode()):
            raise invalid_filter(reason=f"invalid subject {src}")
        if problem := mapping_problem(src, dest):
            raise invalid_transform(reason=problem)
    for (one, _), (other, _) in combinations(ends, 2):
        if subjects.collide((one or ANY_SUBJECT).encode(), (other or ANY_SUBJECT).encode()):
            raise overlapping_filters()


def identity(source: dict[str, Any]) -> tuple[Any, ...]:
    """What makes two sources of one stream the same source."""
    external = source.get("external") or {}
    filter_subject = source.get("filter_subject") or ANY_SUBJECT
    return source.get("name"), str(external.get("api")), filter_subject, *transforms(source)
