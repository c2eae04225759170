"""Client libraries for tests: adapters of the project, with the releases that a test asks for.

What a machine lacks is a skip with the command that brings it; with ``CI`` set it is a failure.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from plumbline.cli.scenario_services import ScenarioServices
from plumbline.conformance.clients.gate import GateOptions, GateResult, gate
from plumbline.proxy.tls.certificates import generated
from plumbline.verdicts import Level

ADAPTERS = Path(__file__).parents[3] / "conformance" / "clients" / "adapters"
SHARED = "shared"  # the folder beside the adapters with what those of one language share
SKELETONS = ADAPTERS.parent / "skeletons"
INSTALLED_WITHIN_S = (
    600.0  # also where other work has the processors; a registry that is not there answers at once
)
BUILT_WITHIN_S = 600.0  # by Maven, which downloads its plugins first; by Cargo, of a hundred crates


def gated(
    command: Sequence[str], *select: str, waivers: Path | None = None, authority: Path | None = None
) -> GateResult:
    """One run of ``plumbline gate``; over TLS with the certificate authority of this folder."""
    options = GateOptions(tuple(command), select=select, waivers=waivers, tls=authority is not None)
    certificate = generated(authority, ()) if authority is not None else None
    return gate(options, ScenarioServices(certificate), [])


def red(result: GateResult) -> dict[str, str]:
    """The MUSTs that are not met, with the message of the first check with that verdict."""
    found = {}
    checks = {check.id: check for check in result.result.checks}
    for one in result.result.requirements:
        if one.level is Level.MUST and one.verdict in ("failed", "harness error", "inconclusive"):
            failed = [checks[name] for name in one.checks if checks[name].outcome == one.verdict]
            found[one.id] = failed[0].message
    return found


def missing(reason: str) -> None:
    """What the machine lacks. Skips, or fails where everything has to be there."""
    if os.environ.get("CI", "") not in ("", "0", "false"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def registries_wanted() -> bool:
    """Whether tests may take their time to install and build: in CI, and where it is asked for."""
    return any(os.environ.get(name, "") not in ("", "0", "false") for name in ("CI", "PLUMBLINE_REGISTRIES"))


def waivers_of(name: str) -> Path | None:
    """The waivers of a library, if it has any."""
    path = ADAPTERS / name / "waivers.toml"
    return path if path.exists() else None


def python_adapter(name: str, folder: Path | None = None) -> tuple[str, ...]:
    """An adapter in Python, with the libraries of this environment: nothing is built in ``folder``."""
    return (sys.executable, str(ADAPTERS / name / "adapter.py"))


def locked_python_adapter(name: str, folder: Path) -> tuple[str, ...]:
    """An adapter in Python, with what its lock file says from PyPI."""
    lock = str(ADAPTERS / name / "requirements.lock")
    return python_adapter_with(name, ["--require-hashes", "--no-deps", "--requirement", lock], folder)


def python_adapter_with(name: str, releases: Sequence[str], folder: Path) -> tuple[str, ...]:
    """An adapter in Python with these releases from PyPI in the place of those of this environment."""
    run([sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), *releases], folder)
    first = f"import runpy, sys; sys.path.insert(0, {str(folder)!r})"
    program = f"{first}; runpy.run_path(sys.argv[1], run_name='__main__')"
    return (sys.executable, "-c", program, str(ADAPTERS / name / "adapter.py"))


def node_adapter(name: str, folder: Path, releases: Sequence[str] = ()) -> tuple[str, ...]:
    """An adapter in JavaScript: the versions of its lock file from npm, or these releases."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        missing(f"node and npm are missing, for the adapter of {name}: apt-get install nodejs npm")
    assert node is not None
    assert npm is not None
    copied = folder / "adapters" / name
    for part in (name, SHARED):
        shutil.copytree(
            ADAPTERS / part, copied.with_name(part), ignore=shutil.ignore_patterns("node_modules")
        )
    quiet = ["--silent", "--no-audit", "--no-fund", "--ignore-scripts"]
    if releases:
        (copied / "package-lock.json").unlink()
        run([npm, "install", *quiet, "--no-save", *releases], copied)
    else:
        run([npm, "ci", *quiet], copied)
    return (node, str(copied / "adapter.js"))


def go_adapter(name: str, folder: Path, releases: Sequence[str] = ()) -> tuple[str, ...]:
    """An adapter in Go, built with the versions of its go.sum or these releases. ``name`` is a folder, or a
    package in it."""
    go = shutil.which("go")
    if go is None:
        missing(f"go is missing, for the adapter of {name}: apt-get install golang")
    assert go is not None
    module, _, package = name.partition("/")
    copied = folder / "adapters" / module
    shutil.copytree(ADAPTERS / module, copied)
    shutil.copytree(SKELETONS / "go", folder / "skeletons" / "go")
    if releases:
        (copied / "go.sum").unlink()
        required = "".join(f"require {release.replace('@', ' ')}\n" for release in releases)
        shared = "require plumbline/adapter v0.0.0\nreplace plumbline/adapter => ../../skeletons/go\n"
        (copied / "go.mod").write_text(f"module plumbline/adapter/{module}\n\ngo 1.23\n\n{required}{shared}")
    run([go, "build", *(["-mod=mod"] if releases else []), "-o", "adapter", f"./{package}"], copied)
    return (str(copied / "adapter"),)


