"""A manifest of TheRock's scripts to lock: ``lock --manifest FILE`` or ``lock --manifest-url URL``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels.errors import SourceError, UsageError
from rocm_wheels.model.names import get_option_name, list_project_names
from rocm_wheels.shell import hide_credentials

if TYPE_CHECKING:
    from rocm_wheels.model.lock import Lock

_TORCH_PROJECT = "pytorch"


def manifest_options() -> list[click.Option]:
    """Return the options that ``read_manifest`` reads."""
    return [
        click.Option(
            ["--manifest"], type=click.Path(path_type=Path), metavar="FILE",
            help="Lock what a manifest of TheRock's scripts names.",
        ),
        click.Option(["--manifest-url"], metavar="URL", help="The same, of a server."),
        click.Option(
            ["--expected-pytorch-git-ref"], metavar="REF",
            help="Branch of torch that the manifest must name.",
        ),
    ]  # fmt: skip


def read_manifest(values: Mapping[str, Any]) -> Lock | None:
    """Return the manifest that is to be locked, without the projects that are not wanted; ``None`` for none.

    Raises UsageError, SourceError, and DataError with ``file:line:column``.
    """
    file, url, expected = values["manifest"], values["manifest_url"], values["expected_pytorch_git_ref"]
    if file is not None and url is not None:
        raise UsageError("--manifest and --manifest-url exclude each other", tip="give one of them")
    if file is None and url is None:
        if expected:
            raise UsageError(
                "--expected-pytorch-git-ref says nothing without a manifest",
                tip="name it with --manifest or --manifest-url",
            )
        return None
    for name in list_project_names():
        for kind in ("ref", "origin"):
            if values[f"{name}_{kind}"] is not None:
                raise UsageError(
                    f"--{get_option_name(name)}-{kind} and a manifest say two things",
                    tip="leave one of them out",
                )
    lock, name = _fetch_manifest(file, url)
    if any(project.submodules is not None for project in lock.projects.values()):
        raise UsageError(f"{name} is a lock, not a manifest", tip="`rocm-wheels lock update` renews a lock")
    if expected:
        _require_ref(lock, expected, name)
    return lock.model_copy(update={"projects": _select_projects(lock, values["projects"], name)})


def _fetch_manifest(file: Path | None, url: str | None) -> tuple[Lock, str]:
    from rocm_wheels.sources.lock.file import parse_lock, read_lock

    if file is not None:
        return read_lock(file), str(file)
    from urllib.parse import urlsplit

    from rocm_wheels.index.reach import IndexReader, UnreachableError

    assert url is not None
    safe_url = hide_credentials(url)
    if urlsplit(url).scheme not in ("http", "https", "file"):
        raise UsageError(
            f"--manifest-url {safe_url!r} is not the URL of a file", tip="or name a file: --manifest"
        )
    try:
        answer = IndexReader().get(url)
    except UnreachableError as cause:
        raise SourceError(f"{safe_url} cannot be reached", tip="try again later") from cause
    if answer.status != 200:
        raise SourceError(f"{safe_url}: the server answers {answer.status}", tip="correct --manifest-url")
    try:
        text = answer.content.decode("utf-8")
    except UnicodeDecodeError as cause:
        raise SourceError(f"{safe_url} is not text in UTF-8", tip="correct --manifest-url") from cause
    return parse_lock(text, name=safe_url), safe_url


def _require_ref(lock: Lock, expected: str, name: str) -> None:
    torch = lock.projects.get(_TORCH_PROJECT)
    if torch is None:
        raise UsageError(
            f"{name} has no {_TORCH_PROJECT}, which was to be {expected}", tip="is it the right manifest?"
        )
    if torch.ref != expected:
        branch = "no branch" if torch.ref == torch.commit else f"the branch {torch.ref}"
        raise UsageError(
            f"{name} names {branch} of {_TORCH_PROJECT}, not {expected}",
            tip="name another manifest, or correct --expected-pytorch-git-ref",
        )


def _select_projects(lock: Lock, names: tuple[str, ...], name: str) -> dict[str, Any]:
    from rocm_wheels.cli.checkout import find_project_name

    chosen = [find_project_name(word) for word in names] or list(lock.projects)
    for project in chosen:
        if project not in lock.projects:
            raise UsageError(f"{name} has no {project}", tip=f"it has {', '.join(lock.projects)}")
    return {project: locked for project, locked in lock.projects.items() if project in chosen}
