"""Find the project's own files, and name those of a work directory.

``get_project_home`` finds recipes, patches and smoke tests, in a clone and in an installed wheel alike.
``Workspace`` names every place below a work directory.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.core import errors

_PACKAGE = Path(__file__).resolve().parent.parent


def get_project_home() -> Path:
    """Return the folder that holds ``repos/``, ``patches/`` and ``smoke-tests/``.

    In a clone that is the clone; in an installed wheel the same files are under the
    package (the build back end puts them there).
    """
    clone = _PACKAGE.parent.parent
    if (clone / "pyproject.toml").is_file() and (clone / "repos").is_dir():
        return clone
    shipped = _PACKAGE / "_shipped"
    if (shipped / "repos").is_dir():
        return shipped
    raise errors.DataError(
        f"the recipes are neither in a clone around {_PACKAGE} nor in {shipped}",
        tip="install rocm-wheels again; this copy is incomplete",
    )


def is_clone() -> bool:
    """Tell whether we run from a clone of the repository."""
    return get_project_home() == _PACKAGE.parent.parent


@dataclass(frozen=True)
class Workspace:
    """The places below one work directory. Nothing is created before it is used."""

    root: Path

    @property
    def environments(self) -> Path:
        """Build environments, one a (Python, ROCm version)."""
        return self.root / "environments"

    @property
    def runs(self) -> Path:
        """One folder a run: its plan, its record, and the log of each step."""
        return self.root / "runs"

    @property
    def steps(self) -> Path:
        """What each step last did: its inputs and the hashes of its outputs."""
        return self.root / "steps"

    @property
    def rejected_wheels(self) -> Path:
        """Wheels that failed their checks, with the reason."""
        return self.root / "rejected"

    @property
    def built_wheels(self) -> Path:
        """Wheels as they were built, and between the steps that package them: a folder for each step."""
        return self.root / "built"

    @property
    def tests(self) -> Path:
        """What came of tests: a folder for each step, as ``set evidence add --from`` takes it."""
        return self.root / "tests"

    @property
    def fresh_wheels(self) -> Path:
        """Where front ends put wheels before they are checked."""
        return self.root / "fresh"
