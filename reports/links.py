"""Where a requirement is to be found: on the site that ``plumbline matrix`` writes, or on any other."""

from __future__ import annotations

from plumbline.reports.digest import group_of
from plumbline.reports.html.view import slug
from plumbline.verdicts import RequirementResult


def requirement_link(template: str, requirement: RequirementResult) -> str:
    """``template`` with the requirement's ``{id}`` and ``{group}`` put in, as parts of an address."""
    filled = template.replace("{group}", slug(group_of(requirement)))
    return filled.replace("{id}", slug(requirement.id))
