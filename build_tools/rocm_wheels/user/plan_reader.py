"""Read an index for one plan: each page once, and METADATA also of servers that send no parts of files."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name
from packaging.version import Version

from rocm_wheels.core import log
from rocm_wheels.index import reader
from rocm_wheels.user import fetch
from rocm_wheels.user.lock import LockedPackage
from rocm_wheels.wheels import dist_info

if TYPE_CHECKING:
    import requests

_LARGEST_KEPT_ANSWER = 16 << 20


class PlanReader(reader.IndexReader):
    """Reads an index for one plan: each page once, so that all of the plan is about the same state of it.

    METADATA of a wheel is read also from a server that sends no parts of files, such as ``python -m
    http.server``: then the file is fetched, which is wanted soon. ``fetched`` has these by URL. ``variables``
    name proxies and certificates, where this process has none.
    """

    def __init__(self, cache: Path, variables: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self._cache, self._variables = cache, variables or {}
        self._answers: dict[tuple[str, str, str], reader.IndexAnswer] = {}
        self._locks: dict[tuple[str, str, str], threading.Lock] = {}
        self.fetched: dict[str, LockedPackage] = {}

    def get(self, url: str, *, accept: str = "*/*", etag: str = "") -> reader.IndexAnswer:
        """Return a file or page, as it was when it was first read."""
        key = url, accept, etag
        with self._locks.setdefault(key, threading.Lock()):
            if key not in self._answers:
                answer = super().get(url, accept=accept, etag=etag)
                if len(answer.content) > _LARGEST_KEPT_ANSWER:
                    return answer
                self._answers[key] = answer
            return self._answers[key]

    def fetch_metadata_and_variant(
        self, url: str, name: str, size: int | None, *, variant: bool = True
    ) -> tuple[bytes, str | None]:
        """Return METADATA and ``variant.json``, as ``IndexReader`` does."""
        if url not in self.fetched:
            try:
                return super().fetch_metadata_and_variant(url, name, size, variant=variant)
            except reader.UnusableAnswerError:
                log.log_note(f"the server sends no parts of files: {name} is fetched to see what it requires")
            fields = dist_info.split_wheel_name(name)
            plain = replace(fields, label="").file_name
            package = LockedPackage(
                canonicalize_name(fields.distribution), Version(fields.version), plain, url
            )
            (self.fetched[url],) = fetch.fetch_packages([package], self._cache, variables=self._variables)
        return super().fetch_metadata_and_variant(self.fetched[url].url, name, None, variant=variant)

    def _get_session(self) -> requests.Session:
        return fetch.follow_variables(super()._get_session(), self._variables)
