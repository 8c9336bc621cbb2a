"""Checkout and hipify of the miniature's torch, with PyTorch's own hipify; audio by torch's pin."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from source_trees import isolated_environment, times

from rocm_wheels.core import get_project_home
from rocm_wheels.demo import fetch_hipify, make_repositories
from rocm_wheels.models import load_project
from rocm_wheels.sources import (
    CheckoutRequest,
    checkout_project,
    choose_pin,
    find_translated_line,
    hipify_checkout,
    identify_tree,
)

pytestmark = pytest.mark.network


def test_from_clone_to_one_edit(tmp_path: Path) -> None:
    real = {k: v for k, v in os.environ.items() if k not in ("PIP_FIND_LINKS", "UV_FIND_LINKS")}
    env, python = isolated_environment(tmp_path / "home"), Path(sys.executable)
    made = make_repositories(
        get_project_home() / "tests/miniature",
        tmp_path / "repositories",
        hipify=fetch_hipify(tmp_path / "cache", env=real),
        env=env,
    )
    torch, audio = load_project("pytorch"), load_project("pytorch_audio")
    heads = []
    for folder, committed in (("one", True), ("two", True), ("three", False)):
        pin = choose_pin(torch, origin=made["pytorch"].url, ref="nightly")
        request = CheckoutRequest(
            torch, tmp_path / folder, pin, depth=1, commit_hipify=committed, local_origin=True
        )
        heads.append(checkout_project(request, env=env, python=python).head)
        assert not checkout_project(request, env=env, python=python).changed
    assert heads[0] == heads[1] != made["pytorch"].commit == heads[2]
    for folder, committed in (("one", True), ("three", False)):
        tree = tmp_path / folder
        assert not identify_tree(tree, env=env).dirty
        kernel = sorted(tree.glob("aten/src/ATen/native/cuda/*.cu"))[0]
        before = times(tree)
        again = hipify_checkout(torch, tree, commit=committed, env=env, python=python)
        assert (again.changed, again.head) == ((), heads[0] if committed else heads[2])
        assert times(tree) == before
        header = (tree / "torch/csrc/cuda/Module.h").read_text()
        assert "either rocm/cuda.h or hip/driver_types.h" in header
        kernel.write_text(kernel.read_text() + "// edited\n")
        hip = f"aten/src/ATen/native/hip/{kernel.stem}.hip"
        assert hipify_checkout(torch, tree, commit=False, env=env, python=python).changed == (hip,)
        assert {path for path, at in times(tree).items() if at != before.get(path)} == {
            str(kernel.relative_to(tree)),
            hip,
        }  # not the header, which the script would translate again
        translated = (tree / hip).read_text().splitlines()
        for line, text in enumerate(kernel.read_text().splitlines(), start=1):
            if text in translated and len(text) > 5:  # hipify adds a line at the top
                place = find_translated_line(tree / hip, translated.index(text) + 1, env=env)
                assert place == (kernel, line), text
        assert find_translated_line(tree / "setup.py", 1, env=env) is None
    pin = choose_pin(audio, torch_dir=tmp_path / "one", require_related_commit=True)
    request = CheckoutRequest(audio, tmp_path / "audio", pin)
    assert checkout_project(request, env=env, python=python).head == made["audio"].commit
