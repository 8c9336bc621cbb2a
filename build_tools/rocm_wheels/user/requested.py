"""What is asked for, and from where each project may come. No version number decides between two places.

1. **The chosen index first.** What it has comes from there and from nowhere else: PyPI's torch is a CUDA
   build with the same public version, and with ``--extra-index-url`` the higher version wins, not the right
   build.
2. **What holds compiled code for GPUs never comes from anywhere else** (``is_closed_project``): what there is
   a recipe of (torch, torchvision, flash-attn, …), every triton, ROCm's own packages, and all of ``amd-*``.
   Where the chosen index has none that is an error, never a look at PyPI: anybody can register
   ``amd-torch-device-gfx942`` there. ROCm's own packages alone may come from one other index, which somebody
   named for them; rocm-bootstrap, which a split torch requires and AMD has on PyPI, is like the rest. So is,
   where it is not named but required, what a recipe says does without a GPU (LightGBM).
3. **The other torch projects** (torchao, torchtune, …) may come from the index of dependencies, but only as
   wheels without compiled code (``py3-none-any``): such a wheel is for every build of torch.
4. **What is left** (sympy, numpy, …) comes from the index of dependencies: PyPI, or a mirror. What is
   installed and fits stays. A wheel from there with compiled code that requires torch is refused: it was
   compiled against PyPI's torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from rocm_wheels.core import errors, log
from rocm_wheels.index import reader
from rocm_wheels.models import project_names
from rocm_wheels.models.closed_projects import is_closed_project
from rocm_wheels.user.pip_settings import PipSettings

PYPI_URL = "https://pypi.org/simple/"
NO_DIGEST, ONLY_CONNECTION = "the index states no sha256 of", "only the connection vouches for the bytes"
_ROCM_PROJECT = re.compile(r"rocm|rocm-.+")
_TORCH_PROJECT = re.compile(r"torch.+|tensordict")
_NEEDS_NO_TORCH = re.compile(r"rocm.*|.*triton.*|amd-.*|hip-.*")
_FEWEST_LETTERS = 5  # a shorter name has too many neighbours that are meant
_NAMES_TIP = "give names and versions: torch 'torchvision>=0.24' 'torch==2.9.*'"


def is_rocm_project(project: str) -> bool:
    """Tell whether a project (normalized name) is one of ROCm's own packages."""
    return _ROCM_PROJECT.fullmatch(project) is not None


def requires_pure_wheel(project: str) -> bool:
    """Tell whether wheels of a project with compiled code may come from the chosen index alone."""
    return _TORCH_PROJECT.fullmatch(project) is not None


def parse_packages(words: Sequence[str], markers: Mapping[str, str]) -> dict[str, Requirement]:
    """Read requirements, by project; UsageError for what is none, for a URL or file, and for a project twice.

    One whose marker is false is left out, and that is said.
    """
    if not words:
        from rocm_wheels.models.project import list_default_packages  # slow to import

        words = list_default_packages()
    packages: dict[str, Requirement] = {}
    for word in words:
        requirement = _parse_package(word)
        if requirement.marker is not None and not requirement.marker.evaluate(dict(markers)):
            log.log_note(f"left out, as its marker is not true of this Python: {word}")
            continue
        requirement.marker = None
        name = canonicalize_name(requirement.name)
        if (intended := find_intended_project(name)) is not None:
            raise errors.UsageError(
                f"{name} is no project of torch's; did you mean {intended}?",
                tip="if not, install it by pip or uv itself: strangers register names that are nearly others",
            )
        if name in packages:
            raise errors.UsageError(
                f"{name} is requested twice: {packages[name]} and {word}", tip="name it once"
            )
        packages[name] = requirement
    if not packages:
        raise errors.UsageError("nothing is left to install", tip=_NAMES_TIP)
    return packages


def _parse_package(word: str) -> Requirement:
    text = word.strip()
    if not text:
        raise errors.UsageError("a package has an empty name; is a variable not set?", tip=_NAMES_TIP)
    is_file = text.endswith((".whl", ".tar.gz", ".zip")) or text.startswith((".", "/", "~"))
    if is_file or "://" in text or "@" in text:
        raise errors.UsageError(
            f"{text} is a file or URL: nothing would be chosen of it",
            tip="put wheels into a folder and name that with --index or --find-links",
        )
    try:
        return Requirement(text)
    except InvalidRequirement as cause:
        hint = " (two equals signs)" if re.search(r"[^=<>!~]=[^=]", text) else ""
        raise errors.UsageError(f"{text!r} is not a requirement{hint}", tip=_NAMES_TIP) from cause


def find_torch_requirement(packages: Mapping[str, Requirement]) -> str | None:
    """Return the requirement on torch that the packages come to; None where torch is not part of it."""
    if "torch" in packages:
        return str(packages["torch"])
    return "torch" if any(map(_is_of_torch, packages)) else None


def _is_of_torch(project: str) -> bool:
    from rocm_wheels.models.project import find_project_of  # slow to import

    if (recipe := find_project_of(project)) is not None:
        return recipe.is_of_torch
    is_closed = is_closed_project(project) and not _NEEDS_NO_TORCH.fullmatch(project)
    return is_closed or requires_pure_wheel(project)


def find_intended_project(project: str) -> str | None:
    """Return which project of torch's a name is a slip of; None for a name that is none.

    Strangers register such names on PyPI: a letter too few or twice, two letters changed about, a hyphen.
    """
    built = tuple(project_names.find_wheel_projects())
    if project in built:
        return None
    from rocm_wheels.models import libraries  # slow to import

    projects = (*built, *libraries.get_domain_libraries())
    if project in projects:
        return None
    slips = (
        candidate
        for candidate in projects
        if len(candidate) >= _FEWEST_LETTERS and project.replace("-", "") in _generate_slips(candidate)
    )
    return next(slips, "torch" if project == "pytorch" else None)


def _generate_slips(name: str) -> Iterator[str]:
    yield name
    for at in range(len(name)):
        yield name[:at] + name[at + 1 :]
        yield name[: at + 1] + name[at:]
        yield name[:at] + name[at : at + 2][::-1] + name[at + 2 :]


def find_dependency_index(env: Mapping[str, str], pip: PipSettings) -> str:
    """Return the URL of the index of dependencies: of uv's variables, or of what is set for pip.

    "" where pip is to ask none. UsageError names the variable or file whose index is none.
    """
    stated = [(name, env.get(name, "")) for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL")]
    if pip.no_index and not any(url for _, url in stated):
        return ""
    for name, url in (*stated, (pip.index_source, pip.index)):
        if url:
            try:
                return reader.resolve_index_url(url)
            except errors.UsageError as error:
                raise errors.UsageError(f"{name}: {error.message}", tip=error.tip) from None
    return PYPI_URL
