"""Which modules are mutated: the two cores, without what reads files, listens or breaks them on purpose."""

from __future__ import annotations

import ast
import hashlib
import importlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.adequacy.mutants import Source

ROOT = Path(__file__).resolve().parents[2]
BROKERS = ROOT / "reference_broker"
PACKAGE = "plumbline.reference_broker"
PROTOCOLS = ("nats", "amqp")
SHARED = {"timers"}  # beside the folders of the protocols
# No rule of a protocol: shells, the format of files, deliberate faults, the pages and settings that only a
# drop-in has. And what no client can switch on, but only the gate or a program that embeds a broker.
LEFT_OUT = frozenset(
    {
        "nats.server",
        "nats.virtual",
        "nats.config_file",
        "nats.defects",
        "nats.drop_in",
        "nats.jetstream.files",
        "amqp.server",
        "amqp.defects",
        "amqp.storage",
        "amqp.drop_in",
        "amqp.messages.confirm_script",
    }
)
# What decides the outcome of a check on a mutant.
_DECIDING = ("reference_broker", "wire", "conformance")
_KINDS = ("*.py", "*.toml", "*.trace")


def modules(protocol: str) -> dict[str, Path]:
    """The mutated modules of a core: name below the package -> file."""
    found = {name: BROKERS / f"{name}.py" for name in sorted(SHARED)} if protocol == PROTOCOLS[0] else {}
    for path in sorted((BROKERS / protocol).rglob("*.py")):
        parts = path.relative_to(BROKERS).with_suffix("").parts
        name = ".".join(parts)
        if parts[-1] != "__init__" and not any(name == out or name.startswith(f"{out}.") for out in LEFT_OUT):
            found[name] = path
    return found


def import_all(protocol: str) -> None:
    """Import the mutated modules of a core."""
    for name in modules(protocol):
        importlib.import_module(f"{PACKAGE}.{name}")


def sources(protocol: str) -> Iterator[Source]:
    """The same, read. Imports them: constants that can be confused are found by their values."""
    for name, path in modules(protocol).items():
        values = vars(importlib.import_module(f"{PACKAGE}.{name}"))
        yield Source(name, path, path.read_text("utf-8"), values, has_fixed_text=protocol != "amqp")


def users_of_names(protocol: str) -> dict[str, list[tuple[str, range]]]:
    """Name -> functions that use it, as module and lines: where a constant has its effect."""
    found: dict[str, list[tuple[str, range]]] = defaultdict(list)
    for module, path in modules(protocol).items():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            lines = range(node.body[0].lineno, (node.end_lineno or node.lineno) + 1)
            names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
            names |= {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}
            for name in names | {node.name}:
                found[name].append((module, lines))
    return found


def fingerprint() -> str:
    """Of all that decides the result of a mutant."""
    return _digest(_DECIDING)


def program_fingerprint() -> str:
    """Of what decides which mutants there are."""
    return _digest(("tests/adequacy",))


def _digest(folders: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(path for kind in _KINDS for path in (ROOT / folder).rglob(kind)):
            digest.update(f"{path.relative_to(ROOT)}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
