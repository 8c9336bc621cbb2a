"""Which repository and ref a project is checked out from, and why.

An option goes before a pin in the torch checkout, a pin before the recipe's default. What
was chosen is always said, and so is a pin that was looked for and is not there.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rocm_wheels import log
from rocm_wheels.errors import SourceError
from rocm_wheels.model.project import Project
from rocm_wheels.sources.related_commits import FILE_NAME, RelatedCommit, read_related_commits


@dataclass(frozen=True)
class Pin:
    """A readable ``ref`` of a repository; ``commit`` is what it stood for (empty: not yet resolved)."""

    origin: str
    ref: str
    why: str
    commit: str = ""


def choose_pin(
    project: Project,
    *,
    origin: str | None = None,
    ref: str | None = None,
    torch_dir: Path | None = None,
    require_related_commit: bool = False,
) -> Pin:
    """Choose by option, pin, recipe; ``origin`` and ``ref`` are the options' values.

    A pin is a commit of a repository: a ref given by option sets it aside as a whole, an
    origin given by option alone is another place for the pinned commit. Raises SourceError
    when a pin is required and there is none, DataError for a file of pins with a mistake.
    """
    recipe = f"recipe {project.name}.yaml"
    if ref is not None:
        why = "options" if origin is not None else f"--repo-hashtag; origin: {recipe}"
        return Pin(origin or project.source.origin, ref, why)
    pinned, missing = _look_for_pin(project, torch_dir)
    if pinned is not None:
        place, row = pinned
        why = f"{place} line {row.line}, branch {row.branch}"
        if origin is not None:
            why = f"{why}; origin: --gitrepo-origin"
        return Pin(origin or row.origin, row.commit, why)
    if missing is not None:
        if require_related_commit:
            raise SourceError(
                f"{project.name} must be pinned, and {missing}",
                tip="check out torch first, or name the commit with --repo-hashtag",
            )
        log.warn(
            f"{project.name} is not pinned: {missing}; the recipe's default {project.source.ref} is used"
        )
    why = recipe if origin is None else f"{recipe}; origin: --gitrepo-origin"
    return Pin(origin or project.source.origin, project.source.ref, why)


def _look_for_pin(
    project: Project, torch_dir: Path | None
) -> tuple[tuple[Path, RelatedCommit] | None, str | None]:
    """Return (file, row) of the pin, or why there is none; neither where the recipe knows no pin."""
    key = project.source.related_commits
    if key is None:
        return None, None
    if torch_dir is None:
        return None, "no torch checkout was named"
    path = torch_dir / FILE_NAME
    if not path.is_file():
        return None, f"there is no {path}"
    rows = read_related_commits(path)
    if key not in rows:
        return None, f"{path} has no row for {key} (it has {', '.join(sorted(rows)) or 'none at all'})"
    return (path, rows[key]), None
