"""How a file on a server is known again, and what stands for its URL."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from rocm_wheels.shell import HIDDEN, hide_credentials


@dataclass(frozen=True)
class Validators:
    """What a server says by which a file is known again: ETag and Last-Modified ("" for none), its size."""

    etag: str = ""
    modified: str = ""
    size: int | None = None

    @property
    def strong(self) -> str:
        """What ``If-Range`` may hold: a strong ETag, else the date (RFC 9110, 13.1.5); "" for neither."""
        return self.etag if self.etag and not self.etag.startswith("W/") else self.modified


def make_folder_name(text: str) -> str:
    """Return a name for a folder that stands for a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def fingerprint_of_url(url: str) -> str:
    """Return what stands for a URL where it must not be written down, whoever asked."""
    return make_folder_name(hide_credentials(url).replace(f"{HIDDEN}@", "", 1))
