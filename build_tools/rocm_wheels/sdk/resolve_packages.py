"""Resolve requirements to the files that they are installed from, and install from those and no others.

uv resolves, and says of each file name and SHA-256 (a ``pylock.toml``, PEP 751). What is installed so is
noted beside it, with the digests. A source distribution is built when it is installed, with packages that
count as much as it does: those are resolved, and held to their digests, too.
"""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import re
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from rocm_wheels.core import errors, files, shell, toml_reader
from rocm_wheels.models import lock, project_names
from rocm_wheels.sdk import interpreters

PACKAGES_NOTE = "rocm-wheels-packages.json"  # in an environment or layer: what it was installed from
_RESOLUTION_FILE = "pylock.rocm-wheels.toml"  # uv wants such a name
# the oldest systems that wheels are built on, as uv names them
_UV_PLATFORMS: Mapping[project_names.Platform, str] = {
    "linux": "x86_64-manylinux_2_28",
    "windows": "x86_64-pc-windows-msvc",
}
_MISMATCH = re.compile(
    r"Hash mismatch for `(?P<package>[^`]+)`[\s|]*Expected:(?P<expected>[\s\S]*?)"
    r"Computed:[\s|]*(?:sha256:)?(?P<computed>[0-9a-f]{64})"
)
_PYPROJECT = re.compile(r"(\./)?[^/]+/pyproject\.toml")
_SDIST_TIP = "the same again later, or from a folder: --find-links"
_DAMAGE_ERRORS = (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, lzma.LZMAError)
_DEFAULT_BACKEND = ("setuptools>=40.8.0",)  # PEP 518, where a source distribution has no pyproject.toml


@dataclass(frozen=True)
class PackageTarget:
    """Whom packages are for: ``python`` itself, or another ``version`` (3.12) and ``platform`` than its."""

    python: Path
    version: str = ""
    platform: project_names.Platform | None = None

    @property
    def options(self) -> list[str]:
        """The options of ``uv pip compile``."""
        words = ["--python", str(self.python)]
        words += ["--python-version", self.version] if self.version else []
        return words + (["--python-platform", _UV_PLATFORMS[self.platform]] if self.platform else [])


@dataclass(frozen=True)
class Resolution:
    """What requirements come to, by name: ``packages``; ``direct``, what has no file and no digest (a commit
    of a repository, a folder), as requirements; ``sdist_urls``, where source distributions are.
    """

    packages: Mapping[str, lock.LockedPackage]
    direct: Mapping[str, str] = field(default_factory=dict)
    sdist_urls: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class InstalledPackage:
    """A package, and the file that it was installed from: name and SHA-256 (hex).

    Both are "" for one without a file; ``source`` says then what it is of, and of a source distribution where
    that was.
    """

    name: str
    version: str
    file: str = ""
    sha256: str = ""
    source: str = ""

    def fits(self, package: lock.LockedPackage) -> bool:
        """Tell whether it was installed from one of the files of a lock."""
        return self.version == package.version and package.files.get(self.file) == self.sha256


def resolve_packages(
    requirements: Sequence[str | Path],
    target: PackageTarget,
    source: interpreters.PackageSource,
    env: Mapping[str, str],
    *,
    cwd: Path,
    preferred: Mapping[str, str] | None = None,
    overrides: Sequence[str] = (),
    options: Sequence[str] = (),
    on_line: Callable[[str], None] | None = None,
) -> Resolution:
    """Resolve requirements and requirements files.

    ``preferred``: versions by name that are taken where they fit; ``overrides``: requirements that replace
    those of whoever requires them. Raises SdkError.
    """
    lines = [requirement for requirement in requirements if isinstance(requirement, str)]
    names = ", ".join(item if isinstance(item, str) else item.name for item in requirements)
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-") as folder:
        output = Path(folder, _RESOLUTION_FILE)
        if preferred:  # as uv takes those of an earlier answer
            entries = [f'[[packages]]\nname = "{n}"\nversion = "{v}"\n' for n, v in preferred.items()]
            head = 'lock-version = "1.0"\ncreated-by = "rocm-wheels"\n'
            output.write_text("\n".join([head, *entries]), encoding="utf-8")
        words = [str(item.resolve()) for item in requirements if isinstance(item, Path)]
        if lines:
            words.append(write_lines(Path(folder, "requirements.in"), lines))
        if overrides:
            words += ["--overrides", write_lines(Path(folder, "overrides.txt"), overrides)]
        interpreters.run_pip(
            ["compile", *target.options, *words, "--output-file", str(output), *options], source, env,
            activity=f"resolving {names}", cwd=cwd, on_line=on_line,
        )  # fmt: skip
        return _parse_resolution(output.read_text(encoding="utf-8"))


