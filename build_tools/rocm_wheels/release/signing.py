"""Signatures by ``ssh-keygen -Y``, as git signs with SSH keys.

Nothing has to be installed for it, people have such keys already, an agent or a hardware key works as it
does for git, and what it writes (SSHSIG, PROTOCOL.sshsig of OpenSSH) names what was signed for: a signature
of evidence is none of a commit. Ed25519 keys only.
"""

from __future__ import annotations

import base64
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from rocm_wheels.errors import ReleaseError, UsageError
from rocm_wheels.process import capture
from rocm_wheels.release.evidence import Evidence, Signature

NAMESPACE = "evidence@rocm-wheels"
PUBLIC_KEY = re.compile(r"(?:ssh|sk-ssh)-ed25519(?:@openssh\.com)? [A-Za-z0-9+/]{43,}={0,2}")
_BLOB = re.compile(rb"\0\0\0.(sk-ssh-ed25519@openssh\.com|ssh-ed25519)\0\0\0 .{32}", re.DOTALL)
_TIP = "make one with: ssh-keygen -t ed25519 -f KEY"
_SECONDS = 120.0  # somebody may have to touch a key


def is_public_key(text: str) -> bool:
    """Tell whether text is a public Ed25519 key, whole: what is inside it says so, too (RFC 8709)."""
    if (match := PUBLIC_KEY.match(text)) is None:
        return False
    try:
        blob = base64.b64decode(match[0].split()[1], validate=True)
    except ValueError:
        return False
    inside = _BLOB.match(blob)
    return inside is not None and inside[1].decode() == match[0].split()[0]


def signed(evidence: Evidence, key: Path, env: Mapping[str, str]) -> Evidence:
    """Return an evidence with a signature by the private key in a file, or by an agent that holds it.

    Of a key that only an agent holds the file is the public one. Raises UsageError when the file is no
    Ed25519 key, or ssh-keygen cannot sign with it.
    """
    if not key.is_file():
        raise UsageError(f"there is no key {key}", tip=_TIP)
    program = _program(env)
    said = _public(key, program, env)
    if not is_public_key(said):
        raise UsageError(f"{key} is not an Ed25519 key", tip=_TIP)
    match = PUBLIC_KEY.match(said)
    assert match is not None
    argv: list[str | Path] = [program, "-Y", "sign", "-q", "-n", NAMESPACE, "-f", key]
    value = capture(
        argv,
        env=_alone(env),
        stdin=evidence.payload,
        check=UsageError,
        timeout=_SECONDS,
        what=f"signing with {key}",
        tip="a key with a passphrase must be held by an agent: ssh-add KEY",
    )
    made = evidence.model_copy(update={"signature": Signature(key=match[0], value=value.strip() + "\n")})
    if not is_valid(made, env):
        raise UsageError(f"what {key} signs is not of the public key beside it ({key}.pub)", tip=_TIP)
    return made


def _public(key: Path, program: str, env: Mapping[str, str]) -> str:
    """Return the public key of a file: what is in it, or beside it, or what the private key says."""
    own = key.read_text(encoding="utf-8", errors="replace")
    beside = Path(f"{key}.pub")
    if PUBLIC_KEY.match(own):
        return own
    if beside.is_file():
        return beside.read_text(encoding="utf-8", errors="replace")
    return capture(
        [program, "-y", "-f", key],
        env=_alone(env),
        check=UsageError,
        timeout=_SECONDS,
        what=f"reading {key}",
        tip="a key with a passphrase needs an agent that holds it, and its public key beside it: KEY.pub",
    )


def is_valid(evidence: Evidence, env: Mapping[str, str]) -> bool:
    """Tell whether the signature of an evidence is by the key that it names, and of what it says.

    Whose key that is, and whether it is trusted, is another question. Raises UsageError without ssh-keygen.
    """
    signature = evidence.signature
    if signature is None or not PUBLIC_KEY.fullmatch(signature.key):
        return False
    program = _program(env)
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-signature-") as folder:
        allowed, value = Path(folder, "allowed"), Path(folder, "signature")
        allowed.write_text(f'signer namespaces="{NAMESPACE}" {signature.key}\n', encoding="utf-8")
        value.write_text(signature.value, encoding="utf-8")
        argv: list[str | Path] = [
            program,
            "-Y",
            "verify",
            "-f",
            allowed,
            "-I",
            "signer",
            "-n",
            NAMESPACE,
            "-s",
            value,
        ]
        try:
            capture(argv, env=env, stdin=evidence.payload, check=_Refused, timeout=_SECONDS)
        except _Refused:
            return False
    return True


class _Refused(ReleaseError):
    """ssh-keygen does not take the signature."""


def _alone(env: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which nobody is asked for a passphrase: an agent holds such keys."""
    return {**env, "SSH_ASKPASS_REQUIRE": "force", "SSH_ASKPASS": "false", "DISPLAY": ""}


def _program(env: Mapping[str, str]) -> str:
    import shutil

    found = shutil.which("ssh-keygen", path=env.get("PATH"))
    if found is None:
        raise UsageError(
            "signatures are made and checked by ssh-keygen, which is not there",
            tip="install OpenSSH's client (Debian and Ubuntu: apt install openssh-client)",
        )
    return found


def same_key(one: str, other: str) -> bool:
    """Tell whether two public keys are one, whatever is written behind them."""
    return one.split()[:2] == other.split()[:2]
