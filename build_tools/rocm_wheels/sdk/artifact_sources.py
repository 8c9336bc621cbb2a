"""Find the archives of a ROCm build: a run in TheRock's buckets, another bucket, a web page, a folder; and
choose among them.

Layout of buckets: ROCm/TheRock at 89553ce3746eda74ade42557470d25e37c91b6f0, ``workflow_outputs.py``:
``[<owner>-<repository>/]<run id>-<linux|windows>/<file>``. Every source is one folder; what lies deeper
(logs, manifests, packages) is not listed. Archives are named ``<name>_<component>_<family>.tar.zst`` or
``.tar.xz``; of one that is there in both forms the first is taken. They are chosen by GPU target, family and
patterns of file names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Protocol
from urllib.parse import quote, unquote, urljoin, urlsplit

from rocm_wheels.core import errors, log, shell
from rocm_wheels.index import reader
from rocm_wheels.models import gfx, libraries
from rocm_wheels.sdk import artifacts
from rocm_wheels.stores import s3

_ARCHIVE = re.compile(
    r"(?P<stem>(?P<name>[^_/\\]+)_(?P<component>[^_/\\]+)_(?P<family>[^_/\\]+))\.tar\.(?:zst|xz)"
)
_MOST_SHOWN = 12


@dataclass(frozen=True)
class ArchiveName:
    """The name of an archive and its parts; ``stem`` names the folder that it is unpacked to."""

    file: str
    stem: str
    name: str
    component: str
    family: str


@dataclass(frozen=True)
class ArtifactChoice:
    """What is meant. Without ``targets`` and ``family``: of all GPUs.

    ``include`` and ``exclude`` are regular expressions that are searched for in file names. Every target, the
    family and every pattern of ``include`` must be found, but for those in ``optional``; of ``any_of`` one at
    least of the targets in it.
    """

    targets: tuple[str, ...] = ()
    family: str | None = None
    any_of: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()


def read_archive_names(files: Iterable[str]) -> list[ArchiveName]:
    """Return the archives among files, sorted by name; each artifact once."""
    by_stem: dict[str, ArchiveName] = {}
    for file in sorted(files, reverse=True):  # .zst comes before .xz
        match = _ARCHIVE.fullmatch(file)
        if match and file.isprintable() and match["stem"] not in by_stem:
            by_stem[match["stem"]] = ArchiveName(file, **match.groupdict())
    return sorted(by_stem.values(), key=lambda archive: archive.file)


def choose_archives(files: Iterable[str], choice: ArtifactChoice, *, where: str) -> list[ArchiveName]:
    """Return the archives that are meant. Raises SdkError for what is asked for and not there."""
    archives = read_archive_names(files)
    if not archives:
        raise errors.SdkError(
            f"no artifact in {where}", tip="its files must be named like blas_lib_gfx942.tar.zst"
        )
    include, exclude = compile_patterns(choice.include), compile_patterns(choice.exclude)
    of_gpus = _select_for_gpus(archives, choice, where)
    for text, pattern in zip(choice.include, include, strict=True):
        if text not in choice.optional and not any(pattern.search(archive.file) for archive in of_gpus):
            raise errors.SdkError(
                f"no artifact in {where} matches {text!r}{_suggest_names(archives)}",
                tip="correct the pattern, or leave it out; --dry-run lists what would be fetched",
            )
    chosen = [
        archive
        for archive in of_gpus
        if (not include or any(pattern.search(archive.file) for pattern in include))
        and not any(pattern.search(archive.file) for pattern in exclude)
    ]
    if not chosen:
        raise errors.SdkError(f"--exclude leaves no artifact of {where}", tip="exclude less")
    return chosen


def compile_patterns(patterns: Sequence[str]) -> list[re.Pattern[str]]:
    """Return regular expressions. Raises UsageError for what is none."""
    compiled = []
    for text in patterns:
        try:
            compiled.append(re.compile(text))
        except re.error as cause:
            raise errors.UsageError(
                f"{text!r} is not a regular expression: {cause}",
                tip=f"for the text itself: {re.escape(text)!r}",
            ) from None
    return compiled


def _select_for_gpus(
    archives: Sequence[ArchiveName], choice: ArtifactChoice, where: str
) -> list[ArchiveName]:
    required = {gfx.strip_features(target) for target in choice.targets}
    families = {gfx.strip_features(archive.family) for archive in archives} - {artifacts.GENERIC}
    others = {gfx.strip_features(target) for target in choice.any_of}
    if choice.family is not None:
        others.add(choice.family)
    if not required and not others:
        return list(archives)
    missing = [target for target in artifacts.sort_targets(required) if target not in families]
    if not missing and not required & families and not others & families:
        missing = [choice.family or ", ".join(choice.any_of)]
    if missing:
        available = ", ".join(artifacts.sort_targets(families)) or "no GPU in particular"
        raise errors.SdkError(
            f"no artifact for {', '.join(missing)} in {where}; there are some for {available}",
            tip="name targets that the build has with --gfx, or another run",
        )
    meant = {artifacts.GENERIC} | required | others
    return [archive for archive in archives if gfx.strip_features(archive.family) in meant]


def _suggest_names(archives: Sequence[ArchiveName]) -> str:
    names = sorted({archive.name for archive in archives})
    return f"; there are {', '.join(names[:_MOST_SHOWN])}{' …' if names[_MOST_SHOWN:] else ''}"


_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9._-]+")
_QUOTED_NAME = re.compile(r'"name"\s*:\s*"([^"/\\]+)"')
_MISSING = (403, 404)  # a bucket that may not be listed answers 403 for what it has not
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
            raise errors.SdkError(f"{self.folder} is not a folder", tip="name another one with --source")
        return {path.name: path.stat().st_size for path in sorted(self.folder.iterdir()) if path.is_file()}

    def file_url(self, name: str) -> str:
        """Return a ``file:`` URL."""
        return (self.folder.absolute() / name).as_uri()


@dataclass(frozen=True)
class BucketSource:
    """A folder in S3."""

    folder: s3.BucketFolder

    @property
    def label(self) -> str:
        """``s3://bucket/prefix``."""
        return self.folder.url

    def list_files(self) -> FileSizes:
        """Return its files. Raises SdkError."""
        try:
            return {file.path: file.size for file in self.folder.list_files() if "/" not in file.path}
        except errors.ReleaseError as cause:
            raise errors.SdkError(
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
    reach: reader.IndexReader

    @property
    def label(self) -> str:
        """The URL."""
        return shell.hide_credentials(self.url)

    def list_files(self) -> FileSizes:
        """Return what the page links to and lies beside it. Raises SdkError."""
        try:
            answer = self.reach.get(self.url)
        except reader.UnreachableError as cause:
            raise errors.SdkError(f"{self.label} cannot be reached", tip=_RETRY_TIP) from cause
        if answer.status != 200:
            raise errors.SdkError(
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
        table = libraries.load_artifact_table()
        if not re.fullmatch(r"[A-Za-z0-9_-]+", self.run_id):
            raise errors.UsageError(
                f"--run-id {self.run_id!r} is no run's number", tip="take it from its URL"
            )
        if not _REPOSITORY.fullmatch(self.repository):
            raise errors.UsageError(
                f"--run-github-repo {self.repository!r} is not owner/name", tip="such as ROCm/TheRock"
            )
        if self.release_type not in table.buckets:
            raise errors.UsageError(
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
            raise errors.UsageError(
                f"{shell.hide_credentials(location)} names no bucket",
                tip="for example: s3://therock-ci-artifacts/1-linux",
            )
        region = {"AWS_REGION": libraries.load_artifact_table().region}
        is_set = env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION")
        bucket_env = env if is_set or not bucket.startswith("therock-") else {**env, **region}
        return BucketSource(s3.BucketFolder(bucket, folder, bucket_env, sign=sign))
    if parts.scheme in ("http", "https"):
        return PageSource(location, reader.IndexReader())
    if parts.scheme == "file":
        from urllib.request import url2pathname

        return FolderSource(Path(url2pathname(parts.path)))
    if "://" in location or not location.strip():
        raise errors.UsageError(
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
    raise errors.SdkError(
        f"run {run.run_id} of {run.repository} has no files in {' or '.join(urls)}",
        tip="is it of another repository (--run-github-repo), release type (--release-type) or --platform?"
        " artifacts of old runs are deleted",
    )


def read_digest(source: ArtifactSource, name: str, files: FileSizes, reach: reader.IndexReader) -> str | None:
    """Return the sha256 (hex) that stands beside a file, ``None`` without one. Raises SdkError.

    A page need not list it: there it is asked for.
    """
    digest_name = f"{name}.sha256sum"
    if digest_name not in files and not isinstance(source, PageSource):
        return None
    try:
        answer = reach.get(source.file_url(digest_name))
    except reader.UnreachableError as cause:
        raise errors.SdkError(f"{digest_name} of {source.label} cannot be read", tip=_RETRY_TIP) from cause
    if answer.status in _MISSING and digest_name not in files:
        return None
    words = answer.content.decode("utf-8", "replace").split()
    if answer.status != 200 or not words or not re.fullmatch(r"[0-9a-fA-F]{64}", words[0]):
        raise errors.SdkError(
            f"{digest_name} of {source.label} holds no sha256 (the server answers {answer.status})",
            tip=_RETRY_TIP,
        )
    return words[0].lower()
