"""``python -m tests.leaks FOLDER...``: searches all that tests wrote for the passwords that they use.

Every file, archive, table and capture below the folders, and every spelling of a secret. One line for each
place: file, byte, and the test that the secret is from. Exit code 1: there is one; 2: no such folder.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.leaks.known import is_distinctive, secrets_of_tests
from tests.leaks.search import Search


def main() -> int:
    """Parse, search, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.leaks", description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    folders: list[Path] = parser.parse_args().folders
    for folder in folders:
        if not folder.exists():
            parser.error(f"{folder}: no such file or folder")
    secrets = {value: where for value, where in secrets_of_tests().items() if is_distinctive(value)}
    search = Search(secrets)
    count = 0
    for folder in folders:
        for hit in search.hits(folder):
            count += 1
            print(hit, flush=True)
    print(f"{len(secrets)} secrets of tests: {count or 'no'} places have one")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
