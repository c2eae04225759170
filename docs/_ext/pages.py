"""Generated pages: help of each command, the requirement catalogue, known failures, rules of monitors, the
JSON schema.

``generated()`` returns them in memory; ``write()`` puts them below ``docs/``, where git ignores them.
Sphinx is not needed for either.
"""

from __future__ import annotations

import functools
import json
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import typer

from plumbline.cli.main import app
from plumbline.cluster.verdicts import with_clusters
from plumbline.conformance.clients.client_references import with_clients
from plumbline.conformance.requirements.catalogue import PROFILES, Catalogue, Group, Requirement
from plumbline.conformance.requirements.references import CheckReferences, check_references
from plumbline.monitors import MONITORS, Monitor

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = "reference/commands"
REQUIREMENTS = "reference/requirements"
KNOWN_FAILURES = "reference/_known_failures.md"
RULES = "reference/_rules.md"
RESULT_SCHEMA = "reference/_result_schema.md"
SCHEMA = ROOT / "reports" / "result.schema.json"
HELP_COLUMNS = 88
# Documents of the repository that the site shows: path -> the page that includes it.
DOCUMENTS = {
    "ARCHITECTURE.md": "explanation/architecture.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contribute.md",
    "SECURITY.md": "project/security.md",
    "conformance/clients/PROTOCOL.md": "reference/adapter-protocol.md",
    "conformance/requirements/README.md": "reference/requirement-format.md",
    "conformance/trace/README.md": "reference/trace-language.md",
}


def write(docs: Path) -> None:
    """Write what changed, and remove generated pages that no longer exist."""
    texts = generated()
    for folder in (COMMANDS, REQUIREMENTS):
        for page in (docs / folder).glob("*.md"):
            if f"{folder}/{page.name}" not in texts:
                page.unlink()
    for name, text in texts.items():
        path = docs / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")


@functools.cache
def generated() -> Mapping[str, str]:
    """Path below ``docs/`` -> Markdown."""
    catalogue, written = with_clusters(*with_clients(Catalogue.load(), check_references()))
    return {
        **{f"{COMMANDS}/{name.replace(' ', '-')}.md": text for name, text in command_pages().items()},
        **{f"{REQUIREMENTS}/{group.id}.md": requirement_page(group, written) for group in catalogue.groups},
        KNOWN_FAILURES: known_failures(catalogue.requirements),
        RULES: rules(MONITORS),
        RESULT_SCHEMA: schema_tables(json.loads(SCHEMA.read_text(encoding="utf-8"))),
        **{fragment(page): document(source, page) for source, page in DOCUMENTS.items()},
    }


# -- commands ----------------------------------------------------------------------------------


def command_pages() -> dict[str, str]:
    """Name of each command (``verify``, ``broker nats``) -> its page."""
    return {name: f"# plumbline {name}\n\n{_fenced(text)}\n" for name, text in _helps()}


def _helps() -> Iterator[tuple[str, str]]:
    """The ``--help`` of each command that does something, groups of commands followed by their parts."""
    top = typer.main.get_command(app)
    context: Any = top.make_context("plumbline", [], resilient_parsing=True)
    yield from _helps_below(top, context, "")


def _helps_below(group: Any, context: Any, prefix: str) -> Iterator[tuple[str, str]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        full = f"{prefix} {name}".strip()
        options = {"terminal_width": HELP_COLUMNS, "max_content_width": HELP_COLUMNS, "color": False}
        inner = type(context)(command, info_name=name, parent=context, **options)
        yield full, _plain(command.get_help(inner))
        if hasattr(command, "list_commands"):
            yield from _helps_below(command, inner, full)


def _plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text).rstrip()


# -- requirements ------------------------------------------------------------------------------


def requirement_page(group: Group, written: CheckReferences) -> str:
    """One group: a table of contents by level, then each requirement under an anchor that is its id."""
    entries = [_requirement(row, written) for row in group.requirements]
    count = len(group.requirements)
    lead = f"{count} requirement{'' if count == 1 else 's'}. `plumbline list '{group.id}-*'` lists them."
    return (
        "\n\n".join([f"# {group.id}: {escaped(group.title.removeprefix('AMQP: '))}", lead, *entries]) + "\n"
    )


def _requirement(row: Requirement, written: CheckReferences) -> str:
    checks = written.verifying(row.id)
    facts = [
        ("Source", row.source),
        ("Profile", f"{row.profile} ({PROFILES[row.profile]})"),
        ("Since", row.since and f"protocol level {row.since}"),
        ("Until", row.until and f"before protocol level {row.until}"),
        ("Documented", row.documented),
        ("Observed", row.observed),
        ("Not testable on the wire", row.excluded),
    ]
    items = [f"- {label}: {escaped(text)}" for label, text in facts if text]
    items += [
        f"- Known failure: {escaped(known.target)} {escaped(', '.join(known.releases))}: {_linked(known)}"
        for known in row.known_failures
    ]
    items += [f"- Check: `{check.id}`" for check in checks]
    parts = [
        f'<span id="{row.id}"></span>',
        f"## {row.id}",
        f"**{row.level}** {escaped(row.statement)}",
        "\n".join(items),
        *_exchange(row, written),
    ]
    return "\n\n".join(parts)


def _exchange(row: Requirement, written: CheckReferences) -> Iterator[str]:
    """The exchange of the trace that verifies it, as it is run, or else the sample of its file."""
    played = written.played(row.id)
    if played is not None:
        yield f"<details><summary>The exchange that is run: {played.where}</summary>"
        yield _fenced("\n".join(played.exchange))
        yield "</details>"
    elif row.sample:
        yield "A sample exchange:"
        yield _fenced(row.sample)


