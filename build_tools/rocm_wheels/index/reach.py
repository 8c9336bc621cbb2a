"""Getting at the files of an index: in a folder (``file:`` URLs) or on a server, with the same answers."""

from __future__ import annotations

import hashlib
import io
import os
import threading
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from rocm_wheels.errors import DataError, UsageError
from rocm_wheels.index.entries import parse_file_name
from rocm_wheels.index.pages import HTML_TYPE, JSON_TYPE
from rocm_wheels.index.reading import keep_credentials
from rocm_wheels.index.taking import read_metadata_and_variant
from rocm_wheels.index.views import HTML_PAGE, JSON_PAGE
from rocm_wheels.wheels.members import WheelArchive, hash_file

if TYPE_CHECKING:
    import requests

ACCEPT_PAGES = f"{JSON_TYPE}, {HTML_TYPE};q=0.2, text/html;q=0.01"  # as pip and uv ask
_LARGEST_READ_WHOLE = 64 << 10  # cheaper than asking for ranges
_LARGEST_TEXT = 64 << 20
_INDEX_URL_TIP = "name a folder that is there, or a URL that begins with https://, http:// or file://"
_TYPES_BY_SUFFIX = {".html": "text/html", ".json": JSON_TYPE}


@dataclass(frozen=True)
class IndexAnswer:
    """What came: the status, the content type, the content, and the URL that answered in the end."""

    status: int
    kind: str
    content: bytes
    url: str


class UnreachableError(Exception):
    """A server did not answer, also not when asked again."""


class IndexReader:
    """Asks servers and the disk; each thread has its own connections."""

    def __init__(self, *, retries: int = 4, timeout: float = 60) -> None:
        self._retries = retries
        self._timeout = timeout
        self._threads = threading.local()

    def get(self, url: str, *, accept: str = "*/*") -> IndexAnswer:
        """Return a file or page. Of a folder on the disk, its ``index.html``."""
        if (path := path_of_url(url)) is not None:
            page = path / (JSON_PAGE if accept == JSON_TYPE else HTML_PAGE) if path.is_dir() else path
            if not page.is_file():
                return IndexAnswer(404, "", b"", url)
            return IndexAnswer(200, _TYPES_BY_SUFFIX.get(page.suffix, ""), page.read_bytes(), url)
        response = self._send_request(
            lambda session: session.get(url, headers={"Accept": accept}, timeout=self._timeout)
        )
        kind = response.headers.get("Content-Type", "")
        return IndexAnswer(response.status_code, kind, response.content, keep_credentials(response.url, url))

    def fetch_size(self, url: str) -> tuple[int, int | None]:
        """Return the status and size of a file without reading it; of an error's page no size."""
        if (path := path_of_url(url)) is not None:
            return (200, path.stat().st_size) if path.is_file() else (404, None)
        response = self._send_request(
            lambda session: session.head(
                url, allow_redirects=True, timeout=self._timeout, headers={"Accept-Encoding": "identity"}
            )
        )
        size = response.headers.get("Content-Length", "") if response.ok else ""
        return response.status_code, int(size) if size.isdigit() else None

    def compute_digest(self, url: str) -> str:
        """Return the sha256 (hex) of a whole file; UnreachableError when it cannot be read."""
        if (path := path_of_url(url)) is not None:
            return hash_file(path)
        hasher = hashlib.sha256()

        def read(session: requests.Session) -> requests.Response:
            with session.get(url, stream=True, timeout=self._timeout) as answer:
                for piece in answer.iter_content(1 << 20):
                    hasher.update(piece)
            return answer

        if (status := self._send_request(read).status_code) != 200:
            raise UnreachableError(f"{status}")
        return hasher.hexdigest()

    def fetch_metadata_and_variant(
        self, url: str, name: str, size: int | None, *, variant: bool = True
    ) -> tuple[bytes, str | None]:
        """Return METADATA and, of a wheel with a label, ``variant.json``; on a server by asking for ranges.

        A small wheel (``size`` in bytes, None when unknown) is read whole. Without ``variant`` only METADATA
        is read, of wheels with a document of any form.

        DataError when the file is not a wheel of that name.
        """
        label = parse_file_name(name)[2] if variant else None
        if (path := path_of_url(url)) is not None:
            with WheelArchive.open(path) as archive:
                archive.require_sound()
                return read_metadata_and_variant(archive, path, label)
        from remotezip import RemoteZip, RemoteZipError  # type: ignore[import-untyped]
        from requests import RequestException

        try:
            if size is not None and size <= _LARGEST_READ_WHOLE:
                with zipfile.ZipFile(io.BytesIO(self.get(url).content)) as archive:
                    return _read_remote_texts(archive, label)
            with RemoteZip(url, session=self._get_session(), timeout=self._timeout) as archive:
                return _read_remote_texts(archive, label)
        except (RemoteZipError, RequestException, OSError) as cause:
            raise UnreachableError(str(cause)) from cause
        except (zipfile.BadZipFile, zlib.error, RuntimeError, EOFError) as cause:  # RuntimeError: encrypted
            raise DataError(f"{url} is not a readable wheel") from cause

    def _get_session(self) -> requests.Session:
        if not hasattr(self._threads, "session"):
            import requests
            from requests.adapters import HTTPAdapter
            from urllib3.util import Retry

            retry = Retry(
                self._retries,
                backoff_factor=0.5,
                status_forcelist=(429, 500, 502, 503, 504),
                raise_on_status=False,
            )
            session = requests.Session()
            bypass_proxies_locally(session)
            for scheme in ("http://", "https://"):
                session.mount(scheme, HTTPAdapter(max_retries=retry))
            self._threads.session = session
        thread_session: requests.Session = self._threads.session
        return thread_session

    def _send_request(self, send: Callable[[requests.Session], requests.Response]) -> requests.Response:
        from requests import RequestException

        try:
            return send(self._get_session())
        except RequestException as cause:
            raise UnreachableError(str(cause)) from cause


