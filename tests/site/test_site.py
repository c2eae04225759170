"""The published table, from a real server and a real library, as a reader opens it in Chromium."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.reports.browser import chromium, processor_time, reader, serious_violations

pytestmark = [pytest.mark.external, pytest.mark.slow, pytest.mark.timeout(600)]
SERVER = "nats-server@debian"


def test_a_site_of_real_runs_opens_at_once_and_is_readable_to_all(tmp_path: Path) -> None:
    site = tmp_path / "site"
    chosen = ("--server", SERVER, "--server", "reference-amqp", "--library", "nats_py")
    command = [sys.executable, "-m", "tests.site", *chosen, "-o", str(site)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    index = json.loads((site / "index.json").read_text())
    assert {(row["kind"], row["target"].partition("@")[0]) for row in index["targets"]} == {
        ("server", "nats-server"),
        ("server", "reference-amqp"),
        ("client", "nats-py"),
    }
    requirement = next(one["id"] for one in index["requirements"] if one["id"].startswith("CLIENT-"))
    pages = ["index.html", f"requirements/{requirement}.html", "requirements/JS-ACK-001.html"]
    with chromium() as browser:
        for name in pages:
            assert processor_time(browser, site / name) < 2, name
            with reader(browser) as person:
                assert serious_violations(person.open(site / name)) == []
                person.assert_quiet(site / name)
    assert sum(path.stat().st_size for path in site.rglob("*") if path.is_file()) < 30e6
