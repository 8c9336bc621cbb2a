"""The record of a run: events that are written so that whatever ends us leaves them readable."""

from __future__ import annotations

import json
import os
from datetime import datetime, timezone
from pathlib import Path

import pytest

from rocm_wheels.core import process
from rocm_wheels.pipeline import run_record as writing

NOON = datetime(2026, 11, 21, 15, 41, 30, 123456, tzinfo=timezone.utc)


def lines(record: writing.RunRecord) -> list[str]:
    return record.path.read_text(encoding="ascii").splitlines()


def test_an_event_is_one_line_with_its_time_and_clock(tmp_path: Path) -> None:
    record = writing.RunRecord(tmp_path, lambda: (NOON, 12.5))
    record.write("step-begun", step="build-pytorch-cp311", log=tmp_path / "log", after=("a", "b"), jobs=None)
    record.write("run-ended", outcome="done")
    assert lines(record) == [
        '{"time":"2026-11-21T15:41:30.123Z","clock":12.5,"event":"step-begun","step":"build-pytorch-cp311",'
        f'"log":"{tmp_path}/log","after":["a","b"],"jobs":null}}',
        '{"time":"2026-11-21T15:41:30.123Z","clock":12.5,"event":"run-ended","outcome":"done"}',
    ]


def test_credentials_are_never_written_however_deep(tmp_path: Path) -> None:
    record = writing.RunRecord(tmp_path)
    record.write(
        "command", command="pip --index-url https://u:secret@host/x", environment={"A": ["s3://k:secret@b"]}
    )
    assert "secret" not in record.path.read_text()
    assert json.loads(lines(record)[0])["environment"] == {"A": ["s3://***@b"]}


def test_names_of_files_that_are_not_utf8_come_back(tmp_path: Path) -> None:
    record = writing.RunRecord(tmp_path)
    record.write("output", path=os.fsdecode(b"/x/\xff.whl"), text="line\nline\u2028")
    (line,) = lines(record)
    assert os.fsencode(json.loads(line)["path"]) == b"/x/\xff.whl"


def test_an_event_after_a_torn_line_begins_on_a_line_of_its_own(tmp_path: Path) -> None:
    record = writing.RunRecord(tmp_path)
    record.path.write_bytes(b'{"event":"a"}\n{"event":"to')
    record.write("b")
    assert [line[:12] for line in lines(record)] == ['{"event":"a"', '{"event":"to', '{"time":"202']


@pytest.mark.skipif(os.name == "nt", reason="no limits of files")
@pytest.mark.parametrize("room", [0, 20])
def test_a_full_disk_is_an_error_and_the_next_event_is_whole(tmp_path: Path, room: int) -> None:
    import resource

    record = writing.RunRecord(tmp_path)
    record.write("before")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (record.path.stat().st_size + room, limits[1]))
    try:
        with pytest.raises(OSError, match="No space left" if room else "too large"):
            record.write("lost")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    record.write("kept")
    assert json.loads(lines(record)[-1])["event"] == "kept"
    assert len(lines(record)) == (3 if room else 2)


def test_runs_of_one_second_have_names_of_their_own(tmp_path: Path) -> None:
    names = [writing.create_run_record(tmp_path / "runs", NOON).folder.name for _ in range(3)]
    assert names == ["20261121-154130", "20261121-154130-2", "20261121-154130-3"]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="known on Linux alone")
def test_a_process_is_known_by_when_it_began() -> None:
    assert process.get_process_start(os.getpid()) == process.get_process_start(os.getpid()) != ""
    assert process.get_process_start(2**22 + 1) == ""


def test_the_newest_run_is_the_last_one_also_after_the_clock_was_set_back(tmp_path: Path) -> None:
    (tmp_path / "20991231-of-somebody").mkdir()
    days = [
        datetime(year, 11, 21, 15, 41, 30, tzinfo=timezone.utc) for year in (2026, 2031, 2026, 2027, 2032)
    ]
    names = [writing.create_run_record(tmp_path, day).folder.name for day in days]
    later = "20311121-154130"
    assert names == ["20261121-154130", later, f"{later}-2", f"{later}-3", "20321121-154130"]
    assert writing.list_run_ids(tmp_path) == names[::-1]
