"""Ask uv for the whole set, as a lock: every file with its URL and sha256.

An index of our own, pages in a folder, goes before the chosen one. It has what uv is to take of some
projects and nothing else: the torch that was chosen; of projects with code for GPUs the builds for that
torch, variants under their plain names (uv knows no labels); folders and pages that just list wheels, by
project. torch and variants stand there as METADATA alone: nothing large is fetched to resolve.

Which index a package is of, and who requires it, uv says in its other output (``--emit-index-annotation``).
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from html import escape
from pathlib import Path
from urllib.parse import unquote

from packaging.tags import Tag
from packaging.utils import canonicalize_name

from rocm_wheels.core import errors, process
from rocm_wheels.core.installation import find_uv
from rocm_wheels.sdk import interpreters
from rocm_wheels.user.lock import (
    LockedPackage,
    format_lock,
    quote_toml,
    read_lock,
    select_packages,
    strip_credentials,
)
from rocm_wheels.user.offers import Offer
from rocm_wheels.wheels import metadata_wheel

_KEPT_VARIABLES = re.compile(
    "UV_(CACHE_DIR|LINK_MODE|CONCURRENT_.*|HTTP_.*|NATIVE_TLS|SYSTEM_CERTS|KEYRING_PROVIDER|INSECURE_HOST)"
)
_LOCAL_HOSTS = "127.0.0.1,localhost"


@dataclass(frozen=True)
class ResolveRequest:
    """What uv is asked. ``lines`` are requirements, ``constraints`` hold of what others require.

    ``pages`` are by project what is offered of it and nothing else; ``kept`` what is installed and stays
    where it fits; ``indexes`` are asked in their order for all other projects.
    """

    lines: Sequence[str]
    indexes: Sequence[str]
    pages: Mapping[str, Sequence[Offer]] = field(default_factory=dict)
    kept: Sequence[Offer] = ()
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
    lines = [f"find-links = [{', '.join(map(quote_toml, find_links))}]"] if find_links else []
    lines += ["no-index = true"] if not indexes else []
    for number, url in enumerate(indexes, start=1):
        lines += ["[[index]]", f"url = {quote_toml(url)}", "ignore-error-codes = [403]"]
        lines += ["default = true"] if number == len(indexes) else []
    path = folder / "uv.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


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
    overlay, offers = _write_pages(request, cache)
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-") as name:
        folder = Path(name)
        constraints, lock = folder / "constraints.txt", folder / "pylock.toml"
        indexes = [*([f"{overlay.as_uri()}/"] if request.pages else []), *request.indexes]
        settings = write_uv_settings(folder, indexes, [f"{overlay}/installed"] if request.kept else [])

        def ask(constraining: Iterable[str], *words: str) -> str:
            constraints.write_text("\n".join(constraining), encoding="utf-8")
            command = [str(find_uv()), "pip", "compile", "-", "--quiet", "--config-file", str(settings)]
            command += ["--python", str(python), "--constraints", str(constraints), *words]
            return process.capture_output(
                command, env=make_uv_environment(env), cwd=folder, stdin="\n".join(request.lines).encode(),
                timeout=1800, check=errors.HostError, description="resolving",
            )  # fmt: skip

        if request.kept:  # it stands there as an earlier answer: what fits of it is taken again
            installed = [
                replace(offer.package, index="", url=f"installed/{offer.package.name}", sha256="0" * 64)
                for offer in request.kept
            ]
            lock.write_text(format_lock(installed, {}), encoding="utf-8")
        ask(request.constraints, "--format", "pylock.toml", "--output-file", str(lock))
        content = read_lock(lock.read_text(encoding="utf-8"), "uv's answer")
        packages = select_packages(content, markers, tags, "uv's answer", folder=folder)
        pins = [f"{package.project}=={package.version}" for package in packages]
        words = ["--emit-index-annotation", "--no-header", "--annotation-style", "split"]
        try:
            text = ask(pins, *words, "--offline")
        except errors.HostError:  # a server forbids to keep its pages
            text = ask(pins, *words)
    origins = parse_annotations(text)
    finished = []
    for package in packages:
        index, required_by = origins.get(package.project, ("", ()))
        offer = offers.get(unquote(package.url))
        if offer is None and (package.project in request.pages or index.rstrip("/") == overlay.as_uri()):
            raise errors.HostError(f"uv took {package} from {package.url}, which its page does not list")
        if offer is None:
            known = replace(package, index=index)
        elif offer.content is not None:
            known = offer.package
        else:  # what its page does not say, uv has found out
            known = replace(offer.package, sha256=package.sha256, size=package.size or offer.package.size)
        finished.append(replace(known, required_by=required_by))
    return finished


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


def _write_pages(request: ResolveRequest, cache: Path) -> tuple[Path, dict[str, Offer]]:
    """Write the pages, and wheels of METADATA alone, into a folder; return it, and offers by unquoted URL.

    The folder is called by its content, so that uv knows what it has read of it; two runs may write the same.
    Passwords are left out: uv takes those of the indexes.
    """
    contents: dict[str, bytes] = {}
    offers: dict[str, Offer] = {}  # by place in the folder, or by URL
    for project, page in {**request.pages, "installed": request.kept}.items():
        lines = []
        for offer in page:
            package, attributes = offer.package, ""
            beside = f"sha256={offer.metadata}" if offer.metadata else "true"
            place, digest = strip_credentials(package.url), package.sha256
            if offer.content is not None:
                stub = metadata_wheel.make_metadata_wheel(package.name, offer.content)
                place, digest = package.name, sha256(stub).hexdigest()
                contents[f"{project}/{place}"] = stub
            offers[place if offer.content is None else f"{project}/{place}"] = offer
            for name, text in (
                ("requires-python", offer.requires_python or None),
                ("yanked", offer.yanked),
                ("core-metadata", None if offer.metadata is None else beside),
            ):
                attributes += f' data-{name}="{escape(text)}"' if text is not None else ""
            href = f"{place}#sha256={digest}" if digest else place
            lines.append(f'<a href="{escape(href)}"{attributes}>{escape(package.name)}</a>\n')
        if project in request.pages:
            contents[f"{project}/index.html"] = f"<!DOCTYPE html>\n{''.join(lines)}".encode()
    digest = sha256(b"".join(name.encode() + text for name, text in sorted(contents.items()))).hexdigest()
    folder = cache / "pages" / digest[:32]
    if contents and not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        begun = Path(tempfile.mkdtemp(dir=folder.parent))
        for name, content in contents.items():
            (begun / name).parent.mkdir(exist_ok=True)
            (begun / name).write_bytes(content)
        try:
            begun.rename(folder)
        except OSError:  # another run was quicker
            shutil.rmtree(begun)
    return folder, {
        unquote(f"{folder.as_uri()}/{place}" if offer.content is not None else place): offer
        for place, offer in offers.items()
    }