def write_lines(file: Path, lines: Iterable[str]) -> str:
    """Write a file of requirements; return its path as uv takes it."""
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(file)


def _parse_resolution(text: str) -> Resolution:
    """Read what uv resolved (PEP 751): of each package the wheels, else the source distribution."""
    packages: dict[str, lock.LockedPackage] = {}
    direct: dict[str, str] = {}
    sdist_urls: dict[str, str] = {}
    for entry in toml_reader.parse_toml(text, name="the answer of the resolver").get("packages", []):
        name, sdist = canonicalize_name(entry["name"]), entry.get("sdist")
        digests = {}
        for file in entry.get("wheels") or ([] if sdist is None else [sdist]):
            place = str(file["url"] if "url" in file else file["path"])
            file_name = file.get("name") or unquote(urlsplit(place).path).rpartition("/")[2]
            digests[str(file_name)] = file["hashes"]["sha256"]
            if file is sdist:
                sdist_urls[name] = place
        if digests:
            packages[name] = lock.LockedPackage(version=entry["version"], files=dict(sorted(digests.items())))
        elif (vcs := entry.get("vcs")) is not None:
            folder = f"#subdirectory={vcs['subdirectory']}" if vcs.get("subdirectory") else ""
            direct[name] = f"{entry['name']} @ {vcs['type']}+{vcs['url']}@{vcs['commit-id']}{folder}"
        else:
            other = entry.get("archive") or entry.get("directory") or {}
            place = other.get("url") or Path(other.get("path", ".")).absolute().as_uri()
            direct[name] = f"{entry['name']} @ {place}"
    return Resolution(dict(sorted(packages.items())), direct, sdist_urls)


def resolve_backends(
    resolution: Resolution,
    target: PackageTarget,
    source: interpreters.PackageSource,
    env: Mapping[str, str],
    *,
    cwd: Path,
) -> Mapping[str, lock.LockedPackage]:
    """Return the packages that the source distributions of a resolution are built with. Raises SdkError."""
    lines = {
        line: None for name, url in resolution.sdist_urls.items() for line in _read_sdist_requires(name, url)
    }
    if not lines:
        return {}
    backends = resolve_packages([*lines], target, source, env, cwd=cwd)
    if missing := [*backends.direct, *backends.sdist_urls]:
        raise errors.SdkError(
            f"what builds {', '.join(resolution.sdist_urls)} cannot be locked: {missing[0]} has no wheel",
            tip="give a wheel of it with --find-links",
        )
    return backends.packages


def _read_sdist_requires(name: str, url: str) -> tuple[str, ...]:
    """Return ``build-system.requires`` of a source distribution at a URL or path (PEP 518)."""
    from rocm_wheels.index import reader

    shown = shell.hide_credentials(url)
    try:
        answer = reader.IndexReader().get(url if "://" in url else Path(url).absolute().as_uri())
    except reader.UnreachableError as cause:
        raise errors.SdkError(
            f"the source distribution of {name} cannot be fetched: {shown}", tip=_SDIST_TIP
        ) from cause
    if answer.status != 200:
        raise errors.SdkError(f"{shown}: the server answers {answer.status}", tip=_SDIST_TIP)
    content, texts = io.BytesIO(answer.content), list[bytes]()
    try:
        if zipfile.is_zipfile(content):
            with zipfile.ZipFile(content) as archive:
                texts += [archive.read(name) for name in archive.namelist() if _PYPROJECT.fullmatch(name)]
        else:
            content.seek(0)
            with tarfile.open(fileobj=content) as tar:
                for member in tar:
                    if _PYPROJECT.fullmatch(member.name) and (file := tar.extractfile(member)) is not None:
                        texts.append(file.read())
        table = toml_reader.parse_toml(texts[-1].decode("utf-8") if texts else "", name="pyproject.toml")
        return tuple(map(str, table.get("build-system", {}).get("requires", _DEFAULT_BACKEND)))
    except (*_DAMAGE_ERRORS, ValueError, AttributeError, TypeError, errors.DataError) as cause:
        raise errors.SdkError(f"the source distribution of {name} cannot be read: {cause}") from cause


