"""Signatures of evidence by the real ssh-keygen: whose they are, and of what."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from datetime import datetime, timezone
from pathlib import Path

import pytest

from rocm_wheels.cli.boundary import run_command
from rocm_wheels.cli.main import cli
from rocm_wheels.errors import UsageError
from rocm_wheels.release.evidence import Counts, Evidence, Host
from rocm_wheels.release.evidence_store import Known, add_evidence, evidence_of
from rocm_wheels.release.layout import Places, load_layout
from rocm_wheels.release.sets import SetDocument, SetFile, SetLock, set_id
from rocm_wheels.release.signing import is_valid, signed
from rocm_wheels.release.stores.folder import FolderStore

ENV = dict(os.environ)
LAYOUT = load_layout()
NAME = "torch-2.9.1-cp312-cp312-linux_x86_64.whl"
SET = SetDocument(
    id=set_id("2.9.1", [(NAME, "a" * 64)], "c" * 64),
    created="2026-11-20T12:00:00Z",
    version="2.9.1",
    family="gfx1030",
    layout="per-family",
    files=(
        SetFile(
            name=NAME,
            project="torch",
            version="2.9.1",
            sha256="a" * 64,
            size=1,
            metadata_sha256="b" * 64,
            targets=("gfx1030",),
        ),
    ),
    lock=SetLock(digest="c" * 64, path="sources.lock.json"),
)
POLICY = """
channels:
  nightly: {signed: required, rules: {verify: {fresh: 14d}}}
signers:
  ann: KEY
"""

pytestmark = pytest.mark.skipif(
    shutil.which("ssh-keygen") is None, reason="OpenSSH's client is not installed"
)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return make_key(tmp_path / "ann")


def make_key(path: Path, *, kind: str = "ed25519", phrase: str = "") -> Path:
    argv = ["ssh-keygen", "-q", "-t", kind, "-N", phrase, "-C", "somebody", "-f", str(path)]
    subprocess.run(argv, check=True)
    return path


def evidence(outcome: str = "pass") -> Evidence:
    moment = datetime.now(timezone.utc)
    counts = Counts(passed=1) if outcome == "pass" else Counts(failed=1)
    return Evidence(
        kind="verify",
        set=SET.id,
        hashes=("a" * 64,),
        outcome="pass" if outcome == "pass" else "fail",
        counts=counts,
        tool="rocm-wheels verify",
        host=Host(name="runner-1"),
        by="ann",
        when=moment,
        added=moment,
    )


def test_a_signature_is_of_what_was_said_by_whom(key: Path):
    one = signed(evidence(), key, ENV)
    assert is_valid(one, ENV)
    assert signed(evidence().model_copy(update={"when": one.when}), key, ENV).id == one.id  # the same again
    assert is_valid(one.model_copy(update={"added": datetime.now(timezone.utc)}), ENV)
    for change in (
        {"host": Host(name="runner-2")},
        {"outcome": "fail"},
        {"hashes": ("d" * 64,)},
        {"by": "bob"},
    ):
        assert not is_valid(one.model_copy(update=change), ENV)
    other = make_key(key.with_name("bob"))
    stolen = signed(evidence(), other, ENV).signature
    assert one.signature is not None
    assert stolen is not None
    forged = one.signature.model_copy(update={"value": stolen.value})
    assert not is_valid(one.model_copy(update={"signature": forged}), ENV)
    mended = forged.model_copy(update={"key": 'ssh-ed25519 AAAA\n* namespaces="*" ssh-ed25519 AAAA'})
    assert not is_valid(one.model_copy(update={"signature": mended}), ENV)
    other.with_name("bob.pub").unlink()
    assert is_valid(signed(evidence(), other, ENV), ENV)  # the private key says which public one it has


def test_a_signature_for_something_else_is_none(key: Path, tmp_path: Path):
    one = signed(evidence(), key, ENV)
    argv = ["ssh-keygen", "-Y", "sign", "-q", "-n", "git", "-f", str(key)]
    made = subprocess.run(argv, input=one.payload, capture_output=True, check=True)
    assert one.signature is not None
    of_git = one.signature.model_copy(update={"value": made.stdout.decode()})
    assert not is_valid(one.model_copy(update={"signature": of_git}), ENV)


def test_keys_that_cannot_sign_are_refused(tmp_path: Path):
    with pytest.raises(UsageError, match="is not an Ed25519 key"):
        signed(evidence(), make_key(tmp_path / "ec", kind="ecdsa"), ENV)
    closed = make_key(tmp_path / "closed", phrase="a long one")
    without_agent = {name: value for name, value in ENV.items() if name != "SSH_AUTH_SOCK"}
    with pytest.raises(UsageError, match="signing with "):
        signed(evidence(), closed, without_agent)
    (tmp_path / "none").write_text("no key")
    with pytest.raises(UsageError):
        signed(evidence(), tmp_path / "none", ENV)
    with pytest.raises(UsageError, match="made and checked by ssh-keygen, which is not there"):
        signed(evidence(), closed, {"PATH": str(tmp_path)})


def test_reading_tells_known_signers_from_others_and_from_nobody(key: Path, tmp_path: Path):
    store = FolderStore(tmp_path / "store")
    bob = make_key(tmp_path / "bob")
    good, strange, plain = signed(evidence(), key, ENV), signed(evidence(), bob, ENV), evidence()
    for one in (good, strange, plain):
        assert add_evidence(store, LAYOUT, SET, one)
    assert not add_evidence(store, LAYOUT, SET, good)
    signers = {"ann": key.with_name("ann.pub").read_text()}
    known = {one.id: one for one in evidence_of(store, LAYOUT, SET, signers=signers, env=ENV)}
    assert [known[one.id].signer for one in (good, strange, plain)] == ["ann", "", ""]
    assert not any(one.trouble for one in known.values())
    # somebody who can write to the store changes what was said, and its name
    forged = good.model_copy(update={"by": "eve"})
    path = f"{Places(LAYOUT, SET.family).evidence(SET.id)}/{forged.id}.json"
    store.create(path, forged.to_json())
    found = evidence_of(store, LAYOUT, SET, signers=signers, env=ENV)
    assert Known(forged.id, forged, trouble="its signature is not of what it says") in found


def test_a_channel_that_needs_signatures_is_opened_by_one(
    key: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    store = FolderStore(tmp_path / "store")
    store.create(Places(LAYOUT, SET.family).document(SET.id), SET.to_json())
    policy, results = tmp_path / "policy.yaml", tmp_path / "verify.json"
    policy.write_text(POLICY.replace("KEY", key.with_name("ann.pub").read_text().strip()))
    results.write_text(json.dumps([{"wheel": NAME, "passed": True, "sha256": "a" * 64, "ran": ["record"]}]))
    chosen = [str(tmp_path / "store"), "--set", "2.9.1"]
    gate = ["gate", *chosen, "--channel", "nightly", "--policy", str(policy), "--explain"]
    assert run_command(cli, ["evidence", "add", *chosen, "--from", str(results), "--by", "ann"]) == 0
    assert run_command(cli, gate) == 15
    assert "nobody whom the policy lists has signed it" in capsys.readouterr().out
    add = ["evidence", "add", *chosen, "--from", str(results), "--by", "ann", "--sign-with", str(key)]
    assert run_command(cli, add) == 0
    assert run_command(cli, gate) == 0
    assert "by ann, signed by ann" in capsys.readouterr().out
