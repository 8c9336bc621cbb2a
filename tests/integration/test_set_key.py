"""``set key``: one command makes a key, and what it signs counts."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rocm_wheels.cli import boundary, main
from rocm_wheels.release.policy import load_policy

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="OpenSSH is not installed")


def make(*words: str) -> int:
    return boundary.run_command(main.cli, ["set", "key", *words])


def test_a_policy_is_made_and_names_each_key_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = tmp_path / "ci" / "policy.yaml"
    policy.parent.mkdir()
    assert make("lab", "--policy", str(policy)) == 0
    assert make("desk", "--policy", str(policy)) == 0
    named = load_policy(policy)
    assert set(named.signers) == {"lab", "desk"} and named.channels == load_policy().channels
    assert policy.read_text().count("\nsigners:\n") == 1 and "# rules (of" in policy.read_text()
    private = policy.parent / "lab"
    assert private.stat().st_mode & 0o077 == 0
    assert private.with_suffix(".pub").read_text().split()[1] in policy.read_text()
    before = policy.read_bytes(), private.read_bytes()
    assert make("lab", "--policy", str(policy)) == 2
    assert "names a signer lab already" in capsys.readouterr().err
    assert (policy.read_bytes(), private.read_bytes()) == before
    other = tmp_path / "other.yaml"
    assert (
        make("lab", "--policy", str(other), "--key", str(private)) == 0
    )  # which is there, for another policy
    assert load_policy(other).signers == {"lab": load_policy(policy).signers["lab"]}


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("channels: {}", 2, "channels"),
        ("signers: {}\nchannels: {nightly: {signed: false, rules: {audit: {fresh: 1d}}}}", 2, "signers"),
    ],
)
def test_a_policy_that_cannot_be_added_to_stays_as_it_is(
    text: str, code: int, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(text)
    assert make("lab", "--policy", str(policy)) == code
    assert says in capsys.readouterr().err
    assert policy.read_text() == text and list(tmp_path.iterdir()) == [policy]
