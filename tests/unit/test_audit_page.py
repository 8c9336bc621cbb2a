"""The page of a set: all wheels at once, readable without scripts, safe whatever a wheel says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from commands import HOSTILE, Page, read_page
from wheels import library, set_drafts, write_set

from rocm_wheels.audit import audited_set, audited_wheel, definition, outputs, page
from rocm_wheels.cli import boundary, main
from rocm_wheels.core import errors

LOST = "RW086", "RW090"


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """An older set, and one that lost a target of one library, a wheel and a run path's sense."""
    folder = tmp_path_factory.mktemp("sets")
    drafts = set_drafts()
    write_set(drafts, folder / "old")
    drafts = set_drafts()
    del drafts["triton-312"]
    members = drafts["torch-311"].members
    members["torch/lib/libtorch_hip.so"] = library("gfx942:sramecc+:xnack-", run_path="$ORIGIN:/opt/x")
    members["torch/<script>alert(1)</script>.so"] = library("gfx942")
    write_set(drafts, folder / "new")
    yield folder / "old", folder / "new"


def make_page(folder: Path, *words: object) -> tuple[Page, str]:
    path = folder / "audit.html"
    assert boundary.run_command(main.cli, ["audit", *map(str, words), "--report", str(path)]) in (0, 14)
    text = path.read_text(encoding="utf-8")
    return read_page(text), text


def test_a_page_shows_the_set(
    sets: tuple[Path, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    old, new = sets
    page, text = make_page(tmp_path, "--set", new, "--against", old)
    for section in ("findings", "changes", "device-code", "sizes", "checks", *LOST, "RW021"):
        assert page.ids[section] == 1 and ("a", "href", f"#{section}") in page.attributes
    assert page.tags["h2"] == page.tags["section"] == 5 and page.tags["h1"] == 1
    assert "torch/<script>alert(1)</script>.so" in page.text
    assert "torch/lib/libtorch_hip.so (torch) gfx942 gfx1100" in page.text  # in all wheels, and in some
    assert "looks for libraries in /opt/x" in page.text
    assert "prefers-color-scheme: dark" in text
    assert make_page(tmp_path, "--set", new, "--against", old)[1] == text
    lines = capfd.readouterr().out.splitlines()
    table = [line.strip() for line in lines if line.startswith("  code for ")]
    assert "code for gfx942, in some wheels for gfx1100, too: torch/lib/libtorch_hip.so (torch)" in table


def test_a_set_that_is_compared_with_nothing_has_no_changes(sets: tuple[Path, Path], tmp_path: Path) -> None:
    page, _ = make_page(tmp_path, "--set", sets[0])
    assert "changes" not in page.ids and "checks" not in page.ids
    assert "Nothing was found." in page.text and "0 errors" in page.text


def test_nothing_that_a_wheel_says_leaves_its_place(tmp_path: Path) -> None:
    finding = errors.Finding("error", HOSTILE, HOSTILE, HOSTILE, check="lost-files")
    name = "demo-1.0-cp311-cp311-linux_x86_64.whl"
    report = audited_wheel.AuditReport(
        wheel=tmp_path / name,
        size=1,
        sha256="0" * 64,
        targets=(HOSTILE,),
        findings=(finding, replace(finding, check="archive")),
        libraries={HOSTILE: (HOSTILE,)},
        largest={HOSTILE: 3},
        compared_with=HOSTILE,
        compared_size=2,
    )
    odd = replace(report, wheel=tmp_path / HOSTILE.replace("/", "").replace("\0", "").replace("\ud800", ""))
    set_finding = replace(finding, check="set-files")
    skip = definition.SkippedCheck(HOSTILE, HOSTILE)
    of_set = audited_set.SetReport(
        origin=HOSTILE,
        kind="folder",
        wheels={HOSTILE: "0" * 64},
        findings=(set_finding,),
        skipped=(skip,),
        compared_with=HOSTILE,
    )
    shown = read_page(page.render_audit_page([report, odd], HOSTILE, of_set))
    assert shown.text.count("<script>alert(1)") > 20
    assert json.dumps(outputs.format_audits([report, odd], of_set))


def test_many_libraries_of_one_folder_share_a_row(tmp_path: Path) -> None:
    libraries = {f"torch/lib/kernels/k{number}.so": ("gfx942",) for number in range(40)}
    libraries |= {f"torch/lib/rocblas/library/T{number}_gfx1100.co": ("gfx1100",) for number in range(3)}
    path = tmp_path / "torch-1.0-cp311-cp311-linux_x86_64.whl"
    report = audited_wheel.AuditReport(
        wheel=path, size=1, sha256="0" * 64, targets=("gfx942",), libraries=libraries
    )
    of_set = audited_set.SetReport(origin="here", kind="folder", wheels={path.name: "0" * 64})
    shown = read_page(page.render_audit_page([report], "1", of_set))
    assert "torch/lib/kernels/ (40 files) (torch) gfx942" in shown.text
    assert "torch/lib/rocblas/library/*.co (torch) gfx1100" in shown.text
