"""Read any index as installers do: HTML (PEP 503) and JSON (PEP 691), from a folder or a server.

A folder is read through ``file:`` URLs, with the same answers as those of a server.
"""

from __future__ import annotations

import io
import json
import os
import re
import threading
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urldefrag, urljoin, urlsplit, urlunsplit

from packaging.utils import canonicalize_name

from rocm_wheels.core import download, environment_numbers, errors, files, log, retry, shell
from rocm_wheels.index import pages
from rocm_wheels.index.folder import HTML_PAGE, JSON_PAGE, METADATA_SUFFIX, parse_file_name
from rocm_wheels.wheels import dist_info

if TYPE_CHECKING:
    import requests

_AnswerT = TypeVar("_AnswerT")
_METADATA_ATTRIBUTES = ("data-core-metadata", "data-dist-info-metadata")
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_OTHER_ATTRIBUTES = ("data-requires-python", "data-yanked", "data-gpg-sig", "data-provenance")
_LINK_ATTRIBUTES = (*_METADATA_ATTRIBUTES, *_OTHER_ATTRIBUTES)


@dataclass(frozen=True)
class IndexLink:
    """A link of a page: ``href`` as it is written, ``url`` where it leads, without its fragment.

    ``sha256`` is None when there is none; ``metadata`` the digest of the METADATA that is offered, "" for one
    without a digest, None for none; ``size`` None where the page does not say; ``keys`` what else is said;
    ``provenance`` the URL of its provenance object, ``uploaded`` when it was added (ISO 8601): "" where the
    page does not say.
    """

    name: str
    href: str
    url: str
    sha256: str | None = None
    metadata: str | None = None
    requires_python: str = ""
    yanked: str | None = None
    size: int | None = None
    keys: frozenset[str] = frozenset()
    provenance: str = ""
    uploaded: str = ""