def java_adapter(name: str, folder: Path) -> tuple[str, ...]:
    """An adapter in Java, built with what its pom.xml pins. Maven is never installed for CI: a skip."""
    java, mvn = shutil.which("java"), shutil.which("mvn")
    if java is None or mvn is None:
        pytest.skip(
            f"java or mvn is missing, for the adapter of {name}: apt-get install default-jdk-headless maven"
        )
    copied = folder / name
    shutil.copytree(ADAPTERS / name, copied, ignore=shutil.ignore_patterns("target"))
    run([mvn, "--batch-mode", "--quiet", "compile"], copied, BUILT_WITHIN_S)
    return (java, "-cp", f"{copied}/target/classes:{copied}/target/lib/*", "Adapter")


def rust_adapter(name: str, folder: Path) -> tuple[str, ...]:
    """An adapter in Rust, built with the versions of its Cargo.lock. CI has no Rust: a skip."""
    cargo = shutil.which("cargo")
    if cargo is None:
        pytest.skip(
            f"cargo is missing, for the adapter of {name}: apt-get install cargo, or https://rustup.rs"
        )
    copied = folder / name
    shutil.copytree(ADAPTERS / name, copied, ignore=shutil.ignore_patterns("target"))
    built = folder / "target"
    run([cargo, "build", "--quiet", "--locked", "--target-dir", str(built)], copied, BUILT_WITHIN_S)
    return (str(built / "debug" / "adapter"),)


def debian_adapter(name: str, folder: Path) -> tuple[str, ...]:
    """An adapter of a library that Debian has, in the releases that its debian.lock says. They are never
    installed for CI, and another release has other waivers: a skip."""
    wanted = (ADAPTERS / name / "debian.lock").read_text("ascii").split()[::2]
    query = ["dpkg-query", "--show", "--showformat", "${Package}=${Version} "]
    if shutil.which(query[0]) is None:
        pytest.skip(f"{query[0]} is missing, for the adapter of {name}: it is tested on Debian")
    names = [package.partition("=")[0] for package in wanted]
    found = subprocess.run([*query, *names], capture_output=True, text=True, check=False).stdout.split()
    if not set(wanted) <= set(found):
        pytest.skip(f"not installed, for the adapter of {name}: apt-get install {' '.join(wanted)}")
    return DEBIAN[name](ADAPTERS / name, folder)


def interpreted(program: str, source: str) -> Callable[[Path, Path], tuple[str, ...]]:
    """An adapter that is not built."""
    return lambda adapter, _: (program, str(adapter / source))


def compiled(*libraries: str) -> Callable[[Path, Path], tuple[str, ...]]:
    """An adapter in C, built."""

    def build(adapter: Path, folder: Path) -> tuple[str, ...]:
        built = str(folder / "adapter")
        run(["cc", "-o", built, str(adapter / "adapter.c"), *(f"-l{name}" for name in libraries)], folder)
        return (built,)

    return build


DEBIAN: dict[str, Callable[[Path, Path], tuple[str, ...]]] = {
    "anyevent_rabbitmq": interpreted("perl", "adapter.pl"),
    "bunny": interpreted("ruby", "adapter.rb"),
    "libnats": compiled("nats", "pthread"),
    "librabbitmq": compiled("rabbitmq", "pthread"),
    "php_amqplib": interpreted("php", "adapter.php"),
}

# The libraries whose adapters are kept here, by the name of the adapter, in the order of what they need.
LIBRARIES: dict[str, Callable[[str, Path], tuple[str, ...]]] = {
    **dict.fromkeys(("pika", "aio_pika", "nats_py"), python_adapter),
    **dict.fromkeys(
        ("aioamqp", "aiorabbit", "aiormq", "amqpstorm", "kombu", "py_amqp", "rabbitpy"), locked_python_adapter
    ),
    **dict.fromkeys(
        (
            "amqplib",
            "amqp_connection_manager",
            "rascal",
            "cloudamqp",
            "rabbitmq_client",
            "nats_js",
            "nats_js_2",
        ),
        node_adapter,
    ),
    **dict.fromkeys(
        ("nats_go", "nats_go/jetstream", "amqp091_go", "streadway_amqp", "go_rabbitmq"), go_adapter
    ),
    **dict.fromkeys(("amqp_client", "jnats"), java_adapter),
    **dict.fromkeys(("async_nats", "lapin"), rust_adapter),
    **dict.fromkeys(DEBIAN, debian_adapter),
}
INSTALLERS = {"npm": node_adapter, "go": go_adapter}


def run(command: Sequence[str], folder: Path, within_s: float = INSTALLED_WITHIN_S) -> None:
    """Install; a registry that is not reached is something that the machine lacks."""
    try:
        subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=within_s)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        output = str(error.stderr or error.stdout or "no answer in time")[-300:]
        missing(f"{' '.join(command)} failed, is the registry reached? {output}")
