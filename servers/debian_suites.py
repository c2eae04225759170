"""A package of any Debian suite and all that it needs, unpacked into a folder and run there by ``chroot``.

Nothing is installed and no container engine is needed. apt uses folders of ours, and refuses what Debian has
not signed. A program runs in a mount namespace of its own, so none of its mounts is left: as root, or in a
user namespace where the kernel allows one.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from plumbline.servers.commands import run_command
from plumbline.servers.targets import TargetError

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
SOURCES = Path("/etc/apt")
DEBIAN_MIRROR = "http://deb.debian.org/debian"  # what apt verifies needs no TLS
TOOLS = ("apt-get", "dpkg-deb", "tar", "unshare", "chroot")
OF_ROOT = ":/usr/sbin:/sbin"  # not on the PATH of an ordinary user of Debian, and chroot is there
# What start scripts call, and what an installed Debian always has.
ESSENTIAL = ("base-files", "bash", "coreutils", "gawk", "grep", "hostname", "procps", "sed", "util-linux")
FETCHED_WITHIN_S = 600.0
STEP_WITHIN_S = 120.0
MERGED = ("bin", "lib", "lib64", "sbin")  # links to usr/

SOURCE_LIST = """\
Types: deb
URIs: {mirror}
Suites: {suite}
Components: main
Signed-By: {keyring}
"""

# The folder with configuration and data is the working directory; it has the same path inside.
WRAPPER = (
    f"#!/bin/sh\nPATH=$PATH{OF_ROOT}\n"
    """\
[ "$(id -u)" = 0 ] || user=--map-root-user
exec unshare $user --mount --propagation private sh -c '
  root=$0 data=$1 program=$2; shift 2
  mount --rbind /proc "$root/proc" && mount --rbind /dev "$root/dev" &&
  mkdir -p "$root$data" && mount --bind "$data" "$root$data" &&
  exec chroot "$root" /bin/sh -c "cd \\"\\$0\\" && exec \\"\\$@\\"" "$data" "$program" "$@"
' '{root}' "$PWD" '{program}' "$@"
"""
)


def missing() -> str:
    """What this machine lacks to unpack and run a package of another suite; empty if nothing."""
    path = os.environ.get("PATH", os.defpath) + OF_ROOT
    if lacking := [name for name in TOOLS if shutil.which(name, path=path) is None]:
        return f"not on PATH: {', '.join(lacking)}"
    if not KEYRING.exists():
        return f"{KEYRING} is missing: apt-get install debian-archive-keyring"
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    if run_command(["unshare", *user, "--mount", "true"], within=STEP_WITHIN_S).returncode != 0:
        return (
            "it needs a mount namespace, and this machine allows none: run as root, "
            "or in a container with --cap-add SYS_ADMIN"
        )
    return ""


def unpack(suite: str, package: str, root: Path) -> None:
    """``package`` of ``suite`` and what it depends on, in ``root``, which need not exist.

    Raises ``TargetError`` with what apt printed. A package that is not signed by Debian is an error.
    """
    downloads = root.with_name(f"{root.name}.apt")
    for needed in ("state/lists/partial", "cache/archives/partial"):
        (downloads / needed).mkdir(parents=True)
    (downloads / "state/status").touch()
    source = SOURCE_LIST.format(mirror=_mirror(), suite=suite, keyring=KEYRING)
    (downloads / "suite.sources").write_text(source)
    apt = _apt(downloads)
    _step([*apt, "update"], f"apt cannot read Debian's suite {suite}")
    _step([*apt, "--yes", "--download-only", "install", package, *ESSENTIAL], f"apt cannot fetch {package}")
    for name in MERGED:
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    for name in ("dev", "etc", "proc", "tmp"):
        (root / name).mkdir()
    for archive in sorted((downloads / "cache/archives").glob("*.deb")):
        _unpack_archive(archive, root)
    shell = root / "usr/bin/sh"
    if not shell.exists():
        shell.symlink_to("bash")
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\n")
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n")
    shutil.rmtree(downloads)


def write_wrapper(place: Path, root: Path, program: str) -> None:
    """At ``place`` a script that runs ``program``, a path in ``root``, with the working directory of the
    caller. The script becomes the program: signals reach it."""
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(WRAPPER.format(root=root, program=program))
    place.chmod(0o755)


def _apt(folder: Path) -> list[str]:
    options = {
        "Dir::Etc::sourcelist": folder / "suite.sources",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State": folder / "state",
        "Dir::State::status": folder / "state/status",
        "Dir::Cache": folder / "cache",
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "",
        "Debug::NoLocking": "1",
        # Whatever this machine's apt.conf says, a failed download is an error, and so is a missing signature.
        "APT::Update::Error-Mode": "any",
        "APT::Get::AllowUnauthenticated": "false",
        "Acquire::AllowInsecureRepositories": "false",
        "Acquire::AllowWeakRepositories": "false",
    }
    return ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in options.items())]


def _mirror() -> str:
    """The mirror of Debian that this machine uses already."""
    for file in sorted(SOURCES.glob("sources.list*")) + sorted(SOURCES.glob("sources.list.d/*")):
        if file.is_file():
            text = re.sub(r"(?m)#.*$", "", file.read_text(errors="replace"))
            if found := re.search(r"https?://[^\s\]]+/debian(?=/?(\s|$))", text):
                return found[0]
    return DEBIAN_MIRROR


def _unpack_archive(archive: Path, root: Path) -> None:
    """Only the files: no script of a package runs. ``tar`` keeps the links of ``MERGED``."""
    tar = root.parent / "package.tar"
    with tar.open("wb") as output:
        done = subprocess.run(
            ["dpkg-deb", "--fsys-tarfile", archive], stdout=output, stderr=subprocess.PIPE, check=False
        )
    if done.returncode != 0:
        raise TargetError(f"dpkg-deb cannot read {archive.name}: {done.stderr.decode(errors='replace')}")
    command = ["tar", "--extract", "--keep-directory-symlink", "--no-same-owner", "--file", str(tar)]
    _step([*command, "--directory", str(root)], f"tar cannot unpack {archive.name}")
    tar.unlink()


def _step(command: Sequence[str], failure: str) -> None:
    try:
        done = run_command(command, {**os.environ, "LC_ALL": "C.UTF-8"}, within=FETCHED_WITHIN_S)
    except TargetError as error:
        raise TargetError(f"{failure}: {error}") from None
    if done.returncode != 0:
        errors = [line for line in done.stdout.splitlines() if line.startswith(("E:", "tar:"))]
        raise TargetError(f"{failure}: {(errors or done.stdout.strip().splitlines() or ['no output'])[0]}")
