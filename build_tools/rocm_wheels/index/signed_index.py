"""Take pages of an index only as its signed manifest states them, and no manifest older than one seen here.

The manifest of ``…/gfx94X-dcgpu/simple/nightly/`` is the first ``nightly.manifest.json`` in it (an index over
several stores has it there) or in a folder above; it names the family, which is the folder that it lies in,
and the channel that it is of, so that one of another place is none. It decides of pages that are there and of
those that are not: a project that was hidden would be looked for elsewhere.

Pages may change between two requests: where one does not fit, both are asked for once more.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import unquote, urlsplit, urlunsplit

from rocm_wheels.core import errors, shell
from rocm_wheels.index.folder import HTML_PAGE, JSON_PAGE
from rocm_wheels.index.manifest import MANIFEST_SUFFIX, Manifest, ManifestMemory, verify_manifest
from rocm_wheels.index.reader import ACCEPT_PAGES, IndexAnswer, IndexReader

_MOST_FOLDERS = 4  # above an index in which its manifest is looked for
_UNSIGNED_TIP = "name the index of a signed channel; without --released-by pages are taken as they are"
_OLD_TIP = "it may be a mirror or a cache that lags behind: try again later, then tell whoever runs the index"
_EXPIRED_TIP = "see that this machine's clock is right; whoever runs the index signs it anew by a refresh"
_CHANGED_TIP = "somebody changed it, or is changing it: try again, then tell whoever runs the index"


@dataclass(frozen=True)
class FoundManifest:
    """A manifest that holds, and where the index lies in the folder that it is of: ``simple/nightly``."""

    manifest: Manifest
    place: str


@dataclass(frozen=True)
class SignedIndexes:
    """Indexes whose pages must be signed by ``signers`` (public keys by name).

    ``exempt`` are URLs of indexes that need not be: of dependencies, and of ROCm's own packages.
    """

    signers: Mapping[str, str]
    env: Mapping[str, str]
    memory: ManifestMemory
    now: datetime
    exempt: frozenset[str] = frozenset()
    _found: dict[str, FoundManifest | None] = field(default_factory=dict, compare=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, compare=False)

    def check_page(self, reader: IndexReader, base: str, url: str, answer: IndexAnswer) -> IndexAnswer:
        """Return the answer of an index (``base``) for a page as it is signed. Raises HostError for another.

        An index that is not there needs no manifest.
        """
        if base in self.exempt:
            return answer
        located = self._find(reader, base)
        if located is None:
            if answer.status != 200 and url != base:
                return answer
            raise errors.HostError(
                f"{shell.hide_credentials(base)} has no signed manifest", tip=_UNSIGNED_TIP
            )
        if _states_answer(located, base, url, answer):
            return answer
        with self._lock:
            self._found.pop(base, None)
        located = self._find(reader, base)
        answer = reader.get(url, accept=ACCEPT_PAGES)
        if located is None or not _states_answer(located, base, url, answer):
            what = "is not the page that was signed" if answer.status == 200 else "is gone, and was signed"
            raise errors.HostError(f"{shell.hide_credentials(url)} {what}", tip=_CHANGED_TIP)
        return answer

    def _find(self, reader: IndexReader, base: str) -> FoundManifest | None:
        with self._lock:
            if base not in self._found:
                self._found[base] = self._search(reader, base)
            return self._found[base]

    def _search(self, reader: IndexReader, base: str) -> FoundManifest | None:
        """Return the manifest of an index, None where there is none. HostError for one that does not hold."""
        parts = urlsplit(base)
        words = [word for word in parts.path.split("/") if word]
        for depth in range(min(len(words), _MOST_FOLDERS + 1)):
            above = words[: len(words) - depth]
            path = "/".join(["", *above, words[-1] + MANIFEST_SUFFIX])
            url = urlunsplit(parts._replace(path=path, query="", fragment=""))
            answer = reader.get(url)
            if answer.status == 200:
                name = unquote(words[-1])
                manifest = self._verify(url, answer.content, unquote(above[-1]), name)
                return FoundManifest(manifest, unquote("/".join(words[len(above) :])))
        return None

    def _verify(self, url: str, content: bytes, family: str, name: str) -> Manifest:
        where = shell.hide_credentials(url)
        try:
            verified = verify_manifest(content, "it", self.signers, self.env)
            fault, tip = self.memory.find_fault(url, verified), _OLD_TIP
        except errors.DataError as cause:
            message = f"{where} cannot be believed: {cause.message}"
            raise errors.HostError(message, tip=cause.tip or _CHANGED_TIP) from None
        manifest = verified.manifest
        if (manifest.family, manifest.channel) != (family, name):
            fault, tip = f"it is of {manifest.channel} of {manifest.family}", _CHANGED_TIP
        if not fault:
            fault, tip = manifest.find_time_fault(self.now), _EXPIRED_TIP
        if fault:
            raise errors.HostError(f"{where} cannot be believed: {fault}", tip=tip)
        self.memory.remember(url, verified)
        return manifest


def _states_answer(located: FoundManifest, base: str, url: str, answer: IndexAnswer) -> bool:
    folder = "/".join(filter(None, [located.place, unquote(url.removeprefix(base)).strip("/")]))
    content = answer.content if answer.status == 200 else None
    pages = (f"{folder}/{HTML_PAGE}", f"{folder}/{JSON_PAGE}")
    return any(located.manifest.states_content(page, content) for page in pages)
