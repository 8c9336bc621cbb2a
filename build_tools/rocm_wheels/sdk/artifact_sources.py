"""Where the archives of a ROCm build lie: a run in TheRock's buckets, another bucket, a web page, a folder.

Layout of buckets: ROCm/TheRock at 89553ce3746eda74ade42557470d25e37c91b6f0, ``workflow_outputs.py``:
``[<owner>-<repository>/]<run id>-<linux|windows>/<file>``. Every source is one folder; what lies deeper
(logs, manifests, packages) is not listed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Protocol
from urllib.parse import quote, unquote, urljoin, urlsplit

from rocm_wheels import ending, log
from rocm_wheels.errors import ReleaseError, SdkError, UsageError
from rocm_wheels.index.reach import IndexAnswer, IndexReader, UnreachableError
from rocm_wheels.model.rocm_artifacts import load_artifact_table
from rocm_wheels.shell import hide_credentials
from rocm_wheels.stores.bucket_folder import BucketFolder

_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9._-]+")
_QUOTED_NAME = re.compile(r'"name"\s*:\s*"([^"/\\]+)"')
_MISSING = (403, 404)  # a bucket that may not be listed answers 403 for what it has not
_PAUSES = (0.5, 2.0)  # seconds
_RETRY_TIP = "run the same command again; what is finished is kept"


FileSizes = Mapping[str, "int | None"]
"""Names of files and their sizes in bytes, ``None`` where those are not known."""


class ArtifactSource(Protocol):
    """A folder of files somewhere."""

    @property
    def label(self) -> str:
        """What people call it; without credentials."""

    def list_files(self) -> FileSizes:
        """Return its files. Raises SdkError."""

    def file_url(self, name: str) -> str:
        """Return the URL that a file of it is read from."""


@dataclass(frozen=True)
class FolderSource:
    """A folder of this machine."""

    folder: Path

    @property
    def label(self) -> str:
        """Its path."""
        return str(self.folder)

    def list_files(self) -> FileSizes:
        """Return its files. Raises SdkError."""
        if not self.folder.is_dir():
            raise SdkError(f"{self.folder} is not a folder", tip="name another one with --source")
        return {path.name: path.stat().st_size for path in sorted(self.folder.iterdir()) if path.is_file()}

    def file_url(self, name: str) -> str:
        """Return a ``file:`` URL."""
        return (self.folder.absolute() / name).as_uri()


@dataclass(frozen=True)
class BucketSource:
    """A folder in S3."""

    folder: BucketFolder

    @property
    def label(self) -> str:
        """``s3://bucket/prefix``."""
        return self.folder.url

    def list_files(self) -> FileSizes:
        """Return its files. Raises SdkError."""
        try:
            return {file.path: file.size for file in self.folder.list_files() if "/" not in file.path}
        except ReleaseError as cause:
            raise SdkError(
                f"{self.label} cannot be listed",
                tip="--no-sign-request asks as everybody may; --source names a folder, or a page over HTTPS",
            ) from cause

    def file_url(self, name: str) -> str:
        """Return a URL over HTTP, signed where there are credentials."""
        return self.folder.download_url(name)


@dataclass(frozen=True)
class PageSource:
    """A page whose links lead to files beside it, or a folder of a server without such a page."""

    url: str
    reach: IndexReader

    @property
    def label(self) -> str:
        """The URL."""
        return hide_credentials(self.url)

    def list_files(self) -> FileSizes:
        """Return what the page links to and lies beside it. Raises SdkError."""
        try:
            answer = self.reach.get(self.url)
        except UnreachableError as cause:
            raise SdkError(f"{self.label} cannot be reached", tip=_RETRY_TIP) from cause
        if answer.status != 200:
            raise SdkError(
                f"{self.label}: the server answers {answer.status}",
                tip="--source wants the page that lists the files, such as …/index.html",
            )
        text = answer.content.decode("utf-8", "replace")
        names = [*self._read_linked_names(text), *_QUOTED_NAME.findall(text)]  # tarballs: listed by a script
        return dict.fromkeys(names)

    def file_url(self, name: str) -> str:
        """Return the URL of a file beside the page."""
        parts = urlsplit(self.url)
        return urljoin(parts._replace(query="", fragment="").geturl(), quote(name, safe="+~"))

    def _read_linked_names(self, text: str) -> Iterator[str]:
        links = _Links()
        links.feed(text)
        page = urlsplit(urljoin(self.url, "."))
        for link in links.targets:
            parts = urlsplit(urljoin(self.url, link))
            folder, _, name = parts.path.rpartition("/")
            if name and (parts.netloc, f"{folder}/") == (page.netloc, page.path):
                yield unquote(name)


class _Links(HTMLParser):
    """The targets of the links of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the target of a link."""
        if tag == "a":
            self.targets += [value for name, value in attrs if name == "href" and value]


