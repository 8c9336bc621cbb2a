"""Checkout and hipify of the miniature's torch, with PyTorch's own hipify; audio by torch's pin."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from commands import run_program
from miniature import SOURCE, fetch_hipify, make_repositories
from sources import content, isolated_environment, times
from warm_python import warm_python

from rocm_wheels.models import project
from rocm_wheels.sources import checkout, hipify, hipify_record, pins, trees

pytestmark = [pytest.mark.network]
CLONE = Path(__file__).resolve().parents[2]


@pytest.mark.contract
def test_from_clone_to_one_edit(tmp_path: Path) -> None:
    real = {k: v for k, v in os.environ.items() if k not in ("PIP_FIND_LINKS", "UV_FIND_LINKS")}
    env, python = isolated_environment(tmp_path / "home"), Path(sys.executable)
    made = make_repositories(
        SOURCE,
        tmp_path / "repositories",
        hipify=fetch_hipify(tmp_path / "cache", env=real),
        env=env,
    )
    torch, audio = project.load_project("pytorch"), project.load_project("pytorch_audio")
    heads = []
    for folder, committed in (("one", True), ("two", True), ("three", False)):
        pin = pins.choose_pin(torch, origin=made["pytorch"].url, ref="nightly")
        request = checkout.CheckoutRequest(
            torch, tmp_path / folder, pin, depth=1, commit_hipify=committed, local_origin=True
        )
        heads.append(checkout.checkout_project(request, env=env, python=python).head)
        assert not checkout.checkout_project(request, env=env, python=python).changed
    assert heads[0] == heads[1] != made["pytorch"].commit == heads[2]
    for folder, committed in (("one", True), ("three", False)):
        tree = tmp_path / folder
        assert not trees.identify_tree(tree, env=env).dirty
        kernel = sorted(tree.glob("aten/src/ATen/native/cuda/*.cu"))[0]
        before = times(tree)
        again = hipify.hipify_checkout(torch, tree, commit=committed, env=env, python=python)
        assert (again.changed, again.head) == ((), heads[0] if committed else heads[2])
        assert times(tree) == before
        header = (tree / "torch/csrc/cuda/Module.h").read_text()
        assert "either rocm/cuda.h or hip/driver_types.h" in header
        kernel.write_text(kernel.read_text() + "// edited\n")
        hip = f"aten/src/ATen/native/hip/{kernel.stem}.hip"
        assert hipify.hipify_checkout(torch, tree, commit=False, env=env, python=python).changed == (hip,)
        assert {path for path, at in times(tree).items() if at != before.get(path)} == {
            str(kernel.relative_to(tree)),
            hip,
        }  # not the header, which the script would translate again
        translated = (tree / hip).read_text().splitlines()
        for line, text in enumerate(kernel.read_text().splitlines(), start=1):
            if text in translated and len(text) > 5:  # hipify adds a line at the top
                place = hipify_record.find_translated_line(tree / hip, translated.index(text) + 1, env=env)
                assert place == (kernel, line), text
        assert hipify_record.find_translated_line(tree / "setup.py", 1, env=env) is None
    pin = pins.choose_pin(audio, torch_dir=tmp_path / "one", require_related_commit=True)
    request = checkout.CheckoutRequest(audio, tmp_path / "audio", pin)
    assert checkout.checkout_project(request, env=env, python=python).head == made["audio"].commit


@pytest.mark.contract_slow
def test_what_hipify_cannot_translate_is_named_and_the_tree_stays(tmp_path: Path) -> None:
    real = {k: v for k, v in os.environ.items() if k not in ("PIP_FIND_LINKS", "UV_FIND_LINKS")}
    env = isolated_environment(tmp_path / "home")
    made, tree = tmp_path / "made", tmp_path / "pytorch"
    shutil.copytree(SOURCE / "pytorch", made)
    shutil.copytree(SOURCE / "minigemm", made / "third_party/minigemm")
    shutil.copytree(fetch_hipify(tmp_path / "cache", env=real), made / "torch/utils/hipify")
    kernels, outside = "aten/src/ATen/native/cuda", tmp_path / "outside.cuh"
    for odd in (made / "docs/latin.cu", made / kernels / "table.bin"):  # hipify reads neither
        odd.parent.mkdir(exist_ok=True)
        odd.write_bytes(b"// \xe9\0\n")
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "one"], ["clone", "-q", made, tree]):
        subprocess.run([*git, *words], cwd=made, env=env, check=True)

    def refuse(faults: dict[str, str]) -> None:
        before = content(tree), times(tree), outside.read_bytes()
        done = run_program([*warm_python(), *command, "--no-commit-hipify"], cwd=tmp_path, env=env)
        assert done.code == 10, done.err
        for name, place in faults.items():
            assert any(name in line and place in line for line in done.err.splitlines()), done.err
        assert (content(tree), times(tree), outside.read_bytes()) == before

    command = [str(CLONE / "repos/pytorch_torch_repo.py"), "hipify", "--checkout-dir", str(tree)]
    outside.write_text("int f() { return cudaSuccess; }\n")
    data = {
        "Latin.cu": (b"// \xe9t\xe9\n", "byte 3"),
        "Mark.cuh": (b"\xef\xbb\xbfint f();\n", "byte 0"),
        "Nul.cu": (b"int f();\n\0", "byte 9"),
        "Wide.h": ("int f();".encode("utf-16"), "byte 0"),
    }
    for name, (bad, _) in data.items():
        (tree / kernels / name).write_bytes(bad)
    (tree / kernels / "Link.cu").symlink_to(outside)
    refuse({name: place for name, (_, place) in data.items()} | {"Link.cu": str(outside)})
    for name in (*data, "Link.cu"):
        (tree / kernels / name).unlink()
    # when others were translated already: in the submodule; through a link
    wrong = tree / "third_party/minigemm/csrc/wrong.cu"
    wrong.write_bytes(b"\xe9")
    refuse({"third_party/minigemm/csrc/wrong.cu": "byte 0"})
    wrong.unlink()
    include = f'#include "{os.path.relpath(outside, tree / kernels)}"\n'  # hipify does not follow it
    (tree / kernels / "Up.cu").write_text(f"{include}int g() {{ return cudaSuccess; }}\n")
    (tree / kernels.replace("cuda", "hip")).mkdir(exist_ok=True)
    link = tree / kernels.replace("cuda", "hip") / "Up.hip"
    link.symlink_to(outside)
    refuse({"Up.hip": "out of the tree"})
    link.unlink()
    link.write_text("// mine, and not committed\n")
    refuse({"Up.hip": "of yours"})
    link.unlink()
    done = run_program([*warm_python(), *command, "--no-commit-hipify"], cwd=tmp_path, env=env)
    assert done.code == 0 and "hipSuccess" in link.read_text(), done.err
    assert "cudaSuccess" in outside.read_text()
