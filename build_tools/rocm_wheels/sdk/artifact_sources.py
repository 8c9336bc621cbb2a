"""Find the archives of a ROCm build: a run in TheRock's buckets, another bucket, a web page, a folder; and
choose among them.

Layout of buckets: ROCm/TheRock at 89553ce3746eda74ade42557470d25e37c91b6f0, ``workflow_outputs.py``:
``[<owner>-<repository>/]<run id>-<linux|windows>/<file>``. Every source is one folder; what lies deeper
(logs, manifests, packages) is not listed. Archives are named ``<name>_<component>_<family>.tar.zst`` or
``.tar.xz``; of one that is there in both forms the first is taken. They are chosen by GPU target, family and
patterns of file names.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import quote, unquote, urljoin, urlsplit

from rocm_wheels.core import errors, log, shell
from rocm_wheels.index import reader
from rocm_wheels.models import gfx, libraries
from rocm_wheels.sdk import artifacts
from rocm_wheels.stores import s3, store

_ARCHIVE = re.compile(r"(?P<stem>(?P<name>[^_/\\]+)_[^_/\\]+_(?P<family>[^_/\\]+))\.tar\.(?:zst|xz)")
_MOST_SHOWN = 12
_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9._-]+")
_LINK = re.compile(r"""<a\s[^>]*?href\s*=\s*(["'])(?P<target>.*?)\1""", re.IGNORECASE | re.DOTALL)
_QUOTED_NAME = re.compile(r'"name"\s*:\s*"([^"/\\]+)"')
_MISSING = (403, 404)  # a bucket that may not be listed answers 403 for what it has not
_SIGNED_URL_SECONDS = 12 * 3600  # a download of many files; temporary credentials may end it earlier
_RETRY_TIP = "run the same command again; what is finished is kept"

FileSizes = Mapping[str, "int | None"]
"""Names of files and their sizes in bytes, ``None`` where those are not known."""


@dataclass(frozen=True)
class ArtifactSource:
    """A folder of files somewhere, as it was listed.

    ``label`` is what people call it, without credentials; ``locate`` returns the URL that a file of it is
    read from: over HTTP, signed where there are credentials, or of this machine. A page need not list all
    that lies beside it; what a bucket or folder does not list is not there.
    """

    kind: Literal["bucket", "page", "folder"]
    label: str
    files: FileSizes
    locate: Callable[[str], str]

    def read_digest(self, name: str, reach: reader.IndexReader) -> str | None:
        """Return the sha256 (hex) that stands beside a file, ``None`` without one. Raises SdkError."""
        digest_name = f"{name}.sha256sum"
        if digest_name not in self.files and self.kind != "page":
            return None
        try:
            answer = reach.get(self.locate(digest_name))
        except reader.UnreachableError as cause:
            raise errors.SdkError(f"{digest_name} of {self.label} cannot be read", tip=_RETRY_TIP) from cause
        if answer.status in _MISSING and digest_name not in self.files:
            return None
        words = answer.content.decode("utf-8", "replace").split()
        if answer.status != 200 or not words or not re.fullmatch(r"[0-9a-fA-F]{64}", words[0]):
            raise errors.SdkError(
                f"{digest_name} of {self.label} holds no sha256 (the server answers {answer.status})",
                tip=_RETRY_TIP,
            )
        return words[0].lower()


def list_source(location: str, env: Mapping[str, str]) -> ArtifactSource:
    """List what is at ``s3://bucket/folder``, an HTTP(S) URL, a ``file:`` URL or a path.

    Raises UsageError for what is no such place, SdkError where it cannot be listed.
    """
    try:
        scheme, path = urlsplit(location).scheme, reader.path_of_url(location)
    except ValueError:  # of brackets, say
        scheme, path = "", None
    if scheme == "s3":
        return _list_bucket(location, env)
    if scheme in ("http", "https"):
        return _list_page(location)
    if path is None and ("://" in location or not location.strip()):
        raise errors.UsageError(
            f"--source {location!r} is no place", tip="s3://bucket/folder, https://…, or a folder"
        )
    folder = (path or Path(location).expanduser()).absolute()
    if not folder.is_dir():
        raise errors.SdkError(f"{folder} is not a folder", tip="name another one with --source")
    sizes = {path.name: path.stat().st_size for path in sorted(folder.iterdir()) if path.is_file()}
    return ArtifactSource("folder", str(folder), sizes, lambda name: (folder / name).as_uri())


def _list_bucket(location: str, env: Mapping[str, str]) -> ArtifactSource:
    bucket, prefix = store.split_bucket_url(location)
    if bucket.startswith("therock-") and not (env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION")):
        env = {**env, "AWS_REGION": libraries.load_artifact_table().region}
    client = s3.S3Client(env, needs_credentials=False)
    start = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
    url = f"s3://{bucket}/{start}".rstrip("/")
    try:
        items = list(client.list_items(bucket, start, Delimiter="/"))
    except errors.ReleaseError as cause:
        raise errors.SdkError(
            f"{url} cannot be listed",
            tip="without credentials (AWS_…) it is asked as everybody may; --source takes pages, too",
        ) from cause
    sizes = {item["Key"].removeprefix(start): item["Size"] for item in items if "Key" in item}
    sizes.pop("", None)  # as consoles make folders

    def sign_url(name: str) -> str:
        """Return a URL that can be read without credentials, for half a day."""
        request = {"ClientMethod": "get_object", "Params": {"Bucket": bucket, "Key": start + name}}
        return str(client.call("generate_presigned_url", **request, ExpiresIn=_SIGNED_URL_SECONDS))

    return ArtifactSource("bucket", url, sizes, sign_url)


def _list_page(url: str) -> ArtifactSource:
    """List what a page links to and lies beside it, and the names in its script (TheRock's tarballs)."""
    label = shell.hide_credentials(url)
    try:
        answer = reader.IndexReader().get(url)
    except reader.UnreachableError as cause:
        raise errors.SdkError(f"{label} cannot be reached", tip=_RETRY_TIP) from cause
    if answer.status != 200:
        raise errors.SdkError(
            f"{label}: the server answers {answer.status}",
            tip="--source wants the page that lists the files, such as …/index.html",
        )
    text = answer.content.decode("utf-8", "replace")
    beside = urlsplit(url)._replace(query="", fragment="").geturl()
    place = urlsplit(urljoin(url, "."))
    names = []
    for link in _LINK.finditer(text):
        try:
            parts = urlsplit(urljoin(url, html.unescape(link["target"])))
        except ValueError:
            continue  # no URL
        folder, _, name = parts.path.rpartition("/")
        if name and (parts.netloc, f"{folder}/") == (place.netloc, place.path):
            names.append(unquote(name))
    sizes = dict.fromkeys([*names, *_QUOTED_NAME.findall(text)])
    return ArtifactSource("page", label, sizes, lambda name: urljoin(beside, quote(name, safe="+~")))


def list_run(
    run_id: str, platform: str, repository: str, release_type: str, env: Mapping[str, str]
) -> ArtifactSource:
    """List the folder of a run of a workflow at GitHub: pull requests of forks are in another bucket.

    ``release_type`` is one of the table's, ``repository`` owner/name. Raises UsageError, and SdkError when
    none of its folders has files.
    """
    table = libraries.load_artifact_table()
    if not re.fullmatch(r"[A-Za-z0-9_-]+", run_id):
        raise errors.UsageError(f"--run-id {run_id!r} is no run's number", tip="take it from its URL")
    if not _REPOSITORY.fullmatch(repository):
        raise errors.UsageError(
            f"GITHUB_REPOSITORY={repository!r} is not owner/name", tip="such as ROCm/TheRock"
        )
    if release_type not in table.buckets:
        raise errors.UsageError(
            f"RELEASE_TYPE={release_type!r} has no bucket", tip=f"one of {', '.join(table.buckets)}"
        )
    run = f"{run_id}-{platform}"
    urls = [f"s3://{table.buckets[release_type]}/{run}"]
    if release_type == "ci":
        urls = urls if repository == table.repository else []
        urls.append(f"s3://{table.forks}/{repository.replace('/', '-')}/{run}")
    for url in urls:
        source = list_source(url, env)
        if source.files:
            return source
        log.log_note(f"nothing in {url}")
    raise errors.SdkError(
        f"run {run_id} of {repository} has no files in {' or '.join(urls)}",
        tip="is it of another repository (GITHUB_REPOSITORY), RELEASE_TYPE or --platform?"
        " artifacts of old runs are deleted",
    )


@dataclass(frozen=True)
class ArchiveName:
    """The name of an archive and its parts; ``stem`` names the folder that it is unpacked to."""

    file: str
    stem: str
    name: str
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
    for file in sorted(files):
        match = _ARCHIVE.fullmatch(file)
        if match and file.isprintable():
            by_stem[match["stem"]] = ArchiveName(file, **match.groupdict())  # .zst comes after .xz
    return sorted(by_stem.values(), key=lambda archive: archive.file)


def choose_archives(source: ArtifactSource, choice: ArtifactChoice) -> list[ArchiveName]:
    """Return the archives that are meant. Raises SdkError for what is asked for and not there."""
    archives = read_archive_names(source.files)
    if not archives:
        raise errors.SdkError(
            f"no artifact in {source.label}", tip="its files must be named like blas_lib_gfx942.tar.zst"
        )
    include, exclude = compile_patterns(choice.include), compile_patterns(choice.exclude)
    required = {gfx.strip_features(target) for target in choice.targets}
    families = {gfx.strip_features(archive.family) for archive in archives} - {artifacts.GENERIC}
    others = {gfx.strip_features(target) for target in choice.any_of}
    others |= {choice.family} if choice.family is not None else set()
    missing = artifacts.sort_targets(required - families)
    if others and not missing and not (required | others) & families:
        missing = (choice.family or ", ".join(choice.any_of),)
    if missing:
        available = ", ".join(artifacts.sort_targets(families)) or "no GPU in particular"
        raise errors.SdkError(
            f"no artifact for {', '.join(missing)} in {source.label}; there are some for {available}",
            tip="name targets that the build has with --gfx, or another run",
        )
    meant = {artifacts.GENERIC} | required | others if required or others else families | {artifacts.GENERIC}
    of_gpus = [archive for archive in archives if gfx.strip_features(archive.family) in meant]
    for text, pattern in zip(choice.include, include, strict=True):
        if text not in choice.optional and not any(pattern.search(archive.file) for archive in of_gpus):
            names = sorted({archive.name for archive in archives})
            there = f"{', '.join(names[:_MOST_SHOWN])}{' …' if names[_MOST_SHOWN:] else ''}"
            raise errors.SdkError(
                f"no artifact in {source.label} matches {text!r}; there are {there}",
                tip="correct the pattern, or leave it out; --dry-run lists what would be fetched",
            )
    chosen = [
        archive
        for archive in of_gpus
        if (not include or any(pattern.search(archive.file) for pattern in include))
        and not any(pattern.search(archive.file) for pattern in exclude)
    ]
    if not chosen:
        raise errors.SdkError(f"--exclude leaves no artifact of {source.label}", tip="exclude less")
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
