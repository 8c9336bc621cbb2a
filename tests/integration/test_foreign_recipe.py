"""A sixth project by one recipe in a foreign folder: lock, checkout, build, audit, stage, install."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from commands import Ended
from projects import FRONT_END, TARGET, World, finish
from sources import CLONE, commit_files
from uv import find_uv_bin

pytestmark = [pytest.mark.contract_slow, pytest.mark.slow, pytest.mark.network]


def write_recipe(folder: Path) -> None:
    text = (CLONE / "repos/pytorch_audio.yaml").read_text(encoding="utf-8")
    text = text.replace("name: pytorch_audio", "name: sixth").replace("torchaudio", "sixth")
    text = re.sub(r"^  pins:\n(    .*\n)+", "", text, flags=re.MULTILINE)  # a set without torch holds it
    text = text.replace("    names: [torio]", "    names: []").replace("default_place: 3", "default_place: 4")
    old = "  file: version.txt\n  variables: [BUILD_VERSION]\n  build_number: BUILD_NUMBER\n"
    assert old in text and "  rocm: none\n" in text  # its own build is told neither version nor ROCm
    text = text.replace(old, "  append_suffix: true\n")
    text = text.replace("  rocm: none\n", "  rocm: none\n  requires_rocm: true\n")
    folder.mkdir()
    (folder / "sixth.yaml").write_text(text, encoding="utf-8")


def test_one_recipe_in_a_foreign_folder_goes_all_the_way(world: World, tmp_path: Path) -> None:
    write_recipe(tmp_path / "foreign")
    here = {"ROCM_WHEELS_RECIPE_DIR": str(tmp_path / "foreign")}

    def run(*words: str | Path, **variables: str) -> Ended:
        ended = finish(world.start(*map(str, words), **here, **variables))
        assert ended.code == 0, (words, ended.err)
        return ended

    upstream = tmp_path / "upstream"
    files: dict[str, str | bytes] = {
        "setup.py": FRONT_END,
        "name.txt": "sixth sixth",
        "version.txt": "1.0.0",
        "source.txt": "one",
        ".gitignore": "__pycache__/\n",
    }
    commit_files(upstream, files, "sixth")
    lock, sources = tmp_path / "set.lock", tmp_path / "src"
    origin = {"ROCM_WHEELS_SIXTH_ORIGIN": upstream.as_uri(), "ROCM_WHEELS_SIXTH_REF": "HEAD"}
    words = ["lock", "make", "--project", "sixth", "--rocm", "7.1.0", "--gfx", TARGET]
    run(*words, "-o", lock, **origin)
    run("checkout", "--lock", lock, "--source-dir", sources)

    assert world.build().code == 0
    (torch,) = world.output.glob("torch-*.whl")
    output = tmp_path / "dist"
    usual = world.words("sixth")
    words = [word for word in usual if word not in ("--gfx", TARGET, "--rocm", "==7.1.0")]
    words[words.index("--source-dir") + 1] = str(sources)
    words[words.index("--output-dir") + 1] = str(output)
    run(*words, "--lock", lock, "--pytorch-wheel", torch)
    (wheel,) = output.glob("sixth-*.whl")
    (plan,) = sorted((world.work / "runs").glob("*/plan.json"))[-1:]
    assert json.loads(plan.read_text())["request"]["recipes"] == {
        "sixth": str(tmp_path / "foreign/sixth.yaml")
    }
    assert wheel.name.startswith("sixth-1.0.0+rocm7.1.0-")
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read("sixth-1.0.0+rocm7.1.0.dist-info/METADATA").decode()
    assert "Version: 1.0.0+rocm7.1.0\n" in metadata
    assert "Requires-Dist: rocm[libraries]==7.1.0\n" in metadata
    run("audit", wheel)
    version = wheel.name.split("-")[1]
    words = ["--lock", str(lock), "--family", "gfx94X-dcgpu"]
    run("set", "stage", tmp_path / "store", wheel, *words)
    assert any((tmp_path / "store").rglob(wheel.name))

    index, venv = tmp_path / "index", tmp_path / "venv"
    index.mkdir()
    packages = (world.folder / "packages/dist").iterdir()
    for file in (wheel, torch, *world.output.glob("triton-*.whl"), *packages):
        shutil.copy2(file, index)
    run("index", "build", index)
    subprocess.run([find_uv_bin(), "venv", "-q", "--python", sys.executable, str(venv)], check=True)
    planned = run(
        "install", "torch", "sixth", "--index", index, "--python", venv, "--gfx", TARGET, "--dry-run"
    )
    assert ["sixth", version] in [line.split()[:2] for line in planned.out.splitlines()], planned.out