@dataclass(frozen=True)
class WorkflowRun:
    """A run of a workflow at GitHub: ``release_type`` is one of the table's, ``repository`` owner/name."""

    run_id: str
    platform: str
    repository: str
    release_type: str = "ci"

    def list_urls(self) -> list[str]:
        """Return the URLs of its folder, the likely one first: pull requests of forks are elsewhere.

        Raises UsageError.
        """
        table = load_artifact_table()
        if not re.fullmatch(r"[A-Za-z0-9_-]+", self.run_id):
            raise UsageError(f"--run-id {self.run_id!r} is no run's number", tip="take it from its URL")
        if not _REPOSITORY.fullmatch(self.repository):
            raise UsageError(
                f"--run-github-repo {self.repository!r} is not owner/name", tip="such as ROCm/TheRock"
            )
        if self.release_type not in table.buckets:
            raise UsageError(
                f"--release-type {self.release_type!r} has no bucket",
                tip=f"one of {', '.join(table.buckets)}",
            )
        run = f"{self.run_id}-{self.platform}"
        fork = f"s3://{table.forks}/{self.repository.replace('/', '-')}/{run}"
        likely = f"s3://{table.buckets[self.release_type]}/{run}"
        if self.release_type != "ci":
            return [likely]
        return [likely, fork] if self.repository == table.repository else [fork]


def open_artifact_source(location: str, env: Mapping[str, str], *, sign: bool = True) -> ArtifactSource:
    """Return the source at ``s3://bucket/folder``, an HTTP(S) URL, a ``file:`` URL or a path.

    Nothing is asked of it yet. Raises UsageError.
    """
    parts = urlsplit(location)
    if parts.scheme == "s3":
        bucket, _, folder = location.partition("://")[2].partition("/")
        if not bucket or "@" in bucket:
            raise UsageError(
                f"{hide_credentials(location)} names no bucket",
                tip="for example: s3://therock-ci-artifacts/1-linux",
            )
        region = {"AWS_REGION": load_artifact_table().region}
        is_set = env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION")
        bucket_env = env if is_set or not bucket.startswith("therock-") else {**env, **region}
        return BucketSource(BucketFolder(bucket, folder, bucket_env, sign=sign))
    if parts.scheme in ("http", "https"):
        return PageSource(location, IndexReader())
    if parts.scheme == "file":
        from urllib.request import url2pathname

        return FolderSource(Path(url2pathname(parts.path)))
    if "://" in location or not location.strip():
        raise UsageError(
            f"--source {location!r} is no place", tip="s3://bucket/folder, https://…, or a folder"
        )
    return FolderSource(Path(location).expanduser())


def find_run_files(
    run: WorkflowRun, env: Mapping[str, str], *, sign: bool
) -> tuple[ArtifactSource, FileSizes]:
    """Return the folder of a run that has files, and those files. Raises SdkError when none has."""
    urls = run.list_urls()
    for url in urls:
        source = open_artifact_source(url, env, sign=sign)
        if files := source.list_files():
            return source, files
        log.log_note(f"nothing in {url}")
    raise SdkError(
        f"run {run.run_id} of {run.repository} has no files in {' or '.join(urls)}",
        tip="is it of another repository (--run-github-repo), release type (--release-type) or --platform?"
        " artifacts of old runs are deleted",
    )


def _read_small_file(source: ArtifactSource, name: str, reach: IndexReader) -> IndexAnswer:
    """Return a small file, also when the line broke in the middle of it once or twice. Raises SdkError."""
    for pause in (*_PAUSES, None):
        try:
            return reach.get(source.file_url(name))
        except UnreachableError as cause:
            if pause is None:
                raise SdkError(f"{name} of {source.label} cannot be read", tip=_RETRY_TIP) from cause
            ending.wait_or_stop(pause)
    raise AssertionError("the last attempt returns or raises")


def read_digest(source: ArtifactSource, name: str, files: FileSizes, reach: IndexReader) -> str | None:
    """Return the sha256 (hex) that stands beside a file, ``None`` without one. Raises SdkError.

    A page need not list it: there it is asked for.
    """
    digest_name = f"{name}.sha256sum"
    if digest_name not in files and not isinstance(source, PageSource):
        return None
    answer = _read_small_file(source, digest_name, reach)
    if answer.status in _MISSING and digest_name not in files:
        return None
    words = answer.content.decode("utf-8", "replace").split()
    if answer.status != 200 or not words or not re.fullmatch(r"[0-9a-fA-F]{64}", words[0]):
        raise SdkError(
            f"{digest_name} of {source.label} holds no sha256 (the server answers {answer.status})",
            tip=_RETRY_TIP,
        )
    return words[0].lower()
