"""Audits of published wheels, by digest: these findings, and no others.

What they say was looked at wheel by wheel: an error breaks on a machine that the tags promise. Six run in CI;
the others by hand (``-m public-wheels``, 2 GB).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from wheels import download

from rocm_wheels.audit import audited_wheel, contents, verify
from rocm_wheels.models.project import load_project
from rocm_wheels.wheels.scan import scan_wheel

pytestmark = [pytest.mark.slow, pytest.mark.network]


@dataclass(frozen=True)
class Published:
    """A wheel by requirement, tags and SHA-256, as pip got it from PyPI; names of checks by severity."""

    requirement: str
    tags: str
    digest: str
    errors: str = ""
    warnings: str = ""
    notes: str = ""


_TABLE = yaml.safe_load((Path(__file__).parents[1] / "data/published_wheels.yaml").read_text())
SMALL, LARGE = ([Published(**row) for row in _TABLE[key]] for key in ("small", "large"))
BY_HAND = getattr(pytest.mark, "public-wheels")


OWN = [(row.pop("recipe"), Published(**row)) for row in _TABLE["own"]]
LARGE_OWN = [
    ("pytorch", next(row for row in LARGE if row.requirement.startswith("torch=="))),
    ("triton", next(row for row in LARGE if row.requirement.startswith("triton=="))),
]


def fetch(wheel: Published) -> Path:
    """Return a published wheel."""
    python, abi, platform = wheel.tags.split("-")
    version = {"cp310": "3.10"}.get(python, "3.11")
    words = ["--python-version", version, "--implementation", "cp" if abi != "none" else "py", "--abi", abi]
    return download(wheel.requirement, wheel.digest, platform, *words)


@pytest.mark.parametrize(
    "wheel",
    [
        *(pytest.param(row, id=f"{row.requirement}-{row.tags}") for row in SMALL),
        *(pytest.param(row, id=f"{row.requirement}-{row.tags}", marks=BY_HAND) for row in LARGE),
    ],
)
def test_findings_are_those_that_are_true(wheel: Published) -> None:
    path = fetch(wheel)
    system = "windows" if "-win" in wheel.tags else "linux"
    report = verify.verify_wheel(path, audited_wheel.WheelExpectation(None, system))
    assert report.sha256 == wheel.digest
    named = {severity: set[str]() for severity in ("error", "warning", "info")}
    for finding in report.findings:
        named[finding.severity].add(finding.check)
    worst = {"error": named["error"], "warning": named["warning"] - named["error"]}
    worst["info"] = named["info"] - named["error"] - named["warning"]
    stated = {"error": wheel.errors, "warning": wheel.warnings, "info": wheel.notes}
    assert worst == {severity: set(names.split()) for severity, names in stated.items()}


@pytest.mark.parametrize(
    ("recipe", "wheel"),
    [
        *(pytest.param(*row, id=row[0]) for row in OWN),
        *(pytest.param(*row, id=row[0], marks=BY_HAND) for row in LARGE_OWN),
    ],
)
def test_recipes_allow_what_upstream_publishes(recipe: str, wheel: Published) -> None:
    scan, project = scan_wheel(fetch(wheel), device_code=False), load_project(recipe)
    assert scan.name is not None and scan.sha256 == wheel.digest
    assert contents.find_disallowed_contents(scan.contents, scan.name.distribution, project) == []
    assert scan.hazards == ()
