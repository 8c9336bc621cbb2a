"""From where each project may come. One project comes from one place; no version number decides between two.

The rule, in this order:

1. **The chosen index first.** What it has a usable file of comes from there and from nowhere else, as with
   ``--index-url``: PyPI's torch is a CUDA build with the same public version, and with
   ``--extra-index-url`` the higher version number wins, not the right build.
2. **What holds compiled code for GPUs never comes from anywhere else** (``is_closed_project``): torch, torchvision,
   torchaudio, every triton, ROCm's own packages, and all of ``amd-*``. Where the chosen index has none that
   is an error, never a look at PyPI: anybody can register ``amd-torch-device-gfx942`` there. ROCm's own
   packages alone (``is_rocm_project``) may then come from one other index, which somebody named for them.
3. **The other torch projects** (torchao, torchtune, …) may come from the index of dependencies, but only as
   wheels without compiled code (``py3-none-any``): such a wheel is for every build of torch.
4. **What is left** (sympy, numpy, …) comes from the index of dependencies: PyPI, or the mirror that
   ``PIP_INDEX_URL``, ``UV_DEFAULT_INDEX`` or ``--dependency-index`` name. What is installed already and
   fits stays. A wheel from there with compiled code that requires torch is refused
   (``explain_refusal``): it was compiled against PyPI's torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rocm_wheels.errors import UsageError
from rocm_wheels.index.reach import resolve_index_url

PYPI_URL = "https://pypi.org/simple/"
_CLOSED_PROJECT = re.compile(
    r"torch|torchvision|torchaudio|torchtext|torchcodec|apex|aotriton"
    r"|triton|triton-.+|pytorch-triton.*|rocm|rocm-.+|rocm\d.*|hip-.+|amd-.+|amdsmi|jax-rocm.*|fbgemm-gpu.*"
)
_ROCM_PROJECT = re.compile(r"rocm|rocm-.+")
_OTHER_PROJECTS = ("torchcodec",)
_TORCH_PROJECT = re.compile(r"torch.+|tensordict")
_NOT_REQUIRED = re.compile(r"\bextra\b")


def is_closed_project(project: str) -> bool:
    """Tell whether a project (normalized name) may come from the chosen index alone."""
    return _CLOSED_PROJECT.fullmatch(project) is not None


def is_rocm_project(project: str) -> bool:
    """Tell whether a project (normalized name) is one of ROCm's own packages."""
    return _ROCM_PROJECT.fullmatch(project) is not None


def requires_pure_wheel(project: str) -> bool:
    """Tell whether wheels of a project with compiled code may come from the chosen index alone."""
    return _TORCH_PROJECT.fullmatch(project) is not None


def is_pure_wheel(file_name: str) -> bool:
    """Tell whether a wheel has no compiled code, by its name."""
    return file_name.endswith("-none-any.whl")


def explain_refusal(file_name: str, requires: Sequence[str]) -> str | None:
    """Say why a file of the index of dependencies is refused, None when it is not."""
    if is_pure_wheel(file_name):
        return None
    for text in requires:
        if _NOT_REQUIRED.search(text.partition(";")[2]):
            continue
        name = canonicalize_name(Requirement(text).name)
        if is_closed_project(name):
            return f"it has compiled code and requires {name}: it was built for another build of {name}"
    return None


def find_dependency_index(option: str | None, env: Mapping[str, str]) -> str:
    """Return the URL of the index of dependencies. UsageError names the option or variable that has none."""
    variables = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL")
    for name, url in (("--dependency-index", option), *((name, env.get(name)) for name in variables)):
        if url:
            try:
                return resolve_index_url(url)
            except UsageError as error:
                raise UsageError(f"{name}: {error.message}", tip=error.tip) from None
    return PYPI_URL


def find_intended_project(project: str) -> str | None:
    """Return which project of torch's a name is a slip of; None for a name that is none.

    Strangers register such names on PyPI: a letter too few or twice, two letters changed about, a hyphen.
    """
    from rocm_wheels.model.compat.domains import get_domain_libraries

    projects = ("torch", "triton", *_OTHER_PROJECTS, *get_domain_libraries())
    if project in projects:
        return None
    slips = (
        candidate
        for candidate in projects
        for slip in _generate_typos(candidate)
        if slip == project.replace("-", "")
    )
    return next(slips, "torch" if project == "pytorch" else None)


def _generate_typos(name: str) -> Iterator[str]:
    yield name
    for at in range(len(name)):
        yield name[:at] + name[at + 1 :]
        yield name[: at + 1] + name[at:]
        yield name[:at] + name[at : at + 2][::-1] + name[at + 2 :]
