"""Where torch's own tests come from: the commit of a lock, or a folder."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocm_wheels.cli import network

if TYPE_CHECKING:
    from rocm_wheels.testing.target import TargetPython
    from rocm_wheels.testing.torch_tests.sources import TorchTestSources

_NETWORK_DEFAULTS = {"retries": 4, "timeout": 120, "jobs": 1}


def find_test_sources(
    options: Mapping[str, Any], target: TargetPython, env: Mapping[str, str]
) -> TorchTestSources:
    """Return the folder of the tests, checked out where a lock says which.

    Without ``--lock`` and ``--pytorch-dir`` it is the lock inside the installed torch; where that has none,
    the folder that torch is checked out to. Raises UsageError, DataError and SourceError: no lock, no such
    commit, tests of another torch.
    """
    from rocm_wheels.model.names import get_recipes_folder
    from rocm_wheels.testing.torch_tests.sources import has_torch_lock, find_torch_lock, inspect_test_sources

    folder: Path | None = options["pytorch_dir"]
    lock: Path | None = options["lock"]
    if lock is None and folder is None:
        checkout = get_recipes_folder() / "pytorch"
        if not has_torch_lock(target) and (checkout / "version.txt").is_file():
            folder = checkout
        else:
            lock = find_torch_lock(target)
    if lock is not None:
        folder = folder or Path("torch-test-sources")
        _check_out_tests(lock, folder, options, env)
    assert folder is not None
    return inspect_test_sources(folder.absolute(), target, env, allow_other=options["allow_version_mismatch"])


def _check_out_tests(lock: Path, folder: Path, options: Mapping[str, Any], env: Mapping[str, str]) -> None:
    """Check out what a lock says of torch: its files alone, without history, submodules and hipify."""
    from dataclasses import replace

    from rocm_wheels.cli.checkout_options import TORCH, detect_platform
    from rocm_wheels.model.project import load_project
    from rocm_wheels.sources.checkout import checkout_project
    from rocm_wheels.sources.lock.follow import (
        check_checkout,
        read_locked_patches,
        read_locked_pin,
        open_lock,
    )
    from rocm_wheels.sources.network.remote import parse_origin
    from rocm_wheels.sources.request import CheckoutRequest

    file = open_lock(lock, detect_platform())
    recipe, pin = load_project(TORCH), read_locked_pin(file, TORCH)
    patches = read_locked_patches(file, TORCH, _find_patches_folder())
    if patches is not None:  # what is changed in submodules changes no test
        patches = replace(
            patches, base={"": patches.base.get("", ())} if "" in patches.base else {}, hipified={}
        )
    request = CheckoutRequest(
        recipe,
        folder.absolute(),
        pin,
        depth=1,
        submodules=False,
        hipify=False,
        local_origin=parse_origin(pin.origin, Path.cwd())[1],
        patches=patches if patches is not None and patches.list_patches() else None,
        transport=network.make_transport({"mirror_dir": options["mirror_dir"], **_NETWORK_DEFAULTS}),
    )
    done = checkout_project(request, env=env, python=Path(sys.executable))
    check_checkout(file, request, done, env=env)


def _find_patches_folder() -> Path:
    from rocm_wheels.workspace import get_project_home

    return get_project_home() / "patches"