# -- known failures ----------------------------------------------------------------------------


def known_failures(requirements: Iterable[Requirement]) -> str:
    """One table of the known failures of real releases; requirements with the same one share a row."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    for row in requirements:
        for known in row.known_failures:
            releases = f"{known.target} {', '.join(known.releases)}"
            rows.setdefault((releases, known.text, known.link), []).append(row.id)
    lines = ["| Releases | What fails | Requirements | Reference |", "| --- | --- | --- | --- |"]
    for (releases, text, link), ids in rows.items():
        named = ", ".join(_requirement_link(name) for name in ids)
        reference = f"<{link}>" if link else "observed with this suite"
        lines.append(f"| {escaped(releases)} | {escaped(text)} | {named} | {reference} |")
    return "\n".join(lines) + "\n"


def _requirement_link(name: str) -> str:
    return f"[{name}](requirements/{name.rpartition('-')[0]}.md#{name.lower()})"


def _linked(known: Any) -> str:
    link = f" (<{known.link}>)" if known.link else ""
    return f"{escaped(known.text)}{link}"


# -- rules of monitors -------------------------------------------------------------------------


def rules(monitors: Iterable[type[Monitor]]) -> str:
    """One table of all rules, in their order."""
    lines = ["| Rule | What it says | Judges | Requirements | Source |", "| --- | --- | --- | --- | --- |"]
    for one in monitors:
        named = ", ".join(map(_requirement_link, one.requirements))
        lines.append(
            f"| `{one.rule}` | {escaped(one.title)} | the {one.side} | {named} | {escaped(one.source)} |"
        )
    return "\n".join(lines) + "\n"


# -- the JSON result ---------------------------------------------------------------------------


def schema_tables(schema: Mapping[str, Any]) -> str:
    """A table of fields for each object of a JSON schema."""
    return "\n\n".join(_object(name, part) for name, part in schema["$defs"].items()) + "\n"


def _object(name: str, part: Mapping[str, Any]) -> str:
    described = " ".join(part.get("description", "").replace("``", "`").split())
    lines = [f"## {name}", "", described, ""]
    if "properties" not in part:
        return "\n".join([*lines, f"Type: {_type(part)}."])
    lines += ["| Field | Type | Required |", "| --- | --- | --- |"]
    required = part.get("required", [])
    for field, kind in part["properties"].items():
        default = "yes" if field in required else f"no, default `{json.dumps(kind.get('default'))}`"
        lines.append(f"| `{field}` | {_type(kind)} | {default} |")
    return "\n".join(lines)


def _type(kind: Mapping[str, Any]) -> str:
    """``{"type": "array", "items": {"$ref": ".../WireLine"}}`` -> ``array of WireLine``."""
    if "$ref" in kind:
        name = kind["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "const" in kind:
        return f"`{json.dumps(kind['const'])}`"
    if "enum" in kind:
        return " or ".join(f"`{json.dumps(value)}`" for value in kind["enum"])
    if "anyOf" in kind:
        return " or ".join(_type(choice) for choice in kind["anyOf"])
    if kind.get("type") == "array" and isinstance(kind.get("items"), dict):
        return f"array of {_type(kind['items'])}"
    if kind.get("type") == "object" and isinstance(kind.get("additionalProperties"), dict):
        return f"object of {_type(kind['additionalProperties'])}"
    return str(kind.get("type", "any"))


# -- documents of the repository ---------------------------------------------------------------


def fragment(page: str) -> str:
    """What the page includes: ``explanation/architecture.md`` -> ``explanation/_architecture.md``."""
    folder, _, name = page.rpartition("/")
    return f"{folder}/_{name}"


def document(source: str, page: str) -> str:
    """A document of the repository with the links of the site, for ``page`` to include."""
    text = (ROOT / source).read_text(encoding="utf-8")
    parts = re.split(r"(^```.*?^```$)", text, flags=re.DOTALL | re.MULTILINE)
    return "".join(part if part.startswith("```") else _relinked(part, source, page) for part in parts)


def _relinked(text: str, source: str, page: str) -> str:
    def linked(found: re.Match[str]) -> str:
        return _site_link(found["text"], found["target"], source, page) or found[0]

    return re.sub(r"(?<!!)\[(?P<text>[^\]]+)\]\((?P<target>[^)\s]+)\)", linked, text)


def _site_link(text: str, target: str, source: str, page: str) -> str:
    """The link on the site. A file that is not on the site becomes its path; "" leaves the link as it is."""
    if re.match(r"[a-z]+:|#", target):
        return ""
    path, hash_mark, anchor = target.partition("#")
    full = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    known = DOCUMENTS.get(full) or (full.removeprefix("docs/") if full.startswith("docs/") else "")
    if known:
        return f"[{text}]({posixpath.relpath(known, posixpath.dirname(page))}{hash_mark}{anchor})"
    return f"`{full}`" if text.strip("`") in (path, full) else f"{text} (`{full}`)"


# -- Markdown ----------------------------------------------------------------------------------


def escaped(text: str) -> str:
    """Text as Markdown that shows exactly this text, in one paragraph."""
    return re.sub(r"([\\`*_{}\[\]<>#|$~&])", r"\\\1", " ".join(text.split()))


def _fenced(text: str) -> str:
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}"
