"""``set key``: one command makes a key, and what it signs counts."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from commands import Ended, call

from rocm_wheels.core import ssh_signature
from rocm_wheels.release.policy import load_policy

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="OpenSSH is not installed")

KEY = f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{'A' * 43}"
CHANNELS = "channels: {nightly: {signed: false, rules: {audit: {fresh: 1d}}}}\n"


def make(*words: str, code: int = 0) -> Ended:
    return call("set", "key", *words, code=code)


def test_a_policy_is_made_and_names_each_key_once(tmp_path: Path) -> None:
    policy = tmp_path / "ci" / "policy.yaml"
    policy.parent.mkdir()
    make("lab", "--policy", str(policy))
    make("desk", "--policy", str(policy))
    named = load_policy(policy)
    assert set(named.signers) == {"lab", "desk"} and named.channels == load_policy().channels
    assert policy.read_text().count("\nsigners:\n") == 1 and "# rules (of" in policy.read_text()
    private = policy.parent / "lab"
    assert private.stat().st_mode & 0o077 == 0
    assert private.with_suffix(".pub").read_text().split()[1] in policy.read_text()
    before = policy.read_bytes(), private.read_bytes()
    assert "names a signer lab already" in make("lab", "--policy", str(policy), code=2).err
    assert (policy.read_bytes(), private.read_bytes()) == before
    other = policy.parent / "other.yaml"
    make("lab", "--policy", str(other))  # the key is there, of another policy
    assert private.read_bytes() == before[1]
    assert load_policy(other).signers == {"lab": load_policy(policy).signers["lab"]}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("channels: {}", "channels"),
        (f"signers:\n{CHANNELS}", "signers"),
        (f"signers: {{ann: {KEY}}}\n{CHANNELS}", "write `signers:` without braces"),
        (
            f"signers: {{}}\n{CHANNELS}",
            "each signer on a line of its own below it, `  NAME: KEY`; then call this again",
        ),
        ("{channels: {nightly: {signed: false, rules: {audit: {fresh: 1d}}}}}\n", "without braces"),
    ],
)
def test_a_policy_that_cannot_be_added_to_stays_as_it_is(
    text: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No key is made that was told and then taken away."""
    made: list[object] = []
    monkeypatch.setattr(ssh_signature, "make_key", lambda *words: made.append(words))
    policy = tmp_path / "policy.yaml"
    policy.write_text(text)
    printed = make("lab", "--policy", str(policy), code=2).err
    assert says in printed and "lab: ssh" not in printed and not made
    assert policy.read_text() == text and list(tmp_path.iterdir()) == [policy]


FORMS = {
    "block": "# ours\nchannels:  # all\n  nightly: {signed: false, rules: {audit: {fresh: 1d}}}\n",
    "without a line end": "channels: {nightly: {signed: false, rules: {audit: {fresh: 1d}}}}",
    "with a signer": f"signers: # who\n  # the lab\n  ann: {KEY}  # ann's\n{CHANNELS}",
    "with a signer, indented": f"{CHANNELS}signers:\n      ann: {KEY}\n",
    "with a quoted signer": f"signers:\n  'ann b': \"{KEY}\"\n{CHANNELS}",
    "indented": f"  signers:\n    ann: {KEY}\n  {CHANNELS}",
    "an indented root": f"  {CHANNELS}",
    "CRLF": f"signers:\r\n  ann: {KEY}\r\n{CHANNELS}".replace("\n", "\r\n").replace("\r\r", "\r"),
    "CRLF without signers": CHANNELS.replace("\n", "\r\n"),
    "an anchor": f"signers: &people\n  ann: &key {KEY}\n{CHANNELS}",
    "a workflow": "signers:\n  ci:\n    identity: https://github.com/o/r/.github/workflows/f.yml@refs/heads/main\n"
    f"    issuer: https://token.actions.githubusercontent.com\n{CHANNELS}",
    "words that look like it": f"{CHANNELS}waivers:\n  - {{rule: complete, channels: [nightly], set: x,\n"
    "     owner: a, reason: 'signers: nobody', expires: 2026-12-01}\n",
    "a text of lines": f"{CHANNELS}families:\n  gfx1031:\n    owner: eve\n"
    "    bypass_tests_for_releases: true\n    reason: >-\n      signers:\n      nobody\n",
    "a byte order mark": f"\ufeff{CHANNELS}",
}


@pytest.mark.parametrize("form", FORMS)
def test_a_policy_of_any_form_gets_a_signer_and_keeps_all_else(form: str, tmp_path: Path) -> None:
    policy, text = tmp_path / "policy.yaml", FORMS[form].encode()
    policy.write_bytes(text)
    before = load_policy(policy)
    for name in ("lab", "2nd: lab"):
        make(name, "--policy", str(policy))
        after = load_policy(policy)
        assert set(after.signers) == {*before.signers, name}
        assert after.model_copy(update={"signers": before.signers}) == before
        rest = policy.read_bytes()  # all that was there is there, in its order
        for word in re.findall(rb"[^\s{},]+", text.replace(b"*none", b"")):
            assert word in rest, word
            rest = rest[rest.index(word) + len(word) :]
        before = after
    assert policy.read_bytes().count(b"\r\n") in {0, policy.read_bytes().count(b"\n")}
    assert policy.read_bytes().startswith(b"\xef\xbb\xbf") == (form == "a byte order mark")


def test_a_form_that_is_not_known_is_left_as_it_is(tmp_path: Path) -> None:
    policy, text = tmp_path / "policy.yaml", f"signers:\n  &people\n  ann: {KEY}\n{CHANNELS}"
    policy.write_text(text)
    assert "without braces" in make("lab", "--policy", str(policy), code=2).err
    assert policy.read_text() == text and list(tmp_path.iterdir()) == [policy]


def test_a_policy_that_is_a_link_stays_one(tmp_path: Path) -> None:
    policy, link = tmp_path / "policy.yaml", tmp_path / "link.yaml"
    policy.write_text(CHANNELS)
    link.symlink_to(policy)
    make("lab", "--policy", str(link))
    assert link.is_symlink() and set(load_policy(policy).signers) == {"lab"}
