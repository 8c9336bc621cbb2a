"""What others say of the workflows: GitHub's schema, and zizmor, both without a network."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / ".github" / "workflows"
ACTIONS = [FOLDER.parents[1] / "action.yml", *sorted(FOLDER.parent.glob("actions/*/action.yml"))]
SCHEMA = ["-m", "check_jsonschema", "--builtin-schema"]


def schema(*files: Path, kind: str = "github-workflows") -> subprocess.CompletedProcess[str]:
    words = [sys.executable, *SCHEMA, f"vendor.{kind}", *map(str, files)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_githubs_schema(tmp_path: Path) -> None:
    done = schema(*sorted(FOLDER.glob("*.yml")))
    assert done.returncode == 0, done.stdout
    wrong = tmp_path / "wrong.yml"
    text = (FOLDER / "ci.yml").read_text(encoding="utf-8")
    wrong.write_text(text.replace("timeout-minutes", "timeout-minuets"), encoding="utf-8")
    assert schema(wrong).returncode != 0
    assert len(ACTIONS) > 1 and schema(*ACTIONS, kind="github-actions").returncode == 0
    assert schema(FOLDER.parent / "dependabot.yml", kind="dependabot").returncode == 0


@pytest.mark.parametrize(("persona", "severity"), [("regular", "medium"), ("pedantic", "high")])
def test_zizmor_finds_nothing(persona: str, severity: str, tmp_path: Path) -> None:
    """Below that it advises a newer spelling of calls (`$/…`), which the schema does not know yet."""
    words = ["--offline", "--no-progress", "--no-config", "--format", "json", "--persona", persona]
    program = Path(sys.executable).with_name("zizmor.exe" if sys.platform == "win32" else "zizmor")
    done = subprocess.run(
        [str(program), *words, "--min-severity", severity, str(FOLDER), *map(str, ACTIONS)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert json.loads(done.stdout) == [] and done.returncode == 0, done.stdout[:3000] + done.stderr