def bypass_proxies_locally(session: requests.Session) -> requests.Session:
    """Have a session go straight to servers of this machine: no proxy can reach those."""
    session.proxies.update({f"http://{host}": "" for host in ("127.0.0.1", "localhost", "::1")})
    return session


def _read_remote_texts(archive: Any, label: str | None) -> tuple[bytes, str | None]:
    names = [name for name in archive.namelist() if name.split("/", 1)[0].endswith(".dist-info")]

    def read(file: str) -> bytes:
        paths = [name for name in names if name.partition("/")[2] == file]
        if len(paths) != 1:
            raise DataError(f"{len(paths)} files {file} in .dist-info: a wheel has exactly one")
        if archive.getinfo(paths[0]).file_size > _LARGEST_TEXT:
            raise DataError(f"{paths[0]} is too large for a text file")
        content: bytes = archive.read(paths[0])
        return content

    content = read("METADATA")
    if label is None:
        return content, None
    from rocm_wheels.variants.metadata import VARIANT_FILE_NAME, parse_wheel_document

    return content, parse_wheel_document(
        read(VARIANT_FILE_NAME), name=VARIANT_FILE_NAME, label=label
    ).to_json().decode()


def path_of_url(url: str) -> Path | None:
    """Return the path of a ``file:`` URL, None for another."""
    parts = urlsplit(url)
    if parts.scheme != "file":
        return None
    from urllib.request import url2pathname

    return Path(url2pathname(parts.path))


def resolve_index_url(index: str) -> str:
    """Return the URL of an index that is given as a URL or a folder; UsageError for anything else."""
    scheme = urlsplit(index).scheme
    if scheme in ("http", "https", "file"):
        return index if index.endswith("/") else index + "/"
    path = Path(os.path.abspath(index))  # noqa: PTH100 - a link stays one: pages link to what is beside it
    if not path.is_dir():
        raise UsageError(f"{index} is neither a folder nor the URL of an index", tip=_INDEX_URL_TIP)
    return path.as_uri() + "/"
