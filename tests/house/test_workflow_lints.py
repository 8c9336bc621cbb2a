"""What others say of the workflows: GitHub's schema, and zizmor, both without a network."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

FOLDER = Path(__file__).resolve().parents[2] / ".github" / "workflows"
ACTIONS = [FOLDER.parents[1] / "action.yml", *sorted(FOLDER.parent.glob("actions/*/action.yml"))]


def accepts(kind: str, *files: Path) -> bool:
    """Tell whether GitHub's schema of a kind of file takes these: here, as its import takes 4 s."""
    from check_jsonschema import main

    said = CliRunner().invoke(main, ["--builtin-schema", f"vendor.{kind}", *map(str, files)])
    print(said.output)
    assert said.exit_code in (0, 1)
    return said.exit_code == 0


def test_githubs_schema(tmp_path: Path) -> None:
    assert accepts("github-workflows", *sorted(FOLDER.glob("*.yml")))
    wrong = tmp_path / "wrong.yml"
    text = (FOLDER / "ci.yml").read_text(encoding="utf-8")
    wrong.write_text(text.replace("timeout-minutes", "timeout-minuets"), encoding="utf-8")
    assert not accepts("github-workflows", wrong)
    assert len(ACTIONS) > 1 and accepts("github-actions", *ACTIONS)
    assert accepts("dependabot", FOLDER.parent / "dependabot.yml")


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
