"""Where a store is seen from outside: ``v2/public.json``, which the people who serve it say once."""

from __future__ import annotations

import json
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, ValidationError

from rocm_wheels.errors import DataError, ReleaseError, UsageError
from rocm_wheels.records import Record
from rocm_wheels.release.layout import Layout
from rocm_wheels.stores.store import AGAIN, Changed, Missing, Store

_ATTEMPTS = 5


class Public(Record):
    """``url`` is the URL that the store itself has outside ("": nobody said), ending in ``/``.

    ``other_indexes`` are where wheels find what is not in their set (ROCm's own packages, a mirror of PyPI).
    """

    schema_version: Literal[1] = Field(default=1, alias="schema")
    url: str = ""
    other_indexes: tuple[str, ...] = ()

    def address(self, store: Store, path: str) -> str:
        """Return where a file or folder of the store is seen from outside, as far as anybody said."""
        return f"{self.url}{path}" if self.url else store.url_of(path)


def read_public(store: Store, layout: Layout) -> Public:
    """Return what is known of it. DataError for a damaged document."""
    return _read(store, layout)[0]


def set_public(store: Store, layout: Layout, url: str | None, other_indexes: tuple[str, ...] | None) -> bool:
    """Write down what is given (``None``: as it was), and tell whether that is new."""
    for _ in range(_ATTEMPTS):
        before, tag = _read(store, layout)
        changed: dict[str, object] = {}
        if url is not None:
            changed["url"] = checked_url(url) if url else ""
        if other_indexes is not None:
            changed["other_indexes"] = tuple(checked_url(one) for one in other_indexes if one)
        made = before.model_copy(update=changed)
        if made == before:
            return False
        content = (json.dumps(made.model_dump(mode="json", by_alias=True), indent=1) + "\n").encode()
        try:
            store.replace(_path(layout), content, tag)
        except Changed:
            continue
        return True
    raise ReleaseError(f"{_path(layout)} is changed by others all the time", tip=AGAIN)


def checked_url(url: str) -> str:
    """Return the URL of a folder, with ``/`` at its end. UsageError for one that installers cannot use."""
    try:
        found = urlsplit(url)
        named = bool(found.hostname or found.scheme == "file")
    except ValueError:
        named = False
    odd = any(one.isspace() or ord(one) < 32 or one in "\"'<>\\{}" for one in url)
    if odd or not named or found.scheme not in {"https", "http", "file"}:
        raise UsageError(f"{url!r} is no URL of a folder", tip="for example: https://wheels.example.org/")
    if found.query or found.fragment or "@" in found.netloc:
        raise UsageError(
            f"{found.scheme}://{found.netloc.rpartition('@')[2]}… has more than a place in it",
            tip="everybody reads it: no user, password, ? or #",
        )
    return url if url.endswith("/") else f"{url}/"


def _path(layout: Layout) -> str:
    return f"{layout.release}/{layout.public}"


def _read(store: Store, layout: Layout) -> tuple[Public, str | None]:
    path = _path(layout)
    try:
        found = store.read(path)
    except Missing:
        return Public(), None
    try:
        return Public.model_validate_json(found.content), found.tag
    except ValidationError as cause:
        where = store.url_of(path)
        tip = "put it back from a copy of the store, or delete it and say --public-url again"
        raise DataError(f"{where} does not say where the store is seen from", tip=tip) from cause
