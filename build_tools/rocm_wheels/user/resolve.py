"""Ask uv for the whole set, as a lock: every file with its URL and sha256.

An index of our own, pages in a folder, goes before the chosen one. It has what uv is to take of some
projects and nothing else: the torch that was chosen; of projects with code for GPUs the builds for that
torch, variants under their plain names (uv knows no labels); folders and pages that just list wheels, by
project. torch and variants stand there as METADATA alone: nothing large is fetched to resolve.

Which index a package is of, and who requires it, uv says in its other output (``--emit-index-annotation``).
"""

from __future__ import annotations

import io
import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from html import escape
from pathlib import Path
from urllib.parse import unquote

from packaging.tags import Tag
from packaging.utils import canonicalize_name

from rocm_wheels.core import errors, process
from rocm_wheels.core.extras import find_uv
from rocm_wheels.index.reader import IndexLink, file_name_of_link, require_link_digest
from rocm_wheels.sdk import interpreters
from rocm_wheels.user.lock import (
    LockedPackage,
    format_lock,
    read_lock,
    select_packages,
    strip_credentials,
)
from rocm_wheels.wheels import dist_info

CHOSEN, INSTALLED = "chosen", "installed"  # the index of packages whose pages we gave to uv; of what is there
_KEPT_VARIABLES = re.compile(
    "UV_(CACHE_DIR|LINK_MODE|CONCURRENT_.*|HTTP_.*|NATIVE_TLS|SYSTEM_CERTS|KEYRING_PROVIDER|INSECURE_HOST)"
)
_LOCAL_HOSTS = "127.0.0.1,localhost"


@dataclass(frozen=True)
class StubWheel:
    """METADATA of a wheel that stands for it: ``package`` is what is installed, ``content`` what it says."""

    package: LockedPackage
    content: bytes
    requires_python: str = ""


@dataclass(frozen=True)
class ResolveRequest:
    """What uv is asked. ``lines`` are requirements, ``constraints`` hold of what others require.

    ``pages`` are by project what is offered of it and nothing else; ``kept`` what is installed and stays
    where it fits; ``indexes`` are asked in their order for all other projects.
    """

    lines: Sequence[str]
    indexes: Sequence[str]
    pages: Mapping[str, Sequence[IndexLink | StubWheel]] = field(default_factory=dict)
    kept: Sequence[StubWheel] = ()
    constraints: Sequence[str] = ()


def make_uv_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Compose the environment of uv: no option and no index of the user's reaches it, but for connections.

    An extra index in a variable, or in a configuration file, would mix indexes again.
    """
    passed = {
        name: value
        for name, value in interpreters.compose_uv_environment(env).items()
        if not name.startswith(("PIP_", "UV_")) or _KEPT_VARIABLES.fullmatch(name)
    }
    local = ",".join(filter(None, [env.get("no_proxy") or env.get("NO_PROXY"), _LOCAL_HOSTS]))
    quiet = {"UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1", "NO_COLOR": "1"}
    return {**passed, "NO_PROXY": local, "no_proxy": local, **quiet}


def write_uv_settings(folder: Path, indexes: Sequence[str], find_links: Iterable[str] = ()) -> Path:
    """Write uv's settings, which no process list shows: addresses may have passwords.

    Servers of buckets say 403 of what is not there.
    """
    lines = [f"find-links = [{', '.join(map(_quote, find_links))}]"] if find_links else []
    lines += ["no-index = true"] if not indexes else []
    for number, url in enumerate(indexes, start=1):
        lines += ["[[index]]", f"url = {_quote(url)}", "ignore-error-codes = [403]"]
        lines += ["default = true"] if number == len(indexes) else []
    path = folder / "uv.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def resolve_packages(  # noqa: PLR0917 - what, for which Python, and where
    request: ResolveRequest,
    python: Path,
    markers: Mapping[str, str],
    tags: Iterable[Tag],
    cache: Path,
    env: Mapping[str, str],
) -> list[LockedPackage]:
    """Return one file of every project of the set, by project. ``cache`` is our folder for pages.

    What stays as it is installed has the index ``installed``. HostError with uv's own reasons when nothing
    fits together.
    """
    overlay, stubs = _write_pages(request, cache)
    environment = make_uv_environment(env)
    find_links = [f"{overlay}/installed"] if request.kept else []
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-") as name:
        folder = Path(name)
        indexes = [*([f"{overlay.as_uri()}/"] if request.pages else []), *request.indexes]
        settings = write_uv_settings(folder, indexes, find_links)
        constraints, lock = folder / "constraints.txt", folder / "pylock.toml"
        common = [str(find_uv()), "pip", "compile", "-", "--quiet", "--config-file", str(settings)]
        common += ["--python", str(python), "--constraints", str(constraints)]

        def ask(lines: Sequence[str], constraining: Iterable[str], *words: str) -> str:
            constraints.write_text("\n".join(constraining), encoding="utf-8")
            return process.capture_output(
                [*common, *words],
                env=environment,
                cwd=folder,
                stdin="\n".join(lines).encode(),
                timeout=1800,
                check=errors.HostError,
                description="resolving",
            )

        # what is installed stands there as an earlier answer: what fits of it is taken again
        if request.kept:
            installed = [
                replace(stub.package, index="", url=f"installed/{stub.package.name}", sha256="0" * 64)
                for stub in request.kept
            ]
            lock.write_text(format_lock(installed, {}), encoding="utf-8")
        words = ["--format", "pylock.toml", "--output-file", str(lock)]
        ask(request.lines, request.constraints, *words)
        packages = select_packages(
            read_lock(lock.read_text(encoding="utf-8"), "uv's answer"),
            markers,
            tags,
            "uv's answer",
            folder=folder,
        )
        pins = [f"{package.project}=={package.version}" for package in packages]
        words = ["--emit-index-annotation", "--no-header", "--annotation-style", "split"]
        try:
            text = ask(request.lines, pins, *words, "--offline")
        except errors.HostError:  # a server forbids to keep its pages
            text = ask(request.lines, pins, *words)
    origins = parse_annotations(text)
    return [_finish_package(package, origins, overlay, stubs, request) for package in packages]


def parse_annotations(text: str) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return by project its index ("" where uv names none), and who requires it, of uv's other output."""
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    name = ""
    for line in text.splitlines():
        note = line.strip().removeprefix("#").strip()
        if line and not line[0].isspace():
            name = canonicalize_name(re.split(r"[=@\[ ;]", line, maxsplit=1)[0])
            found[name] = "", ()
        elif note.startswith("from "):
            found[name] = note.removeprefix("from "), found[name][1]
        elif note and note != "via":
            found[name] = found[name][0], (*found[name][1], note.removeprefix("via ").strip())
    return found


