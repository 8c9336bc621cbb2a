"""Read what torch's own tests need to be installed: the list of its CI, at the commit of the tests."""

from __future__ import annotations

from collections.abc import Sequence

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from rocm_wheels.core import errors
from rocm_wheels.models import torch_tests
from rocm_wheels.testing import installed_torch, torch_test_plan

_REQUIREMENTS_FILE = ".ci/docker/requirements-ci.txt"


def read_test_requirements(
    sources: torch_test_plan.TorchTestSources,
    target: installed_torch.TargetPython,
    left_out: Sequence[torch_tests.LeftOutRequirements],
) -> list[str]:
    """Return what the tests of a commit need in a Python, beside the torch that is installed there.

    They are lines of a file for ``pip install -r``; each requirement (PEP 508) of the list that is left out
    is a comment behind them, which says why. ``left_out`` names what cannot be installed. torch stays as it
    is, and of its ROCm the part ``devel`` comes with it: some tests compile extensions. Raises DataError
    for a list that is not there, or is none.
    """
    file = sources.folder / _REQUIREMENTS_FILE
    if not file.is_file():
        raise errors.DataError(
            f"{sources.folder} has no {_REQUIREMENTS_FILE}, which says what its tests need"
        )
    environment = {
        "python_version": target.python_version,
        "python_full_version": f"{target.python_version}.0",
    }
    reasons = {
        canonicalize_name(name): row.reason
        for row in left_out
        if not row.pythons or target.python_version in row.pythons
        for name in row.names
    }
    lines, without = [], []
    for number, text in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if not (line := text.partition(" #")[0].strip()) or line.startswith("#"):
            continue
        try:
            requirement = Requirement(line)
        except InvalidRequirement as cause:
            raise errors.DataError(f"{file}:{number}: {line} is no requirement: {cause}") from None
        if requirement.marker is not None and not requirement.marker.evaluate(environment):
            continue
        requirement.marker = None
        if reason := reasons.get(canonicalize_name(requirement.name)):
            without.append(f"# left out: {requirement}: {reason}")
        else:
            lines.append(str(requirement))
    installed: dict[str, str] = {
        canonicalize_name(distribution.name): distribution.version for distribution in target.installed
    }
    lines += [f"torch=={installed['torch']}"] if "torch" in installed else []
    lines += [f"rocm[devel]=={installed['rocm']}"] if "rocm" in installed else []
    return lines + without