class _AnchorParser(HTMLParser):
    """Collects the attributes of each link, with its text as ``""``, and what tells the kind of page."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: list[dict[str, str]] = []
        self.metas: dict[str, str] = {}
        self.base = ""
        self.tags: set[str] = set()
        self.wants_password = False
        self._open = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.tags.add(tag)
        self.wants_password |= tag == "input" and values.get("type", "").lower() == "password"
        if tag == "a":
            self.anchors.append({**values, "": ""})
            self._open = True
        if tag == "meta":
            self.metas[values.get("name", "")] = values.get("content", "")
        if tag == "base" and "href" in values:
            self.base = self.base or values["href"]  # the first one, as for pip and uv

    def handle_endtag(self, tag: str) -> None:
        if tag == "a":
            self._open = False

    def handle_data(self, data: str) -> None:
        if self._open:
            self.anchors[-1][""] += data


class _NoPageError(ValueError):
    """What is no page, in words for people."""


def parse_page(content: bytes, kind: str, url: str, *, project: str = "") -> tuple[IndexLink, ...]:
    """Return the links of a page of an index, given its content type and the URL that answered.

    ``project``: whose page it has to be, "" for one that lists projects or anything else. A page without
    links is right. UnreadablePageError when it is none, as pip and uv judge by the type, and PEP 629 by the
    version; and when it is HTML for people, such as a page to log in, in which installers find no files.
    """
    parse = _PARSERS.get(kind.partition(";")[0].strip().lower())
    try:
        if parse is None:
            raise _NoPageError(f"it comes as {kind or 'no type'}, and not as {' or '.join(_PARSERS)}")
        return parse(content, url, project)
    except (ValueError, KeyError, TypeError, AttributeError, AssertionError, RecursionError) as cause:
        reason = str(cause) if isinstance(cause, _NoPageError) else "it is damaged, or of another form"
        raise UnreadablePageError(
            f"{shell.hide_credentials(url)} is not an index page that can be read: {reason}",
            tip=_UNREADABLE_TIP,
        ) from None


def _parse_html(content: bytes, url: str, project: str) -> tuple[IndexLink, ...]:
    if b"\0" in content:  # UTF-16 without its mark passes for UTF-8
        raise _NoPageError("it is not UTF-8")
    parser = _AnchorParser()
    parser.feed(content.decode("utf-8"))
    _require_version(parser.metas.get("pypi:repository-version", "1.0"))
    base = urljoin(url, parser.base)
    links = tuple(_parse_anchor(anchor, base) for anchor in parser.anchors if anchor.get("href"))
    if fault := _find_foreign_html(parser, links, url, project):
        raise _NoPageError(fault)
    return links


def _find_foreign_html(parser: _AnchorParser, links: tuple[IndexLink, ...], url: str, project: str) -> str:
    """Say why HTML is for people and no page of an index; "" where a link leads to a file.

    Folders that a server lists have links to what is above and below them.
    """
    if not parser.tags:
        return "it is empty" if not links else ""
    if any(file_name_of_link(link).endswith(_FILE_SUFFIXES) for link in links):
        return ""
    if parser.wants_password or (not links and parser.tags & {"form", "input", "script"}):
        return "it is for people, such as one to log in"
    if not project:
        return ""
    page = urlsplit(url)
    folder = page.path.removesuffix(HTML_PAGE).rstrip("/")
    if canonicalize_name(unquote(folder).rpartition("/")[2]) != project:
        return f"the request for {project} was led there"
    for link in links:
        parts = urlsplit(link.url)
        if parts.netloc != page.netloc or not (
            parts.path.startswith(f"{folder}/") or f"{folder}/".startswith(parts.path)
        ):
            return f"no link leads to a file, as {link.href!r}"
    return ""


def _parse_anchor(attributes: Mapping[str, str], base: str) -> IndexLink:
    href = attributes["href"]
    url, fragment = urldefrag(urljoin(base, href))
    url = keep_credentials(url, base)
    metadata = next((attributes[key] for key in _METADATA_ATTRIBUTES if key in attributes), None)
    return IndexLink(
        name=attributes[""].strip(),
        href=href,
        url=url,
        sha256=_find_sha256(fragment),
        metadata=None if metadata in (None, "false") else _find_sha256(metadata or "") or "",
        requires_python=attributes.get("data-requires-python", ""),
        yanked=attributes.get("data-yanked"),
        provenance=attributes.get("data-provenance", ""),
        keys=frozenset(key for key in attributes if key in _LINK_ATTRIBUTES),
    )


def _find_sha256(text: str) -> str | None:
    """Return the digest of ``sha256=…``, which other words may stand beside (``&egg=torch``)."""
    return next((word[7:] for word in text.split("&") if word.startswith("sha256=")), None)


def _parse_json(content: bytes, url: str, project: str) -> tuple[IndexLink, ...]:
    top = json.loads(content)
    _require_version(str(top["meta"]["api-version"]))
    if "projects" in top and not project:
        names = [entry["name"] for entry in top["projects"]]
        if not all(isinstance(name, str) for name in names):
            raise TypeError("a name is text")
        return tuple(IndexLink(name, f"{name}/", urljoin(url, f"{name}/")) for name in names)
    if not isinstance(top["files"], list):
        raise TypeError("files are a list")
    return tuple(_parse_json_file(file, url) for file in top["files"])


def _parse_json_file(file: Mapping[str, Any], base: str) -> IndexLink:
    url = keep_credentials(urldefrag(urljoin(base, file["url"]))[0], base)
    metadata = file.get("core-metadata", file.get("dist-info-metadata"))
    digest = metadata.get("sha256", "") if isinstance(metadata, dict) else ("" if metadata else None)
    yanked = file.get("yanked", False)
    link = IndexLink(
        name=file["filename"],
        href=file["url"],
        url=url,
        sha256=file["hashes"].get("sha256"),
        metadata=digest,
        requires_python=file.get("requires-python") or "",
        yanked=None if yanked is False else yanked if isinstance(yanked, str) else "",
        size=file.get("size"),
        provenance=file.get("provenance") or "",
        uploaded=file.get("upload-time") or "",
        keys=frozenset(file),
    )
    texts = link.name, link.href, link.requires_python, link.provenance, link.uploaded
    # an error for what is no text, or none that a page can hold
    "".join((*texts, link.sha256 or "", link.metadata or "", link.yanked or "")).encode()
    if not isinstance(link.size, int | None) or isinstance(link.size, bool):
        raise TypeError("a size is a number")
    return link


def _require_version(version: str) -> None:
    if version.partition(".")[0] != "1":
        raise _NoPageError(f"it is of version {version} of the API; installers of today read 1.x")


_PARSERS: Mapping[str, Callable[[bytes, str, str], tuple[IndexLink, ...]]] = {
    pages.JSON_TYPE: _parse_json,
    pages.HTML_TYPE: _parse_html,
    "text/html": _parse_html,
}


def require_link_digest(link: IndexLink) -> str | None:
    """Return the sha256 of a link in lower case, None when it has none; DataError for what is no digest.

    Folders are called by digests: one that a page made up would lead out of them.
    """
    if link.sha256 is None:
        return None
    if not _SHA256.fullmatch(link.sha256):
        raise errors.DataError(
            f"{file_name_of_link(link)}: its page says sha256={link.sha256}, which is none",
            tip="`rocm-wheels index verify` tells what else is wrong with the index",
        )
    return link.sha256.lower()


def keep_credentials(url: str, origin: str) -> str:
    """Return a URL with user and password of the one that led to it, if it is of the same server.

    As pip does: whole addresses on the pages of a server that wants them would otherwise not be let in.
    """
    target_parts, origin_parts = urlsplit(url), urlsplit(origin)
    user, separator, server = origin_parts.netloc.rpartition("@")
    if not separator or (target_parts.scheme, target_parts.netloc) != (origin_parts.scheme, server):
        return url
    return urlunsplit(target_parts._replace(netloc=f"{user}@{server}"))


def file_name_of_link(link: IndexLink) -> str:
    """Return the name of the file that a link leads to: what installers go by."""
    return unquote(urlsplit(link.url).path).rpartition("/")[2]


ACCEPT_PAGES = f"{pages.JSON_TYPE}, {pages.HTML_TYPE};q=0.2, text/html;q=0.01"  # as pip and uv ask
_LARGEST_READ_WHOLE = 64 << 10  # cheaper than asking for ranges
_LARGEST_TEXT = 64 << 20
_INDEX_URL_TIP = "name a folder that is there, or a URL that begins with https://, http:// or file://"
_TYPES_BY_SUFFIX = {".html": "text/html", ".htm": "text/html", ".json": pages.JSON_TYPE}
_PASSWORD_PLACES = "in ~/.netrc, or in the URL of an option"
_UNREADABLE_TIP = f"is it the address of an index, and does it want a password? {_PASSWORD_PLACES}"
_RANGES_TIP = (
    "an index with METADATA beside its wheels (PEP 658), as `rocm-wheels index build` makes one,"
    " needs no ranges"
)
_GONE_STATUSES = (404, 410)
_NO_RANGES_STATUSES = (416, 501)
_FILE_SUFFIXES = (
    *(".whl", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".zip", ".egg", ".exe"),
    *(METADATA_SUFFIX, "-variants.json"),
)


@dataclass(frozen=True)
class IndexAnswer:
    """What came: the status, the content type, the content, and the URL that answered in the end.

    ``etag`` is what a server, or the disk, calls these bytes: "" where it does not say.
    """

    status: int
    kind: str
    content: bytes
    url: str
    etag: str = ""


class UnreachableError(errors.HostError):
    """A server does not answer, also not when asked again, or refuses: no reason to take another index."""


class UnusableAnswerError(UnreachableError):
    """A server answers, and not as it must: without ranges, or with what has no end."""


class UnreadablePageError(errors.DataError):
    """What a server or a folder gives out for a page of an index is none."""


def make_status_error(url: str, status: int) -> UnreachableError:
    """Return the error for an answer that is neither what was asked for nor that it is not there."""
    tip = "the server fails: try again later" if status >= 500 else "is it the URL of an index?"
    if status in (401, 403, 407):
        tip = f"does it want a password? {_PASSWORD_PLACES}"
    return UnreachableError(f"{shell.hide_credentials(url)} answers {status}", tip=tip)


def _make_unreachable_error(url: str, cause: Exception) -> UnreachableError:
    reason = download.describe_failure(cause)
    if isinstance(cause, ValueError):  # of requests, urllib3 or urllib, each with words of its own
        reason = "it is, or leads to, no address of a server"
    elif type(cause).__name__ == "TooManyRedirects":
        reason = "it redirects without end"
    return UnreachableError(
        f"{shell.hide_credentials(url)} cannot be reached: {reason}",
        tip="is the address right, and the network there?",
    )


# takes a reader, the URL of an index, that of a page, and what came; returns what is to be read
PageCheck = Callable[["IndexReader", str, str, IndexAnswer], IndexAnswer]


class IndexReader:
    """Asks servers and the disk; each thread has its own connections.

    ``page_check`` decides of each page of an index before it is read, of one that is not there, too.
    ``retries``, ``timeout`` (seconds without a byte): those of ROCM_WHEELS_RETRIES and ROCM_WHEELS_TIMEOUT;
    4 and 60 where a command has neither.
    """

    def __init__(self, *, retries: int | None = None, timeout: float | None = None) -> None:
        read_number = environment_numbers.read_process_number
        self._policy = retry.RetryPolicy(
            read_number("ROCM_WHEELS_RETRIES", 4) if retries is None else retries, first_wait=0.5
        )
        self._timeout = read_number("ROCM_WHEELS_TIMEOUT", 60) if timeout is None else timeout
        self._threads = threading.local()
        self.page_check: PageCheck | None = None

    def get(self, url: str, *, accept: str = "*/*", etag: str = "") -> IndexAnswer:
        """Return a file or page. Of a folder on the disk, its ``index.html``.

        With the ``etag`` of what was read before the status is 304, without content, while it is the same.
        """
        if (path := path_of_url(url)) is not None:
            page = path / (JSON_PAGE if accept == pages.JSON_TYPE else HTML_PAGE) if path.is_dir() else path
            if not page.is_file():
                return IndexAnswer(404, "", b"", url)
            status = page.stat()
            tag = f"{status.st_mtime_ns:x}-{status.st_size:x}-{status.st_ino:x}"
            if tag == etag:
                return IndexAnswer(304, "", b"", url, tag)
            return IndexAnswer(200, _TYPES_BY_SUFFIX.get(page.suffix, ""), page.read_bytes(), url, tag)
        headers = {"Accept": accept, **({"If-None-Match": etag} if etag else {})}
        response = self._send_request(
            url, lambda session: session.get(url, headers=headers, timeout=self._timeout)
        )
        kind, tag = response.headers.get("Content-Type", ""), response.headers.get("ETag", "")
        origin = keep_credentials(response.url, url)
        return IndexAnswer(response.status_code, kind, response.content, origin, tag)

    def read_page(
        self, base: str, url: str, *, project: str = "", absent: Collection[int] = _GONE_STATUSES
    ) -> tuple[IndexLink, ...] | None:
        """Return the links of a page of the index at ``base``, of either form; None for an ``absent`` one.

        ``project``: see ``parse_page``. These answers are told apart here for all who read indexes: a page,
        which may be empty; none; UnreachableError; UnreadablePageError. Also raises what the check does.
        """
        answer = self.get(url, accept=ACCEPT_PAGES)
        if self.page_check is not None:
            answer = self.page_check(self, base, url, answer)
        if answer.status in absent:
            return None
        if answer.status != 200:
            raise make_status_error(url, answer.status)
        return parse_page(answer.content, answer.kind, answer.url, project=project)

    def fetch_size(self, url: str) -> tuple[int, int | None]:
        """Return the status and size of a file without reading it; of an error's page no size."""
        if (path := path_of_url(url)) is not None:
            return (200, path.stat().st_size) if path.is_file() else (404, None)
        response = self._send_request(
            url,
            lambda session: session.head(
                url, allow_redirects=True, timeout=self._timeout, headers={"Accept-Encoding": "identity"}
            ),
        )
        size = response.headers.get("Content-Length", "") if response.ok else ""
        return response.status_code, int(size) if size.isdigit() else None

    def compute_digest(self, url: str) -> str:
        """Return the sha256 (hex) of a whole file; UnreachableError when it cannot be read."""
        if (path := path_of_url(url)) is not None:
            return files.hash_file(path)

        def read(session: requests.Session) -> tuple[int, str]:
            with session.get(url, stream=True, timeout=self._timeout) as answer:
                if answer.status_code != 200:
                    return answer.status_code, ""
                return 200, files.hash_pieces(answer.iter_content(1 << 20))

        status, digest = self._send_request(url, read)
        if status != 200:
            raise make_status_error(url, status)
        return digest

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
            from rocm_wheels.index import wheel_file  # slow to import
            from rocm_wheels.wheels.archive import WheelArchive

            with WheelArchive.open(path) as archive:
                return wheel_file.read_metadata_and_variant(archive, path, label)
        with self.open_archive(url, name, size) as opened:

            def read(member: str) -> bytes:
                if opened.getinfo(member).file_size > _LARGEST_TEXT:
                    raise errors.DataError(f"{name}: {member} is too large for a text file")
                return opened.read(member)

            return read_wheel_texts(opened.namelist(), read, name, label)[:2]

    @contextmanager
    def open_archive(self, url: str, name: str, size: int | None) -> Iterator[zipfile.ZipFile]:
        """Open a wheel: on the disk, or on a server by asking for the parts that are read.

        A small one (``size`` in bytes, None when unknown) is read whole. UnreachableError when it cannot be
        had (UnusableAnswerError from a server without ranges), DataError when it is no archive, in the block
        too.
        """
        from remotezip import RangeNotSupported, RemoteZip, RemoteZipError  # type: ignore[import-untyped]
        from requests import RequestException
        from urllib3.exceptions import HTTPError

        try:
            if (path := path_of_url(url)) is not None:
                opened = zipfile.ZipFile(path)
            elif size is not None and size <= _LARGEST_READ_WHOLE:
                opened = zipfile.ZipFile(io.BytesIO(self.get(url).content))
            else:
                try:
                    opened = RemoteZip(url, session=self._get_session(), timeout=self._timeout)
                except ValueError as cause:  # of an address that is none
                    raise _make_unreachable_error(url, cause) from None
            with opened as archive:
                yield archive
        except (RemoteZipError, RequestException, HTTPError, OSError) as cause:
            origin = cause.__context__ if isinstance(cause, RemoteZipError) else None  # which it hides
            response = getattr(origin, "response", None)
            refused = response is not None and response.status_code in _NO_RANGES_STATUSES
            if isinstance(cause, RangeNotSupported) or refused:
                reason = f"the server gives out no parts of files, so that {name} cannot be looked into"
                raise UnusableAnswerError(
                    f"{shell.hide_credentials(url)} cannot be used: {reason}", tip=_RANGES_TIP
                ) from None
            raise _make_unreachable_error(url, origin if isinstance(origin, Exception) else cause) from None
        except (zipfile.BadZipFile, zlib.error, RuntimeError, EOFError) as cause:  # RuntimeError: encrypted
            raise errors.DataError(f"{url} is not a readable wheel") from cause

    def _get_session(self) -> requests.Session:
        if not hasattr(self._threads, "session"):
            from rocm_wheels.index import http_session

            self._threads.session = bypass_proxies_locally(http_session.RetryingSession(self._policy))
        thread_session: requests.Session = self._threads.session
        return thread_session

    def _send_request(self, url: str, send: Callable[[requests.Session], _AnswerT]) -> _AnswerT:
        from requests import RequestException
        from requests.exceptions import ContentDecodingError

        from rocm_wheels.index import http_session

        try:
            return send(self._get_session())
        except ContentDecodingError:
            raise UnreadablePageError(
                f"{shell.hide_credentials(url)} cannot be read: its content is not encoded as it says"
            ) from None
        except http_session.EndlessAnswerError as cause:
            raise UnusableAnswerError(f"{shell.hide_credentials(url)} cannot be used: {cause}") from None
        except (RequestException, ValueError, OSError) as cause:  # a plain one: no file of certificates
            raise _make_unreachable_error(url, cause) from None


