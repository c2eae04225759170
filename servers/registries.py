"""Brokers of package registries: crates, packages of Python, jars. Each is put into a folder of its own.

What is fetched is known by its SHA-256, or the registry's client is refused it: a crate by the lock file that
it has, the others by what is in ``servers/locks/``, named NAME-VERSION, which is

    .txt       a requirements file of pip, with hashes, of wheels that are for every Python
    .sha256    for each jar its SHA-256, and group:artifact:version
    (a folder) a project of Cargo whose program starts the broker of a library, with its Cargo.lock
"""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from plumbline.interpreter import python_command
from plumbline.servers.commands import run_command
from plumbline.servers.nats.nats_server import targets_folder
from plumbline.servers.targets import NamedServer, TargetError

LOCKS = Path(__file__).parent / "locks"
FETCHED_WITHIN_S = 600.0
BUILT_WITHIN_S = 2400.0  # hundreds of crates, on a machine that does much else
NO_LOCK = "its checksums are not known: only listed versions can be fetched"
_NO_DEPENDENCIES = (
    "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
)


def requirements(target: NamedServer) -> Path:
    """The requirements file of its packages of Python; it may not be there."""
    return LOCKS / f"{target.software.name}-{target.version}.txt"


def checksums(target: NamedServer) -> Path:
    """The list of its jars; it may not be there."""
    return LOCKS / f"{target.software.name}-{target.version}.sha256"


def project(target: NamedServer) -> Path:
    """The project of Cargo that starts the broker of its library; it may not be there."""
    return LOCKS / f"{target.software.name}-{target.version}"


def program_place(target: NamedServer) -> Path:
    """Where its program is, once it was fetched."""
    return _place(target) / "bin" / target.software.program


def is_fetched(target: NamedServer) -> bool:
    """Whether it is there, with the interpreter that it was made for: a link beside it leads there."""
    program = program_place(target)
    return program.exists() and all(path.exists() for path in program.parent.iterdir())


def fetch_crate(target: NamedServer) -> Path:
    """Built by cargo with the versions of the crate's own lock file."""

    def build(folder: Path) -> None:
        crate = [target.software.cargo, "--version", target.version]
        _cargo_install(target, folder, crate, FETCHED_WITHIN_S)

    return _fetched(target, build)


def fetch_library(target: NamedServer) -> Path:
    """Built by cargo from our project, with the versions and the checksums of its lock file.

    A library says which Rust it was written with; an older one is tried all the same.
    """

    def build(folder: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="plumbline-cargo-") as temporary:
            copy = Path(temporary, "project")
            shutil.copytree(project(target), copy)
            _cargo_install(target, folder, ["--ignore-rust-version", "--path", str(copy)], BUILT_WITHIN_S)

    return _fetched(target, build)


def _cargo_install(target: NamedServer, folder: Path, what: Sequence[str], within: float) -> None:
    done = run_command(["cargo", "install", "--locked", "--root", str(folder), *what], within=within)
    if not (folder / "bin" / target.software.program).exists():
        errors = re.findall(r"^error.*", done.stdout, re.MULTILINE)
        raise TargetError(errors[0] if errors else f"cargo ended with {done.returncode}")


def fetch_python_packages(target: NamedServer) -> Path:
    """The program is Python with these packages."""

    def install(folder: Path) -> None:
        options = ["--no-deps", "--require-hashes", "--only-binary=:all:", "--target", str(folder / "lib")]
        pip = python_command("-m", "pip", "install", "--quiet", "--disable-pip-version-check", *options)
        done = run_command([*pip, "-r", str(requirements(target))], within=FETCHED_WITHIN_S)
        if done.returncode != 0:
            errors = re.findall(r"^ERROR: (.*)", done.stdout, re.MULTILINE)
            raise TargetError(errors[0] if errors else f"pip ended with {done.returncode}")
        _write_program(
            folder / "bin" / target.software.program, 'PYTHONPATH="$here/../lib" exec "$here/python" -s'
        )
        (folder / "bin" / "python").symlink_to(Path(python_command()[0]).resolve())

    return _fetched(target, install)


def fetch_jars(target: NamedServer) -> Path:
    """The program is Java with these jars."""

    def copy(folder: Path) -> None:
        lines = checksums(target).read_text("ascii").splitlines()
        known = {_jar_name(coordinates): sha256 for sha256, coordinates in map(str.split, lines)}
        dependencies = [_dependency(line.split()[1]) for line in lines]
        copy_jars(dependencies, folder / "lib", FETCHED_WITHIN_S)
        if changed := unexpected_jars(folder / "lib", known):
            raise TargetError(f"these files differ from the known ones: {', '.join(changed)}")
        _write_program(folder / "bin" / target.software.program, 'exec java -cp "$here/../lib/*"')

    return _fetched(target, copy)


def copy_jars(dependencies: Iterable[str], jars: Path, within: float) -> None:
    """What Maven resolves these elements of a project to. Raises ``TargetError``."""
    with tempfile.TemporaryDirectory(prefix="plumbline-maven-") as folder:
        project = Path(folder, "pom.xml")
        project.write_text(
            '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
            "<groupId>plumbline</groupId><artifactId>broker</artifactId><version>1</version>"
            f"<packaging>pom</packaging><dependencies>{''.join(dependencies)}</dependencies></project>",
            "utf-8",
        )
        # -C: a file that differs from the checksum of the repository is an error
        options = [
            "-q",
            "-B",
            "-C",
            "-f",
            str(project),
            f"-DoutputDirectory={jars}",
            "-DincludeScope=runtime",
        ]
        done = run_command(["mvn", *options, "dependency:copy-dependencies"], within=within)
        if done.returncode != 0:
            error = re.search(r"\[ERROR\] (.*)", done.stdout)
            raise TargetError(error[1] if error else f"mvn ended with {done.returncode}")


def unexpected_jars(jars: Path, known: dict[str, str]) -> list[str]:
    """Names of the jars whose SHA-256 differs from that in ``known``, and of those missing here or there."""
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in jars.iterdir()}
    return sorted({name for name, _ in known.items() ^ found.items()})


def _jar_name(coordinates: str) -> str:
    _, artifact, version = coordinates.split(":")
    return f"{artifact}-{version}.jar"


def _dependency(coordinates: str) -> str:
    group, artifact, version = coordinates.split(":")
    return (
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version>{_NO_DEPENDENCIES}</dependency>"
    )


def _place(target: NamedServer) -> Path:
    return targets_folder() / f"{target.software.name}-{target.version}"


def _fetched(target: NamedServer, fill: Callable[[Path], None]) -> Path:
    """Filled beside its place, then moved: what is in the cache is always whole."""
    targets_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=targets_folder(), prefix=".half-") as folder:
        whole = Path(folder, "whole")
        whole.mkdir()
        fill(whole)
        if not is_fetched(target):  # otherwise another process was first, and its is as good
            shutil.rmtree(_place(target), ignore_errors=True)
            whole.rename(_place(target))
    return program_place(target)


def _write_program(program: Path, command: str) -> None:
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f'#!/bin/sh\nhere=$(dirname "$(readlink -f "$0")")\n{command} "$@"\n')
    program.chmod(0o755)
