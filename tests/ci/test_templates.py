"""What a user puts in their CI runs here as far as it can without that service: every step of it, by bash.

The installation is left out: the plumbline on PATH is the one of this checkout.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from ruamel.yaml import YAML

from tests.patience import HANGS_AFTER_S

pytestmark = pytest.mark.slow  # make test-all runs it

ROOT = Path(__file__).resolve().parents[2]
RECIPE = ROOT / "ci" / "plumbline.sh"
INSTALL = ROOT / "ci" / "install-plumbline.sh"
ACTION = ROOT / "ci" / "github-action" / "action.yml"
GITLAB = ROOT / "ci" / "gitlab" / "plumbline.gitlab-ci.yml"
REPORTS = {"result.json", "junit.xml", "report.html", "summary.md"}
SELECT = ["--select", "CORE-001"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A plumbline on PATH, and the files that a runner gives."""
    programs = tmp_path / "bin"
    programs.mkdir()
    program = programs / "plumbline"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m plumbline "$@"\n')
    program.chmod(0o755)
    return {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "PLUMBLINE_OUTPUT": str(tmp_path / "out"),
    }


def run(command: list[str], environment: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S,
        check=False,
    )


def test_the_recipe_leaves_every_report_and_adds_to_the_summary(
    environment: dict[str, str], tmp_path: Path
) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    done = run([str(RECIPE), "verify", *SELECT], {**environment, "PLUMBLINE_SUMMARY": str(summary)}, tmp_path)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in (tmp_path / "out").iterdir()} == REPORTS
    assert summary.read_text().startswith("before\n")
    assert "Conformant" in summary.read_text()


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["verify", *SELECT, "--defect", "info-ends-with-lf"], 1),
        (["verify", "--select", "NOPE-1"], 2),
        ([], 2),
    ],
)
def test_the_recipe_exits_as_plumbline_does(
    arguments: list[str], status: int, environment: dict[str, str], tmp_path: Path
) -> None:
    done = run([str(RECIPE), *arguments], environment, tmp_path)
    assert done.returncode == status
    assert "plumbline" in done.stderr or status == 1


def steps() -> list[dict[str, Any]]:
    found: dict[str, Any] = YAML(typ="safe").load(ACTION)
    return list(found["runs"]["steps"])


def in_step(step: dict[str, Any], inputs: dict[str, str]) -> dict[str, str]:
    """The step's environment, with the expressions that this action uses."""
    known = {f"inputs.{name}": value for name, value in inputs.items()}
    known["github.action_path"] = str(ACTION.parent)

    def value(expression: re.Match[str]) -> str:
        return known[expression[1]]  # an expression of another kind is an error of the test

    return {name: re.sub(r"\$\{\{ (\S+) \}\}", value, text) for name, text in step["env"].items()}


def action(
    environment: dict[str, str], folder: Path, **inputs: str
) -> tuple[subprocess.CompletedProcess[str], dict[str, str]]:
    """The action's own step, as a runner would do it, and its outputs."""
    (step,) = (step for step in steps() if step.get("id") == "run")
    files = {name: folder / name for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    for file in files.values():
        file.touch()
    values = {"output": str(folder / "out"), "command": "verify", **inputs}
    given = {**environment, **in_step(step, values), **{name: str(path) for name, path in files.items()}}
    done = run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        {**given, "RUNNER_TEMP": str(folder)},
        folder,
    )
    outputs = dict(line.split("=", 1) for line in files["GITHUB_OUTPUT"].read_text().splitlines())
    return done, outputs


def test_the_action_outputs_verdict_and_summary(environment: dict[str, str], tmp_path: Path) -> None:
    done, outputs = action(environment, tmp_path, arguments="--select CORE-001 --select 'CORE-002'")
    assert done.returncode == 0, done.stderr
    assert outputs == {"exit-code": "0", "verdict": "conformant"}
    assert "Conformant" in (tmp_path / "GITHUB_STEP_SUMMARY").read_text()
    assert json.loads((tmp_path / "out" / "result.json").read_text())["summary"]["claimed"] == 2


def test_the_action_fails_with_the_run_and_outputs_its_verdict(
    environment: dict[str, str], tmp_path: Path
) -> None:
    done, outputs = action(environment, tmp_path, arguments="--select CORE-001 --defect info-ends-with-lf")
    assert (done.returncode, outputs) == (1, {"exit-code": "1", "verdict": "not conformant"})


def test_nothing_in_the_arguments_is_expanded(environment: dict[str, str], tmp_path: Path) -> None:
    hostile = "--select 'CORE-001; touch stolen' --select '$(touch stolen)' --select \"`touch stolen`\""
    done, outputs = action(environment, tmp_path, arguments=hostile)
    assert (done.returncode, outputs) == (2, {"exit-code": "2"})
    assert not (tmp_path / "stolen").exists()