def bypass_proxies_locally(session: requests.Session) -> requests.Session:
    """Have a session go straight to servers of this machine: no proxy can reach those."""
    session.proxies.update({f"http://{host}": "" for host in ("127.0.0.1", "localhost", "::1")})
    return session


def read_wheel_texts(
    names: Collection[str], read: Callable[[str], bytes], name: str, label: str | None
) -> tuple[bytes, str | None, tuple[str, ...]]:
    """Return METADATA of a wheel, with a label its ``variant.json``, and what is to be noted of that.

    ``names`` are those of its files, of which ``read`` gives the content; ``name`` is what it is called.
    DataError when one is missing or wrong.
    """
    folders = dist_info.list_dist_info_folders(names)
    if len(folders) != 1:
        raise errors.DataError(f"{name}: {len(folders)} .dist-info folders: a wheel has exactly one")
    where = f"{folders[0]}/METADATA"
    if where not in names:
        raise errors.DataError(f"{name}: {where} is missing")
    metadata = read(where)
    if label is None:
        return metadata, None, ()
    from rocm_wheels.variants.document import VARIANT_FILE_NAME, read_wheel_document

    where = f"{folders[0]}/{VARIANT_FILE_NAME}"
    if where not in names:
        raise errors.DataError(f"{name}: {where} is missing, the file name has the label {label}")
    document, notes = read_wheel_document(read(where), name=f"{name}: {where}", label=label)
    return metadata, document.to_json().decode(), tuple(notes)


