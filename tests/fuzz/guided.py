"""``python -m tests.fuzz.guided NAME SECONDS SEED``: one target under Atheris, in a process of its own.

Atheris (libFuzzer) ends its process, and has to see the modules under test when they are imported.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

from tests.fuzz.mutations import MAX_BYTES
from tests.fuzz.running import SAVED, Failure, attempt
from tests.fuzz.target import Target, load

TIMEOUT_S, MEMORY_MB = 20, 1500  # of one input; more is a failure, which libFuzzer saves


def _quoted(word: bytes) -> str:
    return '"' + "".join(f"\\x{byte:02x}" for byte in word) + '"'


def fuzz(name: str, seconds: int, seed: int) -> None:
    """Does not return."""
    with atheris.instrument_imports(include=["plumbline"]):
        target: Target = load(name)

    def one(data: bytes) -> None:
        try:
            attempt(target, data)
        except Failure as failure:
            print(failure, flush=True)
            raise

    SAVED.mkdir(parents=True, exist_ok=True)
    corpus = Path(tempfile.mkdtemp(prefix=f"plumbline-fuzz-{name}-"))
    for number, data in enumerate(target.seeds()):
        (corpus / f"{number:04}").write_bytes(data)
    options = [
        f"-max_total_time={seconds}",
        f"-seed={seed}",
        f"-max_len={MAX_BYTES}",
        f"-timeout={TIMEOUT_S}",
        f"-rss_limit_mb={MEMORY_MB}",
        "-print_final_stats=1",
        f"-artifact_prefix={SAVED}/{name}.",
    ]
    if target.words:
        words = corpus.with_suffix(".dict")
        words.write_text("".join(f"{_quoted(word)}\n" for word in target.words if word))
        options.append(f"-dict={words}")
    atheris.Setup([sys.argv[0], *options, str(corpus)], one)
    atheris.Fuzz()


if __name__ == "__main__":
    fuzz(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
