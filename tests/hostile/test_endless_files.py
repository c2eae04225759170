"""A file that a user, a launcher or another file names may have no end; no command reads it to its end."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from plumbline.bounds import RESULT_FILE_BYTES, TEXT_FILE_BYTES

ENDLESS = Path("/dev/zero")
MEMORY = 2 << 30  # bytes of address space: to read the file fails, instead of filling the machine
ENDS_WITHIN_S = 60.0
TEXT = f"it has more than {TEXT_FILE_BYTES:,} bytes"
RESULT = f"it has more than {RESULT_FILE_BYTES:,} bytes"
NATS_PROGRAM = ["-c", "from plumbline.cli.nats_server import main; main()"]
AMQP_PROGRAM = ["-c", "from plumbline.cli.rabbitmq import main; main()"]
PLUMBLINE = ["-m", "plumbline"]
UNUSED = "nats://127.0.0.1:1"

CASES = [
    pytest.param([*PLUMBLINE, "verify", "--waivers", "/dev/zero"], 2, TEXT, id="waivers"),
    pytest.param([*PLUMBLINE, "verify", "--claims", "/dev/zero"], 2, TEXT, id="claims"),
    pytest.param([*PLUMBLINE, "verify", "--trace", "endless.trace"], 2, TEXT, id="trace"),
    pytest.param([*PLUMBLINE, "verify", UNUSED, "--creds", "/dev/zero"], 2, "more than", id="creds"),
    pytest.param([*PLUMBLINE, "targets", "--targets-file", "/dev/zero"], 2, "more than", id="targets"),
    pytest.param([*PLUMBLINE, "broker", "nats", "-c", "/dev/zero"], 2, TEXT, id="broker-nats"),
    pytest.param([*PLUMBLINE, "broker", "amqp", "-c", "/dev/zero"], 2, TEXT, id="broker-amqp"),
    pytest.param([*PLUMBLINE, "matrix", "/dev/zero", "-o", "site"], 2, RESULT, id="result"),
    pytest.param([*NATS_PROGRAM, "-c", "/dev/zero"], 1, TEXT, id="nats-server"),
    pytest.param([*NATS_PROGRAM, "-c", "includes.conf"], 1, TEXT, id="nats-server-include"),
    pytest.param([*AMQP_PROGRAM, "-c", "/dev/zero"], 1, TEXT, id="rabbitmq"),
]  # fmt: skip


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the memory of a process")
@pytest.mark.parametrize(("arguments", "code", "why"), CASES)
def test_an_endless_file_is_an_error_of_the_user(
    arguments: list[str], code: int, why: str, tmp_path: Path
) -> None:
    (tmp_path / "endless.trace").symlink_to(ENDLESS)
    (tmp_path / "includes.conf").write_text("include /dev/zero\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=ENDS_WITHIN_S,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY)),
    )
    assert why in done.stderr.replace("\n", " "), done.stderr[-500:]
    assert "Traceback" not in done.stderr
    assert done.returncode == code
