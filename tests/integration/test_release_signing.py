"""Signatures of evidence by the real ssh-keygen: whose they are, and of what."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from commands import call, make_key, needs_ssh_keygen
from documents import a_set, put_set, said, wheel

from rocm_wheels.core import errors, ssh_signature
from rocm_wheels.models.test_results import Results, TestResult
from rocm_wheels.release import sigstore_bundle, store_paths
from rocm_wheels.release.evidence.evidence import Evidence, EvidenceHost
from rocm_wheels.release.evidence.store import (
    StoredEvidence,
    add_evidence,
    is_valid_signature,
    read_evidence,
    sign_evidence,
)
from rocm_wheels.stores import folder

ENV = dict(os.environ)
WITHOUT_AGENT = {name: value for name, value in ENV.items() if name != "SSH_AUTH_SOCK"}
SET = a_set(wheel("torch"))
(TORCH,) = SET.files
PASSED = Results(
    kind="audit",
    tool="rocm-wheels set check",
    when=datetime.now(timezone.utc) - timedelta(minutes=5),
    host="here",
    wheels={TORCH.name: TORCH.sha256},
    tests=(TestResult(name="record", outcome="passed"),),
)
POLICY = """
channels:
  nightly: {signed: true, rules: {audit: {fresh: 14d}}}
signers:
  ann: KEY
