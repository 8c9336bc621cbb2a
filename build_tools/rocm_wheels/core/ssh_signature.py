"""Sign content with SSH keys, and check signatures: ``ssh-keygen -Y``, as git signs with them.

Nothing has to be installed for it, people have such keys already, an agent or a hardware key works as it
does for git, and what it writes (SSHSIG, PROTOCOL.sshsig of OpenSSH) names what was signed for, the
namespace: a signature of evidence is none of a commit. Ed25519 keys only.
"""

from __future__ import annotations

import base64
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rocm_wheels.core import errors, process

PUBLIC_KEY_PATTERN = re.compile(r"(?:ssh|sk-ssh)-ed25519(?:@openssh\.com)? [A-Za-z0-9+/]{43,}={0,2}")
_KEY_BLOB = re.compile(rb"\0\0\0.(sk-ssh-ed25519@openssh\.com|ssh-ed25519)\0\0\0 .{32}", re.DOTALL)
_ARMOR = re.compile(
    r"-----BEGIN SSH SIGNATURE-----\n([A-Za-z0-9+/=\n]{1,4096})-----END SSH SIGNATURE-----\n?"
)
_SIGNATURE_HEAD = b"SSHSIG\0\0\0\x01"
MAKE_KEY_TIP = (
    "make a key: ssh-keygen -t ed25519 -f KEY; one for results is also named by: "
    "rocm-wheels set key NAME --policy POLICY"
)
_SIGNING_SECONDS = 120.0  # somebody may have to touch a key


class SshSignature(NamedTuple):
    """A signature: the public key that it is by (``ssh-ed25519 AAAA…``), and its armored text."""

    public_key: str
    text: str


def is_public_key(text: str) -> bool:
    """Tell whether text is a public Ed25519 key, whole: what is inside it says so, too (RFC 8709)."""
    if (match := PUBLIC_KEY_PATTERN.match(text)) is None:
        return False
    kind, code = match[0].split()
    blob_match = _KEY_BLOB.match(_decode_base64(code))
    return blob_match is not None and blob_match[1].decode() == kind


def _decode_base64(text: str) -> bytes:
    """Return what a text stands for; nothing for what is no base64."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return b""


def find_signer(public_key: str, signers: Mapping[str, str]) -> str:
    """Return whose key it is, of ``signers`` (keys by name), whatever is written behind it; "": nobody's."""
    return next((name for name, key in signers.items() if key.split()[:2] == public_key.split()[:2]), "")


def parse_signature(text: str) -> SshSignature | None:
    """Return a signature as ssh-keygen writes it, with the key that it names; None: it is none."""
    match = _ARMOR.fullmatch(text)
    blob = _decode_base64(match[1].replace("\n", "")) if match is not None else b""
    begin = len(_SIGNATURE_HEAD) + 4
    key = blob[begin : begin + int.from_bytes(blob[begin - 4 : begin], "big")]
    if not blob.startswith(_SIGNATURE_HEAD) or (key_match := _KEY_BLOB.match(key)) is None:
        return None
    return SshSignature(f"{key_match[1].decode()} {base64.b64encode(key).decode()}", text)


def sign_content(content: bytes, key: Path, namespace: str, env: Mapping[str, str]) -> SshSignature:
    """Return a signature of content by the private key in a file, or by an agent that holds it.

    Of a key that only an agent holds the file is the public one. Raises UsageError when the file is no
    Ed25519 key, or ssh-keygen cannot sign with it.
    """
    public_key = read_public_key(key, env)
    text = _run_ssh_keygen(
        ["-Y", "sign", "-q", "-n", namespace, "-f", key],
        env,
        stdin=content,
        description=f"signing with {key}",
        tip="a key with a passphrase must be held by an agent: ssh-add KEY",
    )
    signature = SshSignature(public_key, text.strip() + "\n")
    if not is_signature_of(signature, content, namespace, env):
        raise errors.UsageError(
            f"what {key} signs is not of the public key beside it ({key}.pub)", tip=MAKE_KEY_TIP
        )
    return signature


def make_key(key: Path, comment: str, env: Mapping[str, str]) -> None:
    """Make a pair of Ed25519 keys without a passphrase: a file for the user alone, ``.pub`` beside it.

    Raises UsageError without ssh-keygen, and for a file that is there.
    """
    if key.exists() or key.with_name(f"{key.name}.pub").exists():
        raise errors.UsageError(f"{key} is there already", tip="a key is never replaced: name another file")
    key.parent.mkdir(parents=True, exist_ok=True)
    _run_ssh_keygen(["-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", key], env)


def read_public_key(key: Path, env: Mapping[str, str]) -> str:
    """Return the public key of a file (``ssh-ed25519 AAAA…``): what is in it, or beside it.

    Raises UsageError for a file that is no Ed25519 key.
    """
    if not key.is_file():
        raise errors.UsageError(f"there is no key {key}", tip=MAKE_KEY_TIP)
    text = key.read_text(encoding="utf-8", errors="replace")
    public_path = Path(f"{key}.pub")
    if not PUBLIC_KEY_PATTERN.match(text) and public_path.is_file():
        text = public_path.read_text(encoding="utf-8", errors="replace")
    elif not PUBLIC_KEY_PATTERN.match(text):
        text = _run_ssh_keygen(
            ["-y", "-f", key],
            env,
            description=f"reading {key}",
            tip="a key with a passphrase needs an agent that holds it, and its public key beside it: KEY.pub",
        )
    match = PUBLIC_KEY_PATTERN.match(text)
    if match is None or not is_public_key(text):
        raise errors.UsageError(f"{key} is not an Ed25519 key", tip=MAKE_KEY_TIP)
    return match[0]


def is_signature_of(signature: SshSignature, content: bytes, namespace: str, env: Mapping[str, str]) -> bool:
    """Tell whether a signature is by the key that it names, of this content, for this namespace.

    Whose key that is, and whether it is trusted, is another question. Raises UsageError without ssh-keygen.
    """
    if not PUBLIC_KEY_PATTERN.fullmatch(signature.public_key):
        return False
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-signature-") as folder:
        allowed, value = Path(folder, "allowed"), Path(folder, "signature")
        allowed.write_text(f'signer namespaces="{namespace}" {signature.public_key}\n', encoding="utf-8")
        value.write_text(signature.text, encoding="utf-8")
        words: list[str | Path] = [
            "-Y",
            "verify",
            "-f",
            allowed,
            "-I",
            "signer",
            "-n",
            namespace,
            "-s",
            value,
        ]
        try:
            _run_ssh_keygen(words, env, stdin=content, check=_SignatureRefusedError)
        except _SignatureRefusedError:
            return False
    return True


class _SignatureRefusedError(errors.DataError):
    """ssh-keygen does not take the signature."""


def _run_ssh_keygen(words: Sequence[str | Path], env: Mapping[str, str], **options: Any) -> str:
    """Return what ssh-keygen prints, run with options of ``capture_output``.

    Nobody is asked for a passphrase: an agent holds such keys.
    """
    program = shutil.which("ssh-keygen", path=env.get("PATH"))
    if program is None:
        raise errors.UsageError(
            "signatures are made and checked by ssh-keygen, which is not installed",
            tip="install OpenSSH's client (Debian and Ubuntu: apt install openssh-client)",
        )
    quiet = {**env, "SSH_ASKPASS_REQUIRE": "force", "SSH_ASKPASS": "false", "DISPLAY": ""}
    options = {"check": errors.UsageError, "timeout": _SIGNING_SECONDS, **options}
    return process.capture_output([program, *words], env=quiet, **options)