def _finish_package(
    package: LockedPackage,
    origins: Mapping[str, tuple[str, tuple[str, ...]]],
    overlay: Path,
    stubs: Mapping[str, StubWheel],
    request: ResolveRequest,
) -> LockedPackage:
    """Return a package of uv's answer as what is installed: the wheel behind METADATA, and its index."""
    index, required_by = origins.get(package.project, ("", ()))
    if package.url.startswith(overlay.as_uri()):
        stub = stubs[package.file].package
        return replace(stub, required_by=required_by)
    if index.rstrip("/") == overlay.as_uri() or package.project in request.pages:
        links = [link for link in request.pages[package.project] if isinstance(link, IndexLink)]
        url = unquote(package.url)
        link = next((link for link in links if unquote(strip_credentials(link.url)) == url), None)
        if link is None:
            raise errors.HostError(f"uv took {package} from {package.url}, which its page does not list")
        size = package.size if package.size is not None else link.size
        return replace(package, url=link.url, size=size, required_by=required_by, index=CHOSEN)
    return replace(package, index=index, required_by=required_by)


def _write_pages(request: ResolveRequest, cache: Path) -> tuple[Path, dict[str, StubWheel]]:
    """Write pages and the wheels of METADATA alone into a folder that is called by its content.

    So uv knows what it has read of them; two runs may write the same. Passwords are left out: uv takes those
    of the indexes.
    """
    stubs = {
        entry.package.name: entry
        for entry in (*request.kept, *(entry for page in request.pages.values() for entry in page))
        if isinstance(entry, StubWheel)
    }
    contents = {name: _make_stub(stub) for name, stub in stubs.items()}
    files = {f"installed/{stub.package.name}": contents[stub.package.name] for stub in request.kept}
    for project, page in request.pages.items():
        lines = []
        for entry in page:
            if isinstance(entry, StubWheel):
                name = entry.package.name
                files[f"{project}/{name}"] = contents[name]
                lines.append(
                    _format_anchor(f"{name}#sha256={sha256(contents[name]).hexdigest()}", name, entry)
                )
            else:
                stated = require_link_digest(entry)
                digest = f"#sha256={stated}" if stated else ""
                url = strip_credentials(entry.url)
                lines.append(_format_anchor(f"{url}{digest}", file_name_of_link(entry), entry))
        files[f"{project}/index.html"] = f"<!DOCTYPE html>\n{''.join(lines)}".encode()
    digest = sha256(b"".join(name.encode() + content for name, content in sorted(files.items()))).hexdigest()
    folder = cache / "pages" / digest[:32]
    if files and not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        begun = Path(tempfile.mkdtemp(dir=folder.parent))
        for name, content in files.items():
            (begun / name).parent.mkdir(exist_ok=True)
            (begun / name).write_bytes(content)
        try:
            begun.rename(folder)
        except OSError:  # another run was quicker
            shutil.rmtree(begun)
    return folder, stubs


def _format_anchor(href: str, name: str, entry: IndexLink | StubWheel) -> str:
    attributes = f' data-requires-python="{escape(entry.requires_python)}"' if entry.requires_python else ""
    if isinstance(entry, IndexLink) and entry.yanked is not None:
        attributes += f' data-yanked="{escape(entry.yanked)}"'
    if isinstance(entry, IndexLink) and entry.metadata is not None:
        attributes += f' data-core-metadata="{f"sha256={entry.metadata}" if entry.metadata else "true"}"'
    return f'<a href="{escape(href)}"{attributes}>{escape(name)}</a>\n'


def _make_stub(stub: StubWheel) -> bytes:
    """Return a wheel of METADATA alone: the same bytes each time."""
    package, buffer = stub.package, io.BytesIO()
    fields = dist_info.split_wheel_name(package.name)
    folder = f"{fields.distribution}-{fields.version}.dist-info"
    tags = f"Tag: {fields.python}-{fields.abi}-{fields.platform}\n"
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in (
            ("METADATA", stub.content),
            ("WHEEL", f"Wheel-Version: 1.0\nGenerator: rocm-wheels\nRoot-Is-Purelib: false\n{tags}".encode()),
            ("RECORD", b""),
        ):
            archive.writestr(zipfile.ZipInfo(f"{folder}/{name}"), content)
    return buffer.getvalue()
