"""``make zipapp``: Plumbline and what it needs as one file, ``plumbline.pyz``, for the Python that builds it.

The file is a zip that Python runs (standard library, ``zipapp``). Some of the packages are compiled, and
Python loads such a module from a folder only. So the first start unpacks everything into the user's cache, in
a folder that is named by the digest of the content; every later start finds it there.

python -m plumbline.ci.zipapp [-o plumbline.pyz]
"""

from __future__ import annotations

import argparse
import compileall
import hashlib
import os
import platform
import py_compile
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipapp
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGED = "site.zip"
# What the lock file has for the checkout only: it installs and builds the project.
NOT_NEEDED = ("pip", "hatchling", "pathspec", "pluggy_hatch", "trove_classifiers", "bin")
MAIN = """\
import os
import sys

BUILT_FOR = {built_for!r}
CACHE = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
PLACE = os.path.join(CACHE, "plumbline", "zipapp", {digest!r})


def unpack():
    import io
    import shutil
    import tempfile
    import zipfile

    os.makedirs(os.path.dirname(PLACE), mode=0o700, exist_ok=True)
    half = tempfile.mkdtemp(dir=os.path.dirname(PLACE))
    try:
        with zipfile.ZipFile(sys.path[0]) as outer:
            packed = io.BytesIO(outer.read({packaged!r}))
        with zipfile.ZipFile(packed) as inner:
            inner.extractall(half)
        os.rename(half, PLACE)
    except OSError:
        shutil.rmtree(half, ignore_errors=True)
        if not os.path.isdir(PLACE):  # else another process was first
            raise


if list(sys.version_info[:2]) != BUILT_FOR:
    sys.exit("plumbline: this file is for Python {{}}.{{}}: start it with that".format(*BUILT_FOR))
if not os.path.isdir(PLACE):
    try:
        unpack()
    except OSError as error:
        sys.exit("plumbline: cannot unpack into {{}}: {{}}".format(os.path.dirname(PLACE), error))
sys.path[0] = PLACE
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (PLACE, os.environ.get("PYTHONPATH"))))  # of workers

from plumbline.cli.main import main

sys.exit(main())
"""


def main() -> int:
    """Exit 0 with the file written."""
    parser = argparse.ArgumentParser(prog="make zipapp", description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path("plumbline.pyz"))
    output = parser.parse_args().output
    with tempfile.TemporaryDirectory(prefix="plumbline-zipapp-") as folder:
        packages, app = Path(folder) / "packages", Path(folder) / "app"
        _install(packages)
        app.mkdir()
        digest = _pack(packages, app / PACKAGED)
        built_for = list(sys.version_info[:2])
        (app / "__main__.py").write_text(
            MAIN.format(built_for=built_for, digest=digest, packaged=PACKAGED), "utf-8"
        )
        zipapp.create_archive(app, output, interpreter=f"/usr/bin/env python{sysconfig.get_python_version()}")
    where = f"Python {sysconfig.get_python_version()}, {platform.system()} {platform.machine()}"
    print(f"{output}: {output.stat().st_size / 1e6:.1f} MB, for {where}")
    return 0


def _install(folder: Path) -> None:
    """The packages of the lock file by their hashes, and the project."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--target", str(folder)]
    subprocess.run([*pip, "--require-hashes", "-r", str(ROOT / "requirements.lock")], check=True)
    own = ["--no-deps", "--no-build-isolation", "--upgrade", str(ROOT)]
    subprocess.run([*pip, *own], check=True)
    for path in folder.iterdir():
        if path.name.partition("-")[0] in NOT_NEEDED:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _pack(folder: Path, archive: Path) -> str:
    """Everything with its compiled modules, in one zip; the digest of the content."""
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH  # unpacked files are not edited
    compileall.compile_dir(folder, quiet=2, invalidation_mode=unchecked, stripdir=str(folder), workers=0)
    digest = hashlib.sha256()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                name = path.relative_to(folder).as_posix()
                digest.update(f"{name} {path.stat().st_size}\n".encode() + path.read_bytes())
                packed.write(path, name)
    return digest.hexdigest()[:32]


if __name__ == "__main__":
    os.umask(0o022)
    sys.exit(main())