def download_link(link: IndexLink, folder: Path, *, error: type[errors.RocmWheelsError]) -> Path:
    """Return the file of a link, whole and with the digest that its page states; one on the disk stays there.

    ``folder`` takes what has to be downloaded. ``error`` is the class of what cannot be had.
    """
    if (path := path_of_url(link.url)) is not None:
        return path
    import requests

    name = file_name_of_link(link)
    log.log_note(f"fetching {name} from {download.host_of_url(link.url)}")
    target = download.DownloadTarget(name, link.url, require_link_digest(link), link.size)
    with requests.Session() as session:
        bypass_proxies_locally(session)
        parts, policy = folder / f"{name}.parts", download.DownloadPolicy()
        fetched = download.FileDownload(target, parts, session, lambda *_: None, policy, error=error).run()
    return fetched.path.rename(folder / name)


def path_of_url(url: str) -> Path | None:
    """Return the path of a ``file:`` URL, None for another."""
    parts = urlsplit(url)
    if parts.scheme != "file":
        return None
    from urllib.request import url2pathname

    return Path(url2pathname(parts.path))


def resolve_index_url(index: str) -> str:
    """Return the URL of an index that is given as a URL or a folder; UsageError for anything else."""
    try:
        scheme = urlsplit(index).scheme
    except ValueError:
        raise errors.UsageError(f"{index} is not the URL of an index", tip=_INDEX_URL_TIP) from None
    if scheme in ("http", "https", "file"):
        return index if index.endswith("/") else index + "/"
    path = Path(os.path.abspath(index))  # noqa: PTH100 - a link stays one: pages link to what is beside it
    if not path.is_dir():
        raise errors.UsageError(f"{index} is neither a folder nor the URL of an index", tip=_INDEX_URL_TIP)
    return path.as_uri() + "/"
