"""Runs Quint, which makes random traces of a model and checks its invariant along them.

Quint is a program of npm; its own simulator in TypeScript needs nothing else.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from plumbline.conformance.models.model import Model
from plumbline.errors import PlumblineError
from plumbline.visible import one_line

VERSION = "0.33.1"
INVARIANT = "isSound"
BATCH = 50  # traces of one run: the first are played before the last are made
_END = 400  # characters: so much of what Quint wrote is in a message


class QuintError(PlumblineError):
    """Quint failed, or its simulator broke the model's own invariant."""


def traces(
    program: Path, model: Model, count: int, *, seed: int, steps: int, path: Path | None = None
) -> Iterator[bytes]:
    """So many traces in the Informal Trace Format, the same for the same seed; ``path``: of this file.

    Raises ``QuintError``.
    """
    for first in range(0, count, BATCH):
        yield from _batch(
            program, path or model.path, min(BATCH, count - first), seed=seed + first, steps=steps
        )


def _batch(program: Path, model: Path, count: int, *, seed: int, steps: int) -> list[bytes]:
    with TemporaryDirectory() as folder:
        command: list[str | Path] = [
            program, "run", model, "--backend", "typescript", "--seed", str(seed), "--max-steps", str(steps),
            "--max-samples", str(count), "--n-traces", str(count), "--invariant", INVARIANT,
            "--out-itf", Path(folder, "{seq}.itf.json"), "--verbosity", "1",
        ]  # fmt: skip
        try:
            ended = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            raise QuintError(f"{program}: {error.strerror or error}") from None
        if ended.returncode:
            written = one_line((ended.stderr + ended.stdout).strip()[-_END:])
            raise QuintError(f"{model.name}: quint ended with exit code {ended.returncode}: {written}")
        return [Path(folder, f"{number}.itf.json").read_bytes() for number in range(count)]
