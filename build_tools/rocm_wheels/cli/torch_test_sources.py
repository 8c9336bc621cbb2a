"""Where torch's own tests come from: the commit of a lock, or a folder."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocm_wheels.cli import network

if TYPE_CHECKING:
    from rocm_wheels.testing.target import Target
    from rocm_wheels.testing.torch_tests.sources import TestSources

_NETWORK = {"retries": 4, "timeout": 120, "jobs": 1}


def test_sources(given: Mapping[str, Any], target: Target, env: Mapping[str, str]) -> TestSources:
    """Return the folder of the tests, checked out where a lock says which.

    Without ``--lock`` and ``--pytorch-dir`` it is the lock inside the installed torch; where that has none,
    the folder that torch is checked out to. Raises UsageError, DataError and SourceError: no lock, no such
    commit, tests of another torch.
    """
    from rocm_wheels.model.names import recipes_folder
    from rocm_wheels.testing.torch_tests.sources import has_lock, lock_of_torch, look_at_sources

    folder: Path | None = given["pytorch_dir"]
    lock: Path | None = given["lock"]
    if lock is None and folder is None:
        checkout = recipes_folder() / "pytorch"
        if not has_lock(target) and (checkout / "version.txt").is_file():
            folder = checkout
        else:
            lock = lock_of_torch(target)
    if lock is not None:
        folder = folder or Path("torch-test-sources")
        _check_out(lock, folder, given, env)
    assert folder is not None
    return look_at_sources(folder.absolute(), target, env, allow_other=given["allow_version_mismatch"])


def _check_out(lock: Path, folder: Path, given: Mapping[str, Any], env: Mapping[str, str]) -> None:
    """Check out what a lock says of torch: its files alone, without history, submodules and hipify."""
    from dataclasses import replace

    from rocm_wheels.cli.checkout_options import TORCH, platform
    from rocm_wheels.model.project import load_project
    from rocm_wheels.sources.checkout import checkout
    from rocm_wheels.sources.lock.follow import check_checkout, locked_patches, locked_pin, open_lock
    from rocm_wheels.sources.network.remote import origin_of
    from rocm_wheels.sources.request import CheckoutRequest

    file = open_lock(lock, platform())
    recipe, pin = load_project(TORCH), locked_pin(file, TORCH)
    patches = locked_patches(file, TORCH, _patches())
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
        local_origin=origin_of(pin.origin, Path.cwd())[1],
        patches=patches if patches is not None and patches.all() else None,
        transport=network.transport_of({"mirror_dir": given["mirror_dir"], **_NETWORK}),
    )
    done = checkout(request, env=env, python=Path(sys.executable))
    check_checkout(file, request, done, env=env)


def _patches() -> Path:
    from rocm_wheels.workspace import home

    return home() / "patches"
