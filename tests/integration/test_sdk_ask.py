"""What is asked of an SDK, and what is refused as an answer: fake `rocm_sdk` modules, real processes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from rocm_wheels.core import errors
from rocm_wheels.sdk import rocm_sdk

_GOOD = {
    "version": "7.1.0+local.1",
    "path --root": "{root}",
    "path --cmake": "{root}/lib/cmake",
    "path --bin": "{root}/bin",
    "targets": "gfx942;gfx1100",
}
_MAIN = """
import sys
open({asked!r}, "a").write(" ".join(sys.argv[1:]) + "\\n")
sys.stderr.write("a warning that means nothing\\n" * 3)
answer = {answers!r}[" ".join(sys.argv[1:])]
if answer.startswith("exit "):
    sys.stderr.write("out of luck\\n")
    sys.exit(int(answer[5:]))
sys.stdout.write(answer)
"""


def fake(folder: Path, answers: dict[str, str], *, installed: str | None = "7.1.0+local.1") -> dict[str, str]:
    """Put a `rocm_sdk` that gives these answers in front of a Python; returns the environment."""
    for name in ("lib/cmake", "bin"):
        (folder / "root" / name).mkdir(parents=True)
    said = {k: v.format(root=folder / "root") for k, v in (_GOOD | answers).items()}
    said = {k: v if not v or v.startswith("exit ") else f"{v}\n" for k, v in said.items()}
    module = folder / "site" / "rocm_sdk"
    module.mkdir(parents=True)
    (module / "__init__.py").touch()
    (module / "__main__.py").write_text(_MAIN.format(answers=said, asked=str(folder / "asked")))
    for name, version in (("rocm", installed), ("rocm-sdk-core", "7.1.0")):
        if version:
            metadata = folder / "site" / f"{name.replace('-', '_')}-{version}.dist-info" / "METADATA"
            metadata.parent.mkdir()
            metadata.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return {**os.environ, "PYTHONPATH": str(folder / "site")}


def test_everything_is_asked_once_and_noise_does_not_matter(tmp_path: Path) -> None:
    sdk = rocm_sdk.query_sdk(Path(sys.executable), fake(tmp_path, {}))
    root = tmp_path / "root"
    assert (sdk.version, sdk.targets) == ("7.1.0+local.1", ("gfx942", "gfx1100"))
    assert (sdk.root, sdk.cmake, sdk.bin) == (root, root / "lib" / "cmake", root / "bin")
    assert dict(sdk.installed) == {"rocm": "7.1.0+local.1", "rocm-sdk-core": "7.1.0"}
    asked = (tmp_path / "asked").read_text().splitlines()
    assert sorted(asked) == sorted(_GOOD)
    # which may unpack the development tree, and nothing else may do that meanwhile
    assert asked.index("path --root") < min(asked.index("path --cmake"), asked.index("path --bin"))


@pytest.mark.parametrize(
    ("question", "answer", "message"),
    [
        ("version", "", "rocm_sdk version` said nothing"),
        ("version", "7.1.0\nWARNING: old driver", "said 2 lines where one is expected: '7.1.0\\nWARNING"),
        ("version", "seven", "said 'seven', which is not a version (PEP 440)"),
        ("version", "7.2.0", "said 7.2.0, but rocm 7.1.0+local.1 is installed"),
        ("path --root", ".", "said '.', which is not an existing folder"),
        ("path --bin", "exit 3", "path --bin` failed with exit code 3"),
        ("targets", "gfx942;gfx94X-dcgpu", "said 'gfx942;gfx94X-dcgpu', where gfx targets are expected"),
    ],
)
def test_bad_answers(tmp_path: Path, question: str, answer: str, message: str) -> None:
    with pytest.raises(errors.SdkError) as caught:
        rocm_sdk.query_sdk(Path(sys.executable), fake(tmp_path, {question: answer}))
    assert message in str(caught.value)
    assert "-m rocm_sdk" in str(caught.value) and caught.value.tip


def test_no_sdk_at_all(tmp_path: Path) -> None:
    with pytest.raises(errors.SdkError, match="No module named rocm_sdk"):
        rocm_sdk.query_sdk(Path(sys.executable), {**os.environ, "PYTHONPATH": str(tmp_path)})
    with pytest.raises(errors.SdkError, match="no distribution 'rocm' is installed"):
        rocm_sdk.query_sdk(Path(sys.executable), fake(tmp_path, {}, installed=None))
    with pytest.raises(errors.SdkError, match="could not be started"):
        rocm_sdk.query_sdk(tmp_path / "python", os.environ)
