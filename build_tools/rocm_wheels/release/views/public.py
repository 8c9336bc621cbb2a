"""Where a store is seen from outside: ``v2/public.json``, which the people who serve it say once."""

from __future__ import annotations

import json
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, ValidationError

from rocm_wheels.errors import DataError, ReleaseError, UsageError
from rocm_wheels.records import Record
from rocm_wheels.release.layout import StoreLayout
from rocm_wheels.stores.store import RUN_AGAIN_TIP, ChangedInStoreError, NotInStoreError, Store

_PUBLIC_ATTEMPTS = 5


class PublicLocation(Record):
    """``url`` is the URL that the store itself has outside ("": nobody said), ending in ``/``.

    ``other_indexes`` are where wheels find what is not in their set (ROCm's own packages, a mirror of PyPI).
    """

    schema_version: Literal[1] = Field(default=1, alias="schema")
    url: str = ""
    other_indexes: tuple[str, ...] = ()

    def address_of(self, store: Store, path: str) -> str:
        """Return where a file or folder of the store is seen from outside, as far as anybody said."""
        return f"{self.url}{path}" if self.url else store.url_of(path)


def read_public(store: Store, layout: StoreLayout) -> PublicLocation:
    """Return what is known of it. DataError for a damaged document."""
    return _read_public(store, layout)[0]


def update_public(
    store: Store, layout: StoreLayout, url: str | None, other_indexes: tuple[str, ...] | None
) -> bool:
    """Write down what is given (``None``: as it was), and tell whether that is new."""
    for _ in range(_PUBLIC_ATTEMPTS):
        before, tag = _read_public(store, layout)
        changed: dict[str, object] = {}
        if url is not None:
            changed["url"] = check_public_url(url) if url else ""
        if other_indexes is not None:
            changed["other_indexes"] = tuple(
                check_public_url(address) for address in other_indexes if address
            )
        updated = before.model_copy(update=changed)
        if updated == before:
            return False
        content = (json.dumps(updated.model_dump(mode="json", by_alias=True), indent=1) + "\n").encode()
        try:
            store.replace(_public_path(layout), content, tag)
        except ChangedInStoreError:
            continue
        return True
    raise ReleaseError(f"{_public_path(layout)} is changed by others all the time", tip=RUN_AGAIN_TIP)


def check_public_url(url: str) -> str:
    """Return the URL of a folder, with ``/`` at its end. UsageError for one that installers cannot use."""
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname or parts.scheme == "file")
    except ValueError:
        has_host = False
    has_odd_character = any(
        character.isspace() or ord(character) < 32 or character in "\"'<>\\{}" for character in url
    )
    if has_odd_character or not has_host or parts.scheme not in {"https", "http", "file"}:
        raise UsageError(f"{url!r} is no URL of a folder", tip="for example: https://wheels.example.org/")
    if parts.query or parts.fragment or "@" in parts.netloc:
        raise UsageError(
            f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}… has more than a place in it",
            tip="everybody reads it: no user, password, ? or #",
        )
    return url if url.endswith("/") else f"{url}/"


def _public_path(layout: StoreLayout) -> str:
    return f"{layout.release}/{layout.public}"


def _read_public(store: Store, layout: StoreLayout) -> tuple[PublicLocation, str | None]:
    path = _public_path(layout)
    try:
        stored = store.read(path)
    except NotInStoreError:
        return PublicLocation(), None
    try:
        return PublicLocation.model_validate_json(stored.content), stored.tag
    except ValidationError as cause:
        where = store.url_of(path)
        tip = "put it back from a copy of the store, or delete it and say --public-url again"
        raise DataError(f"{where} does not say where the store is seen from", tip=tip) from cause
