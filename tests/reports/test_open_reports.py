"""Opening reports: checked before the run, written whole, and clear when it cannot be done."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from plumbline.reports import FORMATS, ReportError, open_reports
from plumbline.reports.files import ReportFile
from tests.reports.samples import events_of, sample_result


def test_every_report_asked_for_is_there_after_the_run(tmp_path: Path) -> None:
    files = {name: tmp_path / f"r.{name}" for name, known in FORMATS.items() if known.metavar == "FILE"}
    names, paths = [path.name for path in files.values()], list(files.values())
    consumers = open_reports(files)
    assert len(consumers) == 6
    for event in events_of(sample_result()):
        assert not any(path.exists() for path in paths), "a report appeared before the run finished"
        for consumer in consumers:
            consumer.on_event(event)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)
    assert all(path.stat().st_size for path in paths)


def test_no_options_open_no_reports() -> None:
    assert open_reports({}) == []


def test_missing_folders_are_made(tmp_path: Path) -> None:
    ReportFile(tmp_path / "a" / "b" / "r.json", "json").write(b"{}")
    assert (tmp_path / "a" / "b" / "r.json").read_bytes() == b"{}"


def test_a_folder_is_refused_before_the_run_with_a_name_that_works(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match=r"is a folder; name a file in it, such as .*/plumbline\.html"):
        open_reports({"html": tmp_path})


def test_a_file_in_the_way_is_refused_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ReportError, match=r"cannot write the json report to .*file/r\.json: .*; name a file"):
        open_reports({"json": tmp_path / "file" / "r.json"})


def test_two_reports_in_one_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="two reports would be written to"):
        open_reports({"json": tmp_path / "r", "junit": tmp_path / "x" / ".." / "r"})


def test_report_error_is_an_os_error() -> None:
    assert issubclass(ReportError, OSError)


def test_opening_leaves_the_report_of_the_run_before_alone(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_bytes(b"old")
    ReportFile(path, "json")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_write_leaves_the_old_report_and_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "r.json"
    path.write_bytes(b"old")
    report = ReportFile(path, "json")

    def full(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(ReportError, match="no space left on device"):
        report.write(b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_bytes(b"old")
    link = tmp_path / "latest.json"
    link.symlink_to("real.json")
    ReportFile(link, "json").write(b"new")
    assert link.is_symlink()
    assert (tmp_path / "real.json").read_bytes() == b"new"


def test_a_device_is_written_to_and_not_replaced() -> None:
    ReportFile(Path("/dev/null"), "json").write(b"{}")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_a_report_is_as_readable_as_any_new_file(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.touch()
    ReportFile(tmp_path / "r.json", "json").write(b"{}")
    assert (tmp_path / "r.json").stat().st_mode == plain.stat().st_mode


def test_replaced_report_keeps_file_mode(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.touch()
    path.chmod(0o600)
    ReportFile(path, "json").write(b"{}")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_result_with_all_traffic_is_for_its_owner_alone(tmp_path: Path) -> None:
    paths = {"json": tmp_path / "r.json", "allure": tmp_path / "allure", "html": tmp_path / "r.html"}
    for consumer in open_reports(paths):
        for event in events_of(sample_result()):
            consumer.on_event(event)
    files = [tmp_path / "r.json", *(tmp_path / "allure").iterdir()]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert len(files) > 5
    plain = tmp_path / "plain"
    plain.touch()
    assert (tmp_path / "r.html").stat().st_mode == plain.stat().st_mode
