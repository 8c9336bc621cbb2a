"""Signatures by ``ssh-keygen -Y``, as git signs with SSH keys.

Nothing has to be installed for it, people have such keys already, an agent or a hardware key works as it
does for git, and what it writes (SSHSIG, PROTOCOL.sshsig of OpenSSH) names what was signed for: a signature
of evidence is none of a commit. Ed25519 keys only.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from rocm_wheels.errors import ReleaseError, UsageError
from rocm_wheels.process import capture
from rocm_wheels.release.evidence import Evidence, Signature

NAMESPACE = "evidence@rocm-wheels"
PUBLIC_KEY = re.compile(r"(?:ssh|sk-ssh)-ed25519(?:@openssh\.com)? [A-Za-z0-9+/]{43,}={0,2}")
_TIP = "make one with: ssh-keygen -t ed25519 -f KEY"
_SECONDS = 120.0  # somebody may have to touch a key


def signed(evidence: Evidence, key: Path, env: Mapping[str, str]) -> Evidence:
    """Return an evidence with a signature by the private key in a file (or by an agent that holds it).

    Raises UsageError when the file is no Ed25519 key or ssh-keygen cannot sign with it.
    """
    if not key.is_file():
        raise UsageError(f"there is no key {key}", tip=_TIP)
    program = _program(env)
    public = Path(f"{key}.pub")
    if public.is_file():
        said = public.read_text(encoding="utf-8", errors="replace")
    else:
        said = capture([program, "-y", "-f", key], env=_alone(env), check=UsageError, timeout=_SECONDS)
    if (match := PUBLIC_KEY.match(said)) is None:
        raise UsageError(f"{key} is not an Ed25519 key", tip=_TIP)
    argv: list[str | Path] = [program, "-Y", "sign", "-q", "-n", NAMESPACE, "-f", key]
    value = capture(
        argv,
        env=_alone(env),
        stdin=evidence.payload,
        check=UsageError,
        timeout=_SECONDS,
        what=f"signing with {key}",
    )
    return evidence.model_copy(update={"signature": Signature(key=match[0], value=value.strip() + "\n")})


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