def test_no_input_is_pasted_into_a_script() -> None:
    assert not [step["name"] for step in steps() if "${{" in step.get("run", "")]


def test_the_action_uses_one_action_of_github_pinned_by_commit() -> None:
    (used,) = (step["uses"] for step in steps() if "uses" in step)
    assert re.fullmatch(r"actions/upload-artifact@[0-9a-f]{40}", used)


def test_the_gitlab_job_runs_and_leaves_what_it_names(environment: dict[str, str], tmp_path: Path) -> None:
    job = YAML(typ="safe").load(GITLAB)[".plumbline"]
    script = [line for line in job["script"] if "venv" not in line]
    assert len(script) == 3
    variables = {
        **job["variables"],
        "PLUMBLINE": "verify --select CORE-001",
        "PLUMBLINE_REQUIREMENT": "not installed here",
    }
    given = {**environment, **variables}
    done = run(["bash", "-e", "-o", "pipefail", "-c", "\n".join(script)], given, tmp_path)
    assert done.returncode == 0, done.stderr
    artifacts = job["artifacts"]
    assert ElementTree.parse(tmp_path / artifacts["reports"]["junit"]).getroot().tag == "testsuites"
    assert (tmp_path / artifacts["paths"][0] / "report.html").is_file()


def test_the_gitlab_job_installs_nothing_that_the_user_does_not_name(
    environment: dict[str, str], tmp_path: Path
) -> None:
    job = YAML(typ="safe").load(GITLAB)[".plumbline"]
    done = run(["bash", "-e", "-c", "\n".join(job["script"])], {**environment, **job["variables"]}, tmp_path)
    assert done.returncode != 0
    assert "PLUMBLINE_REQUIREMENT: set it to what pip is to install" in done.stderr
    assert list(tmp_path.glob(".plumbline-venv")) == []


def without_plumbline(environment: dict[str, str], folder: Path) -> dict[str, str]:
    """A machine without plumbline. Its Python makes environments that record what pip has to install."""
    programs = folder / "machine"
    programs.mkdir()
    python = programs / "python3"
    python.write_text(
        "#!/bin/sh\n"
        'echo "$@" >> "$HOME/asked"\n'
        '[ "$2" = venv ] || exit 0\n'
        'mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; cp "$HOME/bin/plumbline" "$3/bin"\n'
    )
    python.chmod(0o755)
    (folder / "temporary").mkdir()
    path = f"{programs}{os.pathsep}/usr/bin{os.pathsep}/bin"
    return {**environment, "PATH": path, "TMPDIR": str(folder / "temporary")}


def test_without_plumbline_the_recipe_installs_its_own_checkout_by_hashes(
    environment: dict[str, str], tmp_path: Path
) -> None:
    machine = without_plumbline(environment, tmp_path)
    done = run(["sh", str(RECIPE), "verify", *SELECT], machine, tmp_path)
    assert done.returncode == 0, done.stderr
    installed = [
        line.partition("check ")[2]
        for line in (tmp_path / "asked").read_text().splitlines()
        if " pip " in line
    ]
    assert installed == [
        f"--require-hashes -r {ROOT}/requirements.lock",
        f"--no-index --no-deps --no-build-isolation --editable {ROOT}",
    ]
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_recipe_outside_of_a_checkout_installs_nothing_by_itself(
    environment: dict[str, str], tmp_path: Path
) -> None:
    copied = tmp_path / "copied" / "ci"
    copied.mkdir(parents=True)
    for script in (RECIPE, INSTALL):
        shutil.copy(script, copied)
    machine = without_plumbline(environment, tmp_path)
    done = run(["sh", str(copied / RECIPE.name), "list"], machine, tmp_path)
    assert done.returncode == 2
    assert "set PLUMBLINE_REQUIREMENT" in done.stderr
    assert not (tmp_path / "asked").exists()


def test_the_recipe_removes_nothing_of_the_users(environment: dict[str, str], tmp_path: Path) -> None:
    precious = tmp_path / ".venv" / "precious"
    precious.parent.mkdir()
    precious.write_text("x")
    done = run([str(RECIPE), "list", "CORE-001"], {**environment, "PLUMBLINE_OUTPUT": "."}, tmp_path)
    assert done.returncode == 0, done.stderr
    assert precious.read_text() == "x"


def test_a_summary_of_an_earlier_run_is_not_added_again(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "summary.md").write_text("of an earlier run")
    summary = tmp_path / "summary.md"
    given = {**environment, "PLUMBLINE_SUMMARY": str(summary)}
    done = run([str(RECIPE), "verify", "--select", "NOPE-1"], given, tmp_path)
    assert done.returncode == 2
    assert not summary.exists()
