"""Check Sigstore bundles, as GitHub's artifact attestations are: which workflow attested which content.

The library ``sigstore`` (an extra) checks the certificate, its entry in the public log and the signature
over an in-toto statement, by the roots that came with it or that it last fetched: nothing is asked over the
network. It is imported here alone, and where a bundle is to be checked alone.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated

from rocm_wheels.core import errors, records

if TYPE_CHECKING:
    from sigstore.verify import Verifier

_WebAddress = Annotated[
    str, records.require_pattern(r"https://[!-~]+", "an address that begins with https://")
]


class WorkflowIdentity(records.Record):
    """A workflow as Sigstore's certificates name it, and who vouches for that.

    ``identity``: ``https://github.com/OWNER/REPO/.github/workflows/FILE.yml@refs/heads/main``, of a reusable
    workflow the one that is called; ``issuer``: ``https://token.actions.githubusercontent.com``.
    """

    identity: _WebAddress
    issuer: _WebAddress

    def __str__(self) -> str:
        """Return it for people."""
        return self.identity


def find_attester(bundle_text: str, content: bytes, identities: Mapping[str, WorkflowIdentity]) -> str:
    """Return which of ``identities`` (by name) attested this content; "": none of them.

    Raises DataError for what is no valid attestation of this content, whoever made it.
    """
    from sigstore.errors import Error
    from sigstore.models import Bundle
    from sigstore.verify.policy import Identity, UnsafeNoOp

    try:
        bundle = Bundle.from_json(bundle_text)
        # whose it is, is asked below: an attestation by somebody unknown is no wrong one
        kind, statement = _load_verifier().verify_dsse(bundle, UnsafeNoOp())
    except (Error, ValueError) as cause:
        raise errors.DataError(f"its attestation is not valid: {cause}") from cause
    if kind != "application/vnd.in-toto+json" or not _names_digest(statement, content):
        raise errors.DataError("its attestation is not of what it says")
    for name, identity in identities.items():
        try:
            Identity(identity=identity.identity, issuer=identity.issuer).verify(bundle.signing_certificate)
        except Error:
            continue
        return name
    return ""


def _names_digest(statement: bytes, content: bytes) -> bool:
    """Tell whether content is a subject of an in-toto statement."""
    subjects = json.loads(statement).get("subject", [])
    digest = hashlib.sha256(content).hexdigest()
    return any(subject.get("digest", {}).get("sha256") == digest for subject in subjects)


@lru_cache(maxsize=1)
def _load_verifier() -> Verifier:
    from sigstore.verify import Verifier

    logging.getLogger("sigstore").setLevel(logging.ERROR)  # it warns that it stays offline
    return Verifier.production(offline=True)
