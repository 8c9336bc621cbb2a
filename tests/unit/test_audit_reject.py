"""A rejected wheel is set aside whole, with its reasons, and never in the place of another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from wheels import torch_draft

from rocm_wheels.audit import audited_wheel, outputs, verify
from rocm_wheels.core import files
from rocm_wheels.models import project

WHEEL = "torch-2.9.0+rocm7.1.0-cp311-cp311-linux_x86_64.whl"


def failed(
    folder: Path, targets: tuple[str, ...] = ("gfx942",), extra: bytes = b""
) -> audited_wheel.AuditReport:
    folder.mkdir(exist_ok=True)
    draft = torch_draft()
    draft.members["torch/extra.txt"] = extra
    return verify.verify_wheel(
        draft.write(folder),
        audited_wheel.WheelExpectation(project.load_project("pytorch"), "linux", targets=targets),
    )


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_it_takes_findings_and_log_along(tmp_path: Path) -> None:
    report = failed(tmp_path / "fresh")
    log = tmp_path / "build.log"
    log.write_text("what the compiler said")
    place = verify.reject_wheel(report.wheel, report, log, tmp_path / "rejected")
    stem = WHEEL.removesuffix(".whl")
    assert place == tmp_path / "rejected" / stem / WHEEL
    assert names(tmp_path / "fresh") == []
    assert names(place.parent) == sorted([WHEEL, f"{WHEEL}.findings.json", f"{WHEEL}.log"])
    told = json.loads((place.parent / f"{WHEEL}.findings.json").read_text())
    assert told["sha256"] == report.sha256
    assert told["passed"] is False
    assert told["findings"][0]["check"] == "device-code"
    assert log.is_file()


def test_another_wheel_of_that_name_stays(tmp_path: Path) -> None:
    rejected = tmp_path / "rejected"
    places = []
    for extra in (b"one", b"two", b"one"):
        report = failed(tmp_path / "fresh", extra=extra)
        places.append(verify.reject_wheel(report.wheel, report, None, rejected))
    assert [place.parent.name.rpartition(".")[2] for place in places[:2]] == [
        places[0].parent.name.rpartition(".")[2],
        "2",
    ]
    assert places[2] == places[0]  # the same bytes take their own place again
    assert len(names(rejected)) == 4


def test_a_crash_leaves_the_wheel_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    report = failed(tmp_path / "fresh")
    monkeypatch.setattr(files, "link_or_copy", full_disk)
    with pytest.raises(OSError, match="No space left"):
        verify.reject_wheel(report.wheel, report, None, tmp_path / "rejected")
    assert names(tmp_path / "fresh") == [WHEEL]
    assert names(tmp_path / "rejected") == []


def test_the_lines_say_everything(tmp_path: Path) -> None:
    lines = outputs.format_audits([failed(tmp_path / "fresh")])
    assert lines[0].startswith(f"FAILED {WHEEL}: 1 error (")
    assert "gfx1100 gfx942" in lines[0]
    text = "\n".join(lines)
    assert (
        "error RW017 device-code\n    torch/lib/libtorch_hip.so\n    holds gfx1100, not requested (gfx9"
        in text
    )
    assert "tip: the list of targets did not reach the compiler" in text
    assert "skipped: import: not imported: no environment to import it in" in text