"""

# a public attestation by a workflow, its certificate and entry in the log of 2024-12-16; source:
# https://github.com/sigstore/sigstore-conformance, commit a73de4970176d258e0154c530b89d20b89444e4d,
# test/assets/bundle-verify/happy-path-intoto-in-dsse-v3 and a.txt beside it
ATTESTATION = Path(__file__).resolve().parents[1] / "data" / "attestation"
BUNDLE = (ATTESTATION / "bundle.sigstore.json").read_text()
ATTESTED = (ATTESTATION / "a.txt").read_bytes()
ISSUER = "https://token.actions.githubusercontent.com"
WORKFLOWS = (
    "https://github.com/sigstore-conformance/extremely-dangerous-public-oidc-beacon/.github/workflows/"
)
BEACON = sigstore_bundle.WorkflowIdentity(
    identity=f"{WORKFLOWS}extremely-dangerous-oidc-beacon.yml@refs/heads/main", issuer=ISSUER
)

pytestmark = [pytest.mark.contract, needs_ssh_keygen]


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return make_key(tmp_path / "ann")


def evidence(outcome: str = "pass") -> Evidence:
    moment = datetime.now(timezone.utc)
    return said("audit", outcome, document=SET, when=moment, added=moment).evidence


def test_a_signature_is_of_what_was_said_by_whom(key: Path):
    one = sign_evidence(evidence(), key, ENV)
    assert is_valid_signature(one, ENV)
    assert (
        sign_evidence(evidence().model_copy(update={"when": one.when}), key, ENV).id == one.id
    )  # the same again
    assert is_valid_signature(one.model_copy(update={"added": datetime.now(timezone.utc)}), ENV)
    for change in (
        {"host": EvidenceHost(name="runner-2")},
        {"outcome": "fail"},
        {"hashes": ("d" * 64,)},
        {"by": "bob"},
    ):
        assert not is_valid_signature(one.model_copy(update=change), ENV)
    other = make_key(key.with_name("bob"))
    stolen = sign_evidence(evidence(), other, ENV).signature
    assert one.signature is not None
    assert stolen is not None
    forged = one.signature.model_copy(update={"value": stolen.value})
    assert not is_valid_signature(one.model_copy(update={"signature": forged}), ENV)
    mended = forged.model_copy(update={"key": 'ssh-ed25519 AAAA\n* namespaces="*" ssh-ed25519 AAAA'})
    assert not is_valid_signature(one.model_copy(update={"signature": mended}), ENV)
    other.with_name("bob.pub").unlink()
    assert is_valid_signature(
        sign_evidence(evidence(), other, ENV), ENV
    )  # the private key says which public one it has


def test_a_signature_for_something_else_is_none(key: Path, tmp_path: Path):
    one = sign_evidence(evidence(), key, ENV)
    argv = ["ssh-keygen", "-Y", "sign", "-q", "-n", "git", "-f", str(key)]
    made = subprocess.run(argv, input=one.payload, capture_output=True, check=True)
    assert one.signature is not None
    of_git = one.signature.model_copy(update={"value": made.stdout.decode()})
    assert not is_valid_signature(one.model_copy(update={"signature": of_git}), ENV)


def test_keys_that_cannot_sign_are_refused(tmp_path: Path):
    with pytest.raises(errors.UsageError, match="is not an Ed25519 key"):
        sign_evidence(evidence(), make_key(tmp_path / "ec", kind="ecdsa"), ENV)
    (tmp_path / "none").write_text("no key")
    with pytest.raises(errors.UsageError):
        sign_evidence(evidence(), tmp_path / "none", ENV)
    key = make_key(tmp_path / "ann")
    with pytest.raises(errors.UsageError, match="made and checked by ssh-keygen, which is not installed"):
        sign_evidence(evidence(), key, {"PATH": str(tmp_path)})
    make_key(tmp_path / "bob")
    shutil.copy(tmp_path / "bob.pub", tmp_path / "ann.pub")
    with pytest.raises(errors.UsageError, match=r"signing with .*ann|is not of the public key beside it"):
        sign_evidence(evidence(), key, ENV)


@pytest.mark.parametrize("beside", [True, False])
def test_a_key_with_a_passphrase_is_refused_at_once_where_nobody_can_be_asked(tmp_path: Path, beside: bool):
    closed = make_key(tmp_path / "closed", phrase="a long one")
    if not beside:
        closed.with_name("closed.pub").unlink()
    before = time.monotonic()
    with pytest.raises(errors.UsageError, match=r"(signing with|reading) .*closed") as refused:
        sign_evidence(evidence(), closed, WITHOUT_AGENT)
    assert "agent" in str(refused.value.tip)
    assert time.monotonic() - before < 30  # one that waits would wait two minutes


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[dict[str, str]]:
    """An agent that holds a key whose file is gone, but for the public one."""
    socket = Path(tempfile.mkdtemp(prefix="agent-")) / "socket"  # a path that is short enough for a socket
    argv = ["ssh-agent", "-D", "-a", str(socket)]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not socket.exists() and process.poll() is None:
            time.sleep(0.01)
        env = {**ENV, "SSH_AUTH_SOCK": str(socket)}
        key = make_key(tmp_path / "held")
        subprocess.run(["ssh-add", "-q", str(key)], env=env, check=True)
        key.unlink()
        yield env
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(socket.parent)


def test_a_key_that_only_an_agent_holds_signs_by_its_public_file(tmp_path: Path, agent: dict[str, str]):
    public = tmp_path / "held.pub"
    one = sign_evidence(evidence(), public, agent)
    assert is_valid_signature(one, ENV)
    assert one.signature is not None
    assert public.read_text().startswith(one.signature.key)
    with pytest.raises(errors.UsageError, match="signing with"):
        sign_evidence(evidence(), public, WITHOUT_AGENT)


def test_a_public_key_is_whole_and_of_the_kind_that_it_says(key: Path):
    text = key.with_name("ann.pub").read_text()
    name, blob, _ = text.split(" ", 2)
    assert ssh_signature.is_public_key(text)
    assert ssh_signature.is_public_key(f"{name} {blob}")
    hardware = base64.b64encode(b"\0\0\0\x1ask-ssh-ed25519@openssh.com\0\0\0 " + b"k" * 32 + b"\0\0\0\4ssh:")
    assert ssh_signature.is_public_key(f"sk-ssh-ed25519@openssh.com {hardware.decode()} token")
    for wrong in (
        f"{name} {blob[:-4]}",
        f"{name} {'A' * 68}",
        f"sk-ssh-ed25519@openssh.com {blob}",
        blob,
        "",
    ):
        assert not ssh_signature.is_public_key(wrong), wrong


def test_reading_tells_known_signers_from_others_and_from_nobody(key: Path, tmp_path: Path):
    store = folder.FolderStore(tmp_path / "store")
    put_set(store, SET)
    bob = make_key(tmp_path / "bob")
    good, strange, plain = (
        sign_evidence(evidence(), key, ENV),
        sign_evidence(evidence(), bob, ENV),
        evidence(),
    )
    for one in (good, strange, plain):
        assert add_evidence(store, SET, one)
    assert not add_evidence(store, SET, good)
    signers = {"ann": key.with_name("ann.pub").read_text()}
    known = {one.id: one for one in read_evidence(store, SET, signers=signers, env=ENV)}
    assert [known[one.id].signer for one in (good, strange, plain)] == ["ann", "", ""]
    assert not any(one.trouble for one in known.values())
    # somebody who can write to the store changes what was said, and its name
    forged = good.model_copy(update={"by": "eve"})
    path = f"{store_paths.FamilyPaths(SET.family).evidence_folder(SET.id)}/{forged.id}.json"
    store.create(path, forged.to_json())
    found = read_evidence(store, SET, signers=signers, env=ENV)
    trouble = "its signature is not of what it says"
    assert StoredEvidence(forged.id, forged, trouble=trouble) in found


def test_a_channel_that_needs_signatures_is_opened_by_one(
    key: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("GITHUB_ACTOR", "ann")
    store = folder.FolderStore(tmp_path / "store")
    put_set(store, SET)
    policy, results = tmp_path / "policy.yaml", tmp_path / "audit.json"
    policy.write_text(POLICY.replace("KEY", key.with_name("ann.pub").read_text().strip()))
    results.write_bytes(PASSED.to_json())
    chosen = [str(tmp_path / "store"), "--set", "2.9.1"]
    gate = ["set", "gate", *chosen, "--channel", "nightly", "--policy", str(policy), "--explain"]
    call("set", "evidence", "add", *chosen, "--from", results)
    ignored = call(*gate, "--json", code=15).json["ignored"]
    assert [entry["code"] for entry in ignored] == ["not-signed"]
    add = ["set", "evidence", "add", *chosen, "--from", str(results), "--sign-with", str(key)]
    call(*add)
    assert "by ann, signed by ann" in call(*gate).out


@pytest.fixture
def sigstore_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the library keep the roots that come with it in a folder of the test."""
    for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "sigstore"))


