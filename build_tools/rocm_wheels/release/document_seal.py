"""Seal the documents that say what people get: those of sets and of channels.

The last line of such a document is its ``seal``, the sha256 of all the bytes before it. One that was cut, or
edited by hand, is refused by every command, for what was edited in it cannot be known. The seal holds
accidents, and nobody who means harm: whoever may write to a store can seal what he writes. That results and
channels state the digest of a set's document, and that a channel is signed, is against him.
"""

from __future__ import annotations

import hashlib
import json
import re

from pydantic import ValidationError

from rocm_wheels.core import errors, records

_SEAL = re.compile(rb',\n "seal": "([0-9a-f]{64})"\n}\n\Z')


def add_seal(body: bytes) -> bytes:
    """Return a document with its seal. ``body`` is its JSON up to the line that closes it."""
    return body + f',\n "seal": "{hashlib.sha256(body).hexdigest()}"\n}}\n'.encode()


def seal_record(record: records.Record) -> bytes:
    """Return the sealed document of a record: the same one is the same bytes."""
    text = json.dumps(record.model_dump(mode="json", by_alias=True), indent=1)
    return add_seal(text.removesuffix("\n}").encode())


def parse_sealed(
    content: bytes, model: type[records.RecordT], *, where: str, title: str, tip: str
) -> records.RecordT:
    """Return the record of a sealed document. ``title`` is what it should be: ``the document of a set``.

    Raises DataError with the tip for anything that is none, whose seal is of something else, or that
    ``seal_record`` would write in another way.
    """
    seal = _SEAL.search(content)
    if seal is None:
        raise errors.DataError(f"{where} is not {title}: it does not end in a seal", tip=tip)
    body = content[: seal.start()]
    if hashlib.sha256(body).hexdigest() != seal[1].decode():
        raise errors.DataError(f"{where} was edited: its seal is of something else", tip=tip)
    try:
        record = model.model_validate_json(body + b"\n}")
    except ValidationError as cause:
        faults = records.summarize_faults(cause, model)
        raise errors.DataError(f"{where} is not {title}: {faults}", tip=tip) from None
    if seal_record(record) != content:
        raise errors.DataError(f"{where} is not as it was written", tip=tip)
    return record
