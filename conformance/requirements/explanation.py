"""A requirement with its checks: as text for ``plumbline explain``, as JSON for ``plumbline list``."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import msgspec

from plumbline.conformance import known_failures
from plumbline.conformance.requirements.catalogue import PROFILES, Requirement
from plumbline.conformance.requirements.references import CheckReferences

WIDTH = 100
LABEL = 12  # columns that the labels take


def as_json(row: Requirement, written: CheckReferences) -> dict[str, Any]:
    """A requirement with all its fields, and the checks that verify it. A trace among them is the sample."""
    fields: dict[str, Any] = msgspec.to_builtins(row)
    sample = "\n".join(_exchange(row, written)[1])
    checks = [{"id": check.id, "where": check.where} for check in written.verifying(row.id)]
    return {**fields, "sample": sample, "checks": checks}


def explanation(row: Requirement, group: str, written: CheckReferences) -> str:
    """Everything that is known about a requirement, as text. ``group`` is the title of its group."""
    verifying = [f"{check.id}  ({check.where})" for check in written.verifying(row.id)]
    facts = [
        ("source", row.source),
        ("profile", f"{row.profile}: {PROFILES[row.profile]}"),
        ("since", row.since and f"protocol level {row.since}"),
        ("until", row.until and f"before protocol level {row.until}"),
        ("documented", row.documented),
        ("observed", row.observed),
        *[("failure", known_failures.describe(failure)) for failure in row.known_failures],
        ("excluded", row.excluded),
        *[("checks" if number == 0 else "", check) for number, check in enumerate(verifying)],
    ]
    if not verifying and not row.excluded:
        facts.append(("checks", "none"))
    lines = [f"{row.id}  {row.level}  {group}", *textwrap.wrap(row.statement, WIDTH), ""]
    for label, text in facts:
        lines += _labelled(label, text)
    heading, exchange = _exchange(row, written)
    if exchange:
        lines += ["", heading, *(f"    {line}".rstrip() for line in exchange)]
    return "\n".join(lines)


def _exchange(row: Requirement, written: CheckReferences) -> tuple[str, Sequence[str]]:
    """What passes on the wire: the first trace that verifies it, else its sample. A heading, and lines."""
    played = written.played(row.id)
    if played is None:
        return "a sample exchange", row.sample.splitlines()
    return f"the exchange that is run: {played.where}", played.exchange


def _labelled(label: str, text: str) -> list[str]:
    """Nothing for an empty text. A path is never split."""
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=f"{label:<{LABEL}}",
        subsequent_indent=" " * LABEL,
        break_long_words=False,
        break_on_hyphens=False,
    )
