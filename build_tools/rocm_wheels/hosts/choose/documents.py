"""What the variants of a version want: by the index's ``-variants.json``, today's or of 2025, or the wheels.

The document of an index is a cache of the wheels' own (PEP 825): labels that it does not list are read from
the wheels, as the PEP allows (uv leaves such wheels out). One that is damaged, or is not what the page says
that it is, is an error: what else is in the index would be taken in its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from rocm_wheels import parallel
from rocm_wheels.errors import DataError
from rocm_wheels.hosts.choose.pages import UnreachableIndexError, unreachable
from rocm_wheels.hosts.choose.sift import Offer
from rocm_wheels.index.reach import Reach, UnreachableError
from rocm_wheels.index.reading import Link, file_name, stated_digest
from rocm_wheels.shell import hide_credentials
from rocm_wheels.variants.document import VariantMetadata
from rocm_wheels.variants.legacy import read_any_format
from rocm_wheels.variants.metadata import FILE_NAME, merge, parse

_JOBS = 8


@dataclass(frozen=True)
class Document:
    """``metadata`` of all variants of a version; ``missing`` says of labels why nothing is known of them."""

    metadata: VariantMetadata
    missing: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def read_document(link: Link | None, offers: Sequence[Offer], reach: Reach) -> Document:
    """Read what is known of the variants among ``offers``; ``link`` is the index's document, if it has one.

    HostError for a document that cannot be had, or a wheel where there is none; DataError for a document that
    is not what it must be.
    """
    found, notes = (VariantMetadata((), {}), ()) if link is None else _of_index(link, reach)
    wanted: dict[str, Offer] = {}
    for offer in offers:
        if offer.name.label is not None and offer.name.label not in found.variants:
            wanted.setdefault(offer.name.label, offer)
    own = list(parallel.results_of(lambda offer: _of_wheel(offer, reach), wanted.values(), jobs=_JOBS))
    missing = {}
    for (label, offer), one in zip(wanted.items(), own, strict=True):
        if isinstance(one, UnreachableError) and link is None:
            raise unreachable(offer.link.url, one)  # the wheel for this machine may be the one
        if isinstance(one, (DataError, UnreachableError)):
            missing[label] = f"what it wants is not known: {one}"
        elif isinstance(one, Exception):
            raise one
        else:
            try:
                found = merge([("the document", found), (offer.file, one)]) if found.variants else one
            except DataError as cause:
                missing[label] = str(cause)
    if link is not None and wanted:
        labels = ", ".join(sorted(wanted))
        notes += (f"{file_name(link)} does not list {labels}: read from the wheels; uv leaves them out",)
    elif wanted:
        notes += ("the index has no -variants.json for these wheels: read from them; uv leaves them out",)
    return Document(found, missing, notes)


def unlisted(document: Document, files: Sequence[Offer]) -> list[str]:
    """Return the labels of a document that no file of the version has."""
    labels = {offer.name.label for offer in files}
    return sorted(document.metadata.variants.keys() - labels)


def _of_index(link: Link, reach: Reach) -> tuple[VariantMetadata, tuple[str, ...]]:
    name = file_name(link)
    try:
        answer = reach.get(link.url)
    except UnreachableError as cause:
        raise unreachable(link.url, cause) from None
    if answer.status != 200:
        raise UnreachableIndexError(
            f"{hide_credentials(link.url)} answers {answer.status}",
            tip="the page lists it: the index is damaged",
        )
    if stated_digest(link) not in (None, sha256(answer.content).hexdigest()):
        raise DataError(
            f"{name} is not what its page says (sha256 {link.sha256})",
            tip="it was being changed, or is damaged: try again, or `rocm-wheels index verify`",
        )
    return _parsed(answer.content, name)


def _parsed(content: bytes, name: str) -> tuple[VariantMetadata, tuple[str, ...]]:
    """Read a document of today's form, else one of 2025."""
    try:
        return parse(content, name=name), ()
    except DataError as fault:
        try:
            old = read_any_format(content, name=name)
        except DataError:
            raise fault from None
    used = {namespace for properties in old.variants.values() for namespace in properties}
    namespaces = (*old.namespaces, *sorted(used - set(old.namespaces)))
    said = f"{name} is of the format of 2025; installers of today do not read it"
    return VariantMetadata(namespaces, old.variants, old.providers), (said,)


def _of_wheel(offer: Offer, reach: Reach) -> VariantMetadata:
    _, text = reach.texts(offer.link.url, offer.file, offer.link.size)
    if text is None:
        raise DataError(f"{offer.file} has no {FILE_NAME}")
    return parse(text.encode(), name=f"{offer.file}: {FILE_NAME}")
