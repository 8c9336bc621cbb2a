"""What the small ROCm is made of."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocm_wheels.core import errors
from rocm_wheels.demo import miniature


@pytest.mark.parametrize("version", ["", "7", "7.1", "seven", "7.1.0/../..", "7.1.0\n"])
def test_a_version_has_three_numbers(tmp_path: Path, version: str) -> None:
    with pytest.raises(errors.DataError, match="is not a ROCm version"):
        miniature.make_artifacts(tmp_path, tmp_path / "made", version=version, targets=["gfx942"], env={})
    assert not (tmp_path / "made").exists()


def test_libraries_have_names_of_their_own() -> None:
    assert (
        len({library.soname for library in miniature.MINIATURE_LIBRARIES})
        == len(miniature.MINIATURE_LIBRARIES)
        == 22
    )
    assert len({library.symbol for library in miniature.MINIATURE_LIBRARIES}) == len(
        miniature.MINIATURE_LIBRARIES
    )