def install_packages(
    python: Path,
    resolution: Resolution,
    source: interpreters.PackageSource,
    env: Mapping[str, str],
    *,
    activity: str,
    cwd: Path,
    on_line: Callable[[str], None] | None = None,
    backends: Mapping[str, lock.LockedPackage] | None = None,
    words: Sequence[str] = (),
    index_options: Sequence[str] = (),
    held_by: str = "",
) -> None:
    """Install the packages of a resolution from its files alone, and nothing that they require.

    ``backends``: what source distributions are built with; ``index_options``: lines of requirements files
    that say where packages are; ``held_by``: the file that has the digests. SdkError for other ones.
    """
    if not (resolution.packages or resolution.direct):
        return
    options = ["--no-deps", *words]
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-") as folder:
        lines = [*index_options, *_format_pins(resolution.packages), *resolution.direct.values()]
        options += ["--requirement", write_lines(Path(folder, "packages.txt"), lines)]
        options += [] if resolution.direct else ["--require-hashes"]
        if backends:
            pins = write_lines(Path(folder, "backends.txt"), _format_pins(backends))
            options += ["--build-constraints", pins]
        try:
            interpreters.pip_install(
                python, options, source, env, activity=activity, cwd=cwd, on_line=on_line
            )
        except errors.SdkError as failure:
            if (other := _MISMATCH.search(failure.message)) is None:
                raise
            expected = " or ".join(re.findall(r"[0-9a-f]{64}", other["expected"]))
            whose = f"{held_by} says" if held_by else "it was resolved with"
            tip = "somebody exchanged the file meanwhile: run the same again"
            if held_by:
                tip = "somebody exchanged the file: bring it back, or look at it and run"
                tip += f" `rocm-wheels lock update {held_by} tools`"
            raise errors.SdkError(
                f"{other['package']} has the sha256 {other['computed']}, and {whose} {expected}", tip=tip
            ) from failure


def _format_pins(packages: Mapping[str, lock.LockedPackage]) -> list[str]:
    lines = []
    for name, package in packages.items():
        hashes = [f"--hash=sha256:{digest}" for digest in sorted(set(package.files.values()))]
        lines.append(" ".join([f"{name}=={package.version}", *hashes]))
    return lines


def note_installed(note: Path, site_packages: Path, resolution: Resolution) -> dict[str, InstalledPackage]:
    """Write down what was installed from a resolution: of several files that whose tags the package has."""
    installed = {}
    for name, package in resolution.packages.items():
        file, sha256 = _choose_file(site_packages, name, package)
        url = shell.hide_credentials(resolution.sdist_urls.get(name, ""))
        installed[name] = InstalledPackage(name, package.version, file, sha256, url)
    for name, requirement in resolution.direct.items():
        installed[name] = InstalledPackage(name, "", source=shell.hide_credentials(requirement))
    installed = dict(sorted(installed.items()))
    files.write_json_file(note, {name: asdict(package) for name, package in installed.items()})
    return installed


def _choose_file(site_packages: Path, name: str, package: lock.LockedPackage) -> tuple[str, str]:
    """Return the file that a package was installed from, and its digest."""
    if len(package.files) == 1:
        return next(iter(package.files.items()))
    tags: set[str] = set()
    for folder in site_packages.glob("*.dist-info"):
        if canonicalize_name(folder.name.partition("-")[0]) == name:
            lines = (folder / "WHEEL").read_text(encoding="utf-8").splitlines()
            tags = {line.partition(":")[2].strip() for line in lines if line.startswith("Tag:")}
    for file, digest in package.files.items():
        with suppress(InvalidWheelFilename):
            if {str(tag) for tag in parse_wheel_filename(file)[3]} == tags:
                return file, digest
    raise errors.SdkError(
        f"{name} {package.version} was installed, and none of {', '.join(package.files)} has its tags",
        tip="give one of these files with --find-links",
    )


def list_misfits(
    packages: Mapping[str, lock.LockedPackage], installed: Mapping[str, InstalledPackage] | None
) -> list[str]:
    """Name the packages that were not installed from the files of a lock, and those that it has not."""
    if installed is None:
        return list(packages)
    names = packages.keys() | installed.keys()
    right = {n for n in packages.keys() & installed.keys() if installed[n].fits(packages[n])}
    return sorted(names - right)


def digest_packages(packages: Mapping[str, lock.LockedPackage]) -> str:
    """Return a digest of packages to install, 12 hexadecimal digits: the same for the same files."""
    text = json.dumps({name: package.model_dump() for name, package in packages.items()}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def read_installed(note: Path) -> dict[str, InstalledPackage] | None:
    """Read what was noted; ``None`` where that is nothing, or of another version of this program."""
    try:
        entries = json.loads(note.read_text(encoding="utf-8"))
        return {name: InstalledPackage(**entry) for name, entry in entries.items()}
    except (FileNotFoundError, ValueError, TypeError, AttributeError):
        return None
