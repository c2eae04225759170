"""Does judge find what is planted in large captures, and nothing else: ``python -m tests.bench.planted 2GB``.

Captures of that size are generated into a temporary folder, the seed fixed: sound traffic, and each kind of
violation at each place, a hundred in all. ``plumbline judge`` judges them, as a command. Exit 1 unless its
table of violations has exactly what was planted.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from plumbline.pipeline.results import MANIFEST, Manifest
from tests.bench.command_line import parser_of
from tests.bench.processes import MEGABYTE, size_of, take
from tests.pipeline.support.planted import Planted, write

EXIT_FOUND = 1  # of judge: there are violations


def found_in(judged: Path) -> tuple[Manifest, list[Planted]]:
    """What the result in that folder is, and its violations, sorted."""
    import pyarrow.dataset as ds

    manifest = msgspec.json.decode((judged / MANIFEST).read_bytes(), type=Manifest)
    table = ds.dataset(judged / manifest.run / "violations", format="parquet", partitioning="hive")
    rows = table.to_table(["rule", "connection", "number"]).to_pylist()
    return manifest, sorted(Planted(**row) for row in rows)


def differences(wanted: Sequence[Planted], found: Sequence[Planted]) -> list[str]:
    """A line for each that is missing, unexpected, or found more than once."""
    lines = [f"missing: {one}" for one in wanted if one not in found]
    lines += [f"unexpected: {one}" for one in found if one not in wanted]
    return lines + [f"more than once: {one}" for one in sorted(set(found)) if found.count(one) > 1]


def run(size: int, payload_bytes: int, place: Path, options: Sequence[str] = ()) -> list[str]:
    """Generates, judges, prints what it took; gives the differences."""
    captures, judged = place / "captures", place / "judged"
    captures.mkdir()
    began = time.monotonic()
    wanted = write(captures, size=size, payload_bytes=payload_bytes)
    files = list(captures.iterdir())
    stored = sum(path.stat().st_size for path in files)
    print(
        f"{len(wanted)} violations planted in {stored / MEGABYTE:.0f} MB, {len(files)} files, "
        f"{time.monotonic() - began:.0f} s",
        flush=True,
    )
    taken = take([sys.executable, "-m", "plumbline", "judge", str(captures), "-o", str(judged), *options])
    if taken.code != EXIT_FOUND:
        return [f"judge ended with {taken.code}: {taken.output}"]
    manifest, found = found_in(judged)
    tables = sum(path.stat().st_size for path in judged.rglob("*.parquet"))
    print(
        f"{manifest.operations} operations judged in {taken.wall_s:.0f} s ({taken.cpu_s:.0f} s cpu), "
        f"{manifest.problems} problems, {tables / MEGABYTE:.0f} MB of tables; largest memory: {taken.memory}"
    )
    print(f"found {len(found)} of {len(wanted)}; possible, not certain: {manifest.possible}")
    return differences(wanted, found)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("size", type=size_of, help="of the captures: 2GB, 100MB")
    parser.add_argument("--payload", type=int, default=1000, help="bytes of a payload")
    parser.add_argument("--temporary", help="where the temporary folder is made")
    asked, options = parser.parse_known_args(arguments)
    with tempfile.TemporaryDirectory(prefix="plumbline-planted-", dir=asked.temporary) as place:
        lines = run(asked.size, asked.payload, Path(place), options)
    print("\n".join(lines) or "all that was planted was found, and nothing else")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
