"""Who may publish which name: the file of an index over several stores."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocm_wheels.core import errors
from rocm_wheels.index import owners

OWNERS = """
sources:
  rocm: https://rocm.example/simple/
  ours: {index: store/simple, signed_by: [release.pub], url: "https://ours.example/simple"}
owners:
  rocm: rocm
  ROCm_*: rocm
  torch: ours
"""


def write(folder: Path, old: str = "", new: str = "") -> Path:
    assert old in OWNERS
    path = folder / "owners.yaml"
    path.write_text(OWNERS.replace(old, new, 1) if old else OWNERS)
    return path


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("torch: ours", "torch: ours\n  Torch: rocm", "owners.Torch: torch has two owners: ours and rocm"),
        ("torch: ours", "torch: ours\n  torch: rocm", "torch"),
        ("torch: ours", "torch: nobody", "owners.torch: nobody is none of the sources: rocm, ours"),
        ("torch: ours", "torch/..: ours", "it is neither a project nor a pattern"),
        ("https://rocm", "https://me:secret@rocm", "credentials do not belong into it"),
        ("sources:", "targets: [gfx942]\nsources:", "belong together"),
        ("sources:", "targets: [../x]\nsources:", "a gfx target"),
        ("sources:", "default: nobody\nsources:", "nobody is none of the sources"),
        ("owners:", "owner:", "owner"),
        ("https://ours.example/", "ours/", "it is no URL, which begins with https://"),
        ("https://ours.example/simple", "https://", "it is no URL, which begins with https://"),
        ("https://rocm.example", "https://me:secret@[rocm", "credentials do not belong into it"),
        ("https://rocm.example", "https:me:secret@rocm.example", "credentials do not belong into it"),
        ("https://rocm.example", "https:\\\\\\\\me:secret@rocm.example", "credentials do not belong into it"),
        ("https://rocm.example/simple/", "S3://me:secret@bucket", "credentials do not belong into it"),
        ("https://ours.example/", "https://ours.example/{gfx}/", "in both of `index` and `url`"),
        ("https://ours.example/", "https://me:secret@ours.example/", "credentials do not belong into it"),
        ("/rocm.example/simple/", "/rocm.example/simple/?token=secret", "credentials do not belong into it"),
        (OWNERS[OWNERS.index("owners:") :], "", "it names no owner"),
        ("index: store/simple, ", "", "index"),
    ],
)
def test_a_file_that_states_no_owners_is_refused_with_its_line(
    old: str, new: str, message: str, tmp_path: Path
) -> None:
    path = write(tmp_path, old, new)
    with pytest.raises(errors.DataError) as refused:
        owners.load_owners(path)
    assert refused.value.message.startswith(f"{path}:") and message in refused.value.message
    assert "secret" not in refused.value.message


def test_folders_and_keys_lie_beside_the_file(tmp_path: Path) -> None:
    sources = owners.load_owners(write(tmp_path)).sources
    assert sources["rocm"].index == "https://rocm.example/simple/"
    assert sources["ours"].index == str(tmp_path / "store" / "simple")
    assert sources["ours"].url == "https://ours.example/simple/"
    assert sources["ours"].signed_by == (str(tmp_path / "release.pub"),)


def test_the_most_exact_pattern_decides() -> None:
    sources = dict.fromkeys("abc", "https://x.example/")
    patterns = {"amd-*": "a", "amd-torch-*": "b", "amd-torch-device": "c", "*-x": "c", "a*b": "a", "*ab": "b"}
    stated = owners.Owners.model_validate({"sources": sources, "owners": patterns})
    names = ("amd-y", "amd-torch-y", "amd-torch-device", "y-x", "y")
    assert [stated.find_owner(name) for name in names] == ["a", "b", "c", "c", ""]
    with pytest.raises(errors.DataError, match=r"aab has two owners .*a\*b: a and \*ab: b"):
        stated.find_owner("aab")


def test_an_owner_of_everything_owns_what_nobody_else_does_however_names_are_written() -> None:
    """Of torch, too: that is what was written. Two such owners are of two minds about every name."""
    sources = dict.fromkeys("abc", "https://x.example/")
    stated = owners.Owners.model_validate(
        {"sources": sources, "owners": {"*": "a", "Rocm.SDK": "b", "ROCM__*": "c"}, "default": "b"}
    )
    names = ("torch", "numpy", "rocm-sdk", "rocm-sdk-core", "rocm")
    assert [stated.find_owner(name) for name in names] == ["a", "a", "b", "c", "a"]
    both = owners.Owners.model_validate({"sources": sources, "owners": {"*": "a", "**": "b", "numpy": "c"}})
    assert both.find_owner("numpy") == "c"
    with pytest.raises(errors.DataError, match="torch has two owners"):
        both.find_owner("torch")


def test_a_default_owns_the_rest_but_no_code_for_gpus() -> None:
    stated = owners.Owners.model_validate(
        {"sources": {"pypi": "https://pypi.org/simple/"}, "default": "pypi"}
    )
    names = ("numpy", "torch", "triton", "rocm-sdk-core", "amd-torch-device-gfx942", "rocm-bootstrap")
    assert [stated.find_owner(name) for name in names] == ["pypi", "", "", "", "", "pypi"]


def test_a_target_is_part_of_addresses(tmp_path: Path) -> None:
    path = write(tmp_path, "rocm.example/simple/", "rocm.example/by-gfx/{gfx}/stable/")
    path.write_text(path.read_text() + "targets: [gfx942, gfx1100]\n")
    stated = owners.load_owners(path)
    assert stated.at_target("gfx942").sources["rocm"].index == "https://rocm.example/by-gfx/gfx942/stable/"
