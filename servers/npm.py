"""Programs of npm: those that the user has, and those that ``ci.install`` puts into the cache folder."""

from __future__ import annotations

import shutil
from pathlib import Path

from plumbline.servers.nats.nats_server import cache_folder


def npm_folder() -> Path:
    """Where ``ci.install`` puts them."""
    return cache_folder().parent / "npm"


def npm_program(name: str) -> Path | None:
    """The one on PATH, else the one that was installed here."""
    on_path = shutil.which(name)
    own = npm_folder() / "node_modules" / ".bin" / name
    return Path(on_path) if on_path else own if own.is_file() else None
