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
from rocm_wheels.hosts.choose.pages import UnreachableIndexError, make_unreachable_error
from rocm_wheels.hosts.choose.sift import OfferedWheel
from rocm_wheels.index.reach import IndexReader, UnreachableError
from rocm_wheels.index.reading import IndexLink, file_name_of_link, require_link_digest
from rocm_wheels.shell import hide_credentials
from rocm_wheels.variants.document import VariantMetadata
from rocm_wheels.variants.legacy import read_any_format
from rocm_wheels.variants.metadata import VARIANT_FILE_NAME, merge_documents, parse_document

_READ_JOBS = 8


@dataclass(frozen=True)
class VariantsDocument:
    """``metadata`` of all variants of a version; ``missing`` says of labels why nothing is known of them."""

    metadata: VariantMetadata
    missing: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def read_variants(
    link: IndexLink | None, offers: Sequence[OfferedWheel], reach: IndexReader
) -> VariantsDocument:
    """Read what is known of the variants among ``offers``; ``link`` is the index's document, if it has one.

    HostError for a document that cannot be had, or a wheel where there is none; DataError for a document that
    is not what it must be.
    """
    metadata, notes = (VariantMetadata((), {}), ()) if link is None else _read_index_document(link, reach)
    unlisted_offers: dict[str, OfferedWheel] = {}
    for offer in offers:
        if offer.name.label is not None and offer.name.label not in metadata.variants:
            unlisted_offers.setdefault(offer.name.label, offer)
    wheel_documents = list(
        parallel.try_in_parallel(
            lambda offer: _read_wheel_document(offer, reach), unlisted_offers.values(), jobs=_READ_JOBS
        )
    )
    missing = {}
    for (label, offer), wheel_document in zip(unlisted_offers.items(), wheel_documents, strict=True):
        if isinstance(wheel_document, UnreachableError) and link is None:
            raise make_unreachable_error(
                offer.link.url, wheel_document
            )  # the wheel for this machine may be the one
        if isinstance(wheel_document, (DataError, UnreachableError)):
            missing[label] = f"what it wants is not known: {wheel_document}"
        elif isinstance(wheel_document, Exception):
            raise wheel_document
        else:
            try:
                metadata = (
                    merge_documents([("the document", metadata), (offer.file, wheel_document)])
                    if metadata.variants
                    else wheel_document
                )
            except DataError as cause:
                missing[label] = str(cause)
    if link is not None and unlisted_offers:
        labels = ", ".join(sorted(unlisted_offers))
        notes += (
            f"{file_name_of_link(link)} does not list {labels}: read from the wheels; uv leaves them out",
        )
    elif unlisted_offers:
        notes += ("the index has no -variants.json for these wheels: read from them; uv leaves them out",)
    return VariantsDocument(metadata, missing, notes)


def list_missing_labels(document: VariantsDocument, files: Sequence[OfferedWheel]) -> list[str]:
    """Return the labels of a document that no file of the version has."""
    labels = {offer.name.label for offer in files}
    return sorted(document.metadata.variants.keys() - labels)


def _read_index_document(link: IndexLink, reach: IndexReader) -> tuple[VariantMetadata, tuple[str, ...]]:
    name = file_name_of_link(link)
    try:
        answer = reach.get(link.url)
    except UnreachableError as cause:
        raise make_unreachable_error(link.url, cause) from None
    if answer.status != 200:
        raise UnreachableIndexError(
            f"{hide_credentials(link.url)} answers {answer.status}",
            tip="the page lists it: the index is damaged",
        )
    if require_link_digest(link) not in (None, sha256(answer.content).hexdigest()):
        raise DataError(
            f"{name} is not what its page says (sha256 {link.sha256})",
            tip="it was being changed, or is damaged: try again, or `rocm-wheels index verify`",
        )
    return _parse_any_document(answer.content, name)


def _parse_any_document(content: bytes, name: str) -> tuple[VariantMetadata, tuple[str, ...]]:
    """Read a document of today's form, else one of 2025."""
    try:
        return parse_document(content, name=name), ()
    except DataError as fault:
        try:
            old = read_any_format(content, name=name)
        except DataError:
            raise fault from None
    used = {namespace for properties in old.variants.values() for namespace in properties}
    namespaces = (*old.namespaces, *sorted(used - set(old.namespaces)))
    note = f"{name} is of the format of 2025; installers of today do not read it"
    return VariantMetadata(namespaces, old.variants, old.providers), (note,)


def _read_wheel_document(offer: OfferedWheel, reach: IndexReader) -> VariantMetadata:
    _, text = reach.fetch_metadata_and_variant(offer.link.url, offer.file, offer.link.size)
    if text is None:
        raise DataError(f"{offer.file} has no {VARIANT_FILE_NAME}")
    return parse_document(text.encode(), name=f"{offer.file}: {VARIANT_FILE_NAME}")
