"""Wrong input at every door: one clear message, the right exit code, and the disk as it was."""

from __future__ import annotations

import os
import re
import subprocess
import zipfile
from pathlib import Path

import pytest
from warm_python import warm_python

CLONE = Path(__file__).resolve().parents[2]
BUILD = ["build_tools/build_prod_wheels.py", "build"]
INSTALL = ["build_tools/build_prod_wheels.py", "install-rocm"]
TORCH = ["repos/pytorch_torch_repo.py"]
AUDIO = ["repos/pytorch_audio_repo.py"]
PACKAGES = ["build_tools/build_python_packages.py"]
TARGETS = ["-m", "rocm_wheels", "targets"]
VERIFY = ["-m", "rocm_wheels", "verify"]
IN = ["--source-dir", "{box}/repos"]
OUT = ["--output-dir", "{box}/dist"]
CHECKOUT = ["checkout", "--source-dir", "{box}/new"]

# (what, words, exit code, what the message must hold)
TABLE = [
    ("no output folder", [*BUILD, *IN], 2, "Missing option '--output-dir'"),
    ("unknown option", [*BUILD, "--gfxx", "x"], 2, "No such option.*--gfx"),
    ("two caches", [*BUILD, *IN, *OUT, "--use-ccache", "--use-sccache"], 2, "exclude each other"),
    ("no-wrap alone", [*BUILD, *IN, *OUT, "--sccache-no-wrap"], 2, "give both"),
    ("nothing to build", [*BUILD, "--source-dir", "{box}/empty", *OUT], 2, "there is nothing to build"),
    ("asked for without tree", [*BUILD, *IN, *OUT, "--build-apex"], 2, r"--build-apex: there is no source tree \S+/apex"),
    ("given folder missing", [*BUILD, *IN, *OUT, "--triton-dir", "{box}/t"], 2, r"--triton-dir: there is no source tree"),
    ("given folder a file", [*BUILD, *IN, *OUT, "--triton-dir", "{box}/note.txt"], 2, "is a file"),
    ("links missing", [*BUILD, *IN, *OUT, "--find-links", "{box}/no"], 2, r"--find-links: there is no folder \S+/no"),
    ("no environment yet", [*BUILD, *IN, *OUT], 2, r"no build environment .*\n.*--install-rocm"),
    ("target misspelt", [*BUILD, *IN, *OUT, "--gfx", "gfx9422"], 2, "gfx9422.*did you mean gfx942"),
    ("family misspelt", [*BUILD, *IN, *OUT, "--gfx", "gfx110x-al"], 2, "gfx110x-al.*did you mean gfx110X-all"),
    ("no target", [*BUILD, *IN, *OUT, "--gfx", ",;"], 2, "--gfx"),
    ("target twice over", [*BUILD, *IN, *OUT, "--gfx", "gfx90a,gfx90a:xnack+"], 2, "gfx90a"),
    ("suffix no version", [*BUILD, *IN, *OUT, "--version-suffix", "+a b"], 2, r"--version-suffix \+a b.*not a version"),
    ("build number", [*BUILD, *IN, *OUT, "--pytorch-build-number", "0"], 2, "--pytorch-build-number.*0 is not in the range"),
    ("release type", [*BUILD, *IN, *OUT, "--release-type", "weekly"], 2, "'weekly' is not one of"),
    ("no active env", [*BUILD, *IN, *OUT, "--current-env"], 2, "no virtual environment is active"),
    ("output a file", [*BUILD, *IN, "--output-dir", "{box}/note.txt"], 2, "is a file"),
    ("output below a file", [*BUILD, *IN, "--output-dir", "{box}/note.txt/dist"], 2, r"note\.txt is not a folder"),
    ("work below a file", [*INSTALL, *IN, "--work-dir", "{box}/note.txt/work"], 2, r"Not a directory \(\S+note\.txt"),
    ("specifier without operator", [*INSTALL, *IN, "--rocm", "7.1.0"], 11, "'7.1.0' is not a version specifier"),
    ("specifier no version", [*INSTALL, *IN, "--rocm", "==latest"], 11, "'==latest' is not a version specifier"),
    ("extra no name", [*INSTALL, *IN, "--rocm-extras", "device gfx942"], 11, "'device gfx942' is not the name of an extra"),
    ("targets of nothing", TARGETS, 2, "Missing argument"),
    ("targets missing file", [*TARGETS, "{box}/no.so"], 2, r"\S+/no\.so"),
    ("targets of a folder", [*TARGETS, "{box}/repos"], 2, r"\S+/repos"),
    ("targets cut short", [*TARGETS, "{box}/cut.bundle"], 2, r"cut\.bundle.*(past the end|cut short|truncated)"),
    ("targets of a bad wheel", [*TARGETS, "{box}/torch-1.0-py3-none-any.whl"], 2, r"torch-1\.0-py3-none-any\.whl"),
    ("verify no wheel", [*VERIFY, "{box}/note.txt"], 2, r"note\.txt"),
    ("verify missing wheel", [*VERIFY, "{box}/torch-2.0-py3-none-any.whl"], 2, r"torch-2\.0-py3-none-any\.whl"),
    ("verify unknown project", [*VERIFY, "{box}/six-1.0-py3-none-any.whl"], 2, "six"),
    ("verify a wheel without insides", [*VERIFY, "--project", "pytorch_audio", "{box}/six-1.0-py3-none-any.whl"], 14, "METADATA"),
    ("artifacts missing", [*PACKAGES, "--artifact-dir", "{box}/no", "--output-dir", "{box}/p"], 11, r"\S+/no"),
    ("artifacts empty", [*PACKAGES, "--artifact-dir", "{box}/empty", "--output-dir", "{box}/p"], 11, "artifact"),
    ("packages nowhere", [*PACKAGES, "--artifact-dir", "{box}/empty"], 2, "Missing option '--output-dir'"),
    ("origin no repository", [*TORCH, *CHECKOUT, "--origin", "{box}/empty"], 10, r"\S+/empty"),
    ("origin missing", [*TORCH, *CHECKOUT, "--origin", "file://{box}/none.git"], 10, r"none\.git"),
    ("ref missing", [*TORCH, *CHECKOUT, "--origin", "{box}/origin", "--ref", "nope"], 10, "nope"),
    ("depth", [*TORCH, *CHECKOUT, "--depth", "0"], 2, "--depth"),
    ("not a checkout", [*TORCH, "checkout", "--checkout-dir", "{box}/full", "--origin", "{box}/origin"], 10, r"\S+/full"),
    ("hipify nothing", [*TORCH, "hipify", "--source-dir", "{box}/empty"], 10, r"\S+/empty/pytorch"),
    ("related missing", [*AUDIO, *CHECKOUT, "--pytorch-dir", "{box}/full", "--require-related-commit"], 10, "related_commits"),
    ("related unreadable", [*AUDIO, *CHECKOUT, "--pytorch-dir", "{box}/related"], 2, r"related_commits:2"),
    ("unknown command", ["-m", "rocm_wheels", "targts"], 2, "No such command 'targts'. Did you mean 'targets'"),
]  # fmt: skip


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with things that are almost right."""
    box = tmp_path_factory.mktemp("box")
    for name in ("repos/pytorch", "empty", "full", "related", "origin"):
        (box / name).mkdir(parents=True)
    (box / "note.txt").write_text("a note\n")
    (box / "full" / "mine.txt").write_text("mine\n")
    (box / "repos" / "pytorch" / "version.txt").write_text("2.9.0\n")
    row = "ubuntu|pytorch|torchaudio|main|{}|https://example.invalid/audio\n"
    (box / "related" / "related_commits").write_text(row.format("1" * 40) + "ubuntu|pytorch|torchaudio\n")
    (box / "cut.bundle").write_bytes(b"__CLANG_OFFLOAD_BUNDLE__" + (9).to_bytes(8, "little") + b"\0" * 20)
    (box / "torch-1.0-py3-none-any.whl").write_bytes(b"PK\x03\x04 and then nothing")
    with zipfile.ZipFile(box / "six-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("six.py", "")
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.invalid"]
    for words in (["init", "-q", "-b", "main"], [*identity, "commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run(["git", *words], cwd=box / "origin", check=True)
    return box


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.slow
@pytest.mark.parametrize(("words", "code", "said"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_wrong_input(box: Path, tmp_path: Path, words: list[str], code: int, said: str) -> None:
    kept = ("PATH", "LANG", "SYSTEMROOT")
    env = {**{k: v for k, v in os.environ.items() if k in kept}, "HOME": str(tmp_path), "NO_COLOR": "1"}
    argv = [word.format(box=box) for word in words]
    argv[0] = argv[0] if argv[0] == "-m" else str(CLONE / argv[0])
    before = contents(box)
    ended = subprocess.run(
        [*warm_python(), *argv], env=env, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    shown = ended.stdout + ended.stderr
    assert ended.returncode == code, shown
    assert re.search(said, shown), shown
    assert "Traceback" not in shown
    changed = {name for name, state in contents(box).items() if before.get(name) != state}
    assert {name for name in changed if Path(name).name not in {".lock", ".owner"}} == set()
    assert before.keys() <= contents(box).keys()
    assert not [p for p in tmp_path.rglob("*") if p.is_file() and ".cache" not in p.parts]


def test_the_table_is_long_enough() -> None:
    assert len(TABLE) >= 30