@pytest.mark.usefixtures("sigstore_home")
def test_an_attestation_is_by_the_workflow_that_the_policy_names_and_of_this_content():
    elsewhere = BEACON.identity.replace("heads/main", "heads/other")
    other_ref = sigstore_bundle.WorkflowIdentity(identity=elsewhere, issuer=ISSUER)
    other_issuer = sigstore_bundle.WorkflowIdentity(
        identity=BEACON.identity, issuer="https://accounts.example.org"
    )
    assert sigstore_bundle.find_attester(BUNDLE, ATTESTED, {"ref": other_ref, "ci": BEACON}) == "ci"
    assert sigstore_bundle.find_attester(BUNDLE, ATTESTED, {"ref": other_ref, "issuer": other_issuer}) == ""
    with pytest.raises(errors.DataError, match="its attestation is not of what it says"):
        sigstore_bundle.find_attester(BUNDLE, ATTESTED + b"x", {"ci": BEACON})
    bundle = json.loads(BUNDLE)
    statement = json.loads(base64.b64decode(bundle["dsseEnvelope"]["payload"]))
    statement["subject"][0]["digest"]["sha256"] = hashlib.sha256(b"forged").hexdigest()
    bundle["dsseEnvelope"]["payload"] = base64.b64encode(json.dumps(statement).encode()).decode()
    for forged in (json.dumps(bundle), "{}", "no JSON"):
        with pytest.raises(errors.DataError, match="its attestation is not valid"):
            sigstore_bundle.find_attester(forged, b"forged", {"ci": BEACON})


@pytest.mark.usefixtures("sigstore_home")
def test_evidence_that_a_workflow_attested_is_signed_by_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    place = tmp_path / "store"
    put_set(folder.FolderStore(place), SET)
    results, payloads, policy = tmp_path / "audit.json", tmp_path / "payloads", tmp_path / "policy.yaml"
    identity = f"{{identity: '{BEACON.identity}', issuer: '{ISSUER}'}}"
    policy.write_text(POLICY.replace("ann: KEY", f"ci: {identity}"))
    results.write_bytes(PASSED.to_json())
    chosen = [str(place), "--set", "2.9.1"]
    add = ["set", "evidence", "add", *chosen, "--from"]
    monkeypatch.setenv("GITHUB_ACTOR", "ann")
    gate = ["set", "gate", *chosen, "--channel", "nightly", "--policy", str(policy)]
    call(*add, results, "--write-payloads", payloads)
    (payload,) = payloads.iterdir()
    attested = [*add, str(payloads), "--attestation", str(ATTESTATION / "bundle.sigstore.json")]
    content = payload.read_bytes()
    payload.write_bytes(content.replace(b'"ann"', b'"eve" '))
    call(*attested, code=2)
    payload.write_bytes(content)
    call(*attested)
    call(*gate, code=15)  # a real attestation, of something else
    listing = ["set", "show", *chosen, "--policy", str(policy)]
    assert "its attestation is not of what it says" in call(*listing).out
    # an evidence that this attestation is about there is not: the digest of this one is said to be that
    shutil.rmtree(place)
    put_set(folder.FolderStore(place), SET)
    signature = {"key": "sigstore", "value": BUNDLE}
    values = {**json.loads(content), "added": "2026-11-21T12:00:00Z", "signature": signature}
    entry = Evidence.model_validate_json(json.dumps({**values, "when": "2026-11-21T11:00:00Z"}))
    monkeypatch.setattr(Evidence, "payload", property(lambda _: ATTESTED))
    assert add_evidence(folder.FolderStore(place), SET, entry)
    for signers, expected in (({"ci": BEACON}, "ci"), ({}, "")):
        (stored,) = read_evidence(folder.FolderStore(place), SET, signers=signers, env=ENV)
        assert (stored.signer, stored.trouble) == (expected, "")
