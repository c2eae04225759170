"""``feed.xml``: what newly fails or passes, as an Atom feed (RFC 4287). Pure."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Protocol
from urllib.parse import urljoin
from xml.etree.ElementTree import Element, SubElement, tostring

from plumbline.reports.matrix.compare import Comparison, VerdictChange
from plumbline.reports.matrix.runs import TargetRunResult
from plumbline.visible import one_line

MOST_ENTRIES = 50  # the newest
_ATOM = "http://www.w3.org/2005/Atom"
_NEVER = "1970-01-01T00:00:00+00:00"  # the date of a feed without entries


class Change(Protocol):
    """Two runs that were compared, and the page that shows them."""

    @property
    def before(self) -> TargetRunResult: ...
    @property
    def after(self) -> TargetRunResult: ...
    @property
    def comparison(self) -> Comparison: ...
    @property
    def page(self) -> str: ...


def feed(changes: Sequence[Change], *, title: str, url: str) -> bytes:
    """The feed. ``url``: where the site is; without it links are relative to the feed."""
    entries = [one for one in changes if one.comparison.newly_failing or one.comparison.newly_passing]
    entries = sorted(entries, key=_updated, reverse=True)[:MOST_ENTRIES]
    root = Element("feed", xmlns=_ATOM)
    _text(root, "title", title)
    _text(root, "id", url or _name(title))
    _text(root, "updated", _updated(entries[0]) if entries else _NEVER)
    SubElement(SubElement(root, "author"), "name").text = "plumbline matrix"
    SubElement(root, "link", rel="self", href=urljoin(url, "feed.xml"))
    SubElement(root, "link", rel="alternate", type="text/html", href=urljoin(url, "index.html"))
    for change in entries:
        _entry(SubElement(root, "entry"), change, url)
    text: str = tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'.encode()


def _entry(entry: Element, change: Change, url: str) -> None:
    found = change.comparison
    counts = [
        f"{len(group)} newly {word}"
        for group, word in ((found.newly_failing, "failing"), (found.newly_passing, "passing"))
        if group
    ]
    _text(entry, "title", f"{change.after.target}: {', '.join(counts)}, compared with {change.before.target}")
    _text(entry, "id", _name(f"{change.page} {change.after.stamp}"))
    _text(entry, "updated", _updated(change))
    SubElement(entry, "link", rel="alternate", type="text/html", href=urljoin(url, change.page))
    lines = [_line("fails", one) for one in found.newly_failing]
    lines += [_line("passes", one) for one in found.newly_passing]
    _text(entry, "content", "\n".join(lines)).set("type", "text")


def _line(verb: str, change: VerdictChange) -> str:
    why = f" ({change.reason})" if change.reason else ""
    return f"{change.requirement.id} {verb}: {change.requirement.statement}{why}"


def _text(parent: Element, name: str, text: str) -> Element:
    """An element whose text has no character that XML forbids."""
    made = SubElement(parent, name)
    made.text = "\n".join(map(one_line, text.split("\n")))
    return made


def _updated(change: Change) -> str:
    return change.after.result.summary.started


def _name(text: str) -> str:
    """An id that is the same whenever the same is written."""
    return uuid.uuid5(uuid.NAMESPACE_URL, one_line(text)).urn
