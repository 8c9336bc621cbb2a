"""A self-test of a compiler cache: does it notice everything that device code depends on?

A cache that returns an old object makes a wheel that is wrong in silence. It happens when the
preprocessor of a toolchain does not show the cache what the device pass reads (a bundler that writes
``-`` as a file is enough), and with inputs that no preprocessor shows, as device libraries. So the very
programs that a build uses are tried: hipcc, the cache before clang, the target.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from rocm_wheels.compile.cache.program import CompilerCache
from rocm_wheels.compile.cache.trial import PAUSES, Compile, Trial, trial_in
from rocm_wheels.compile.sdk_tree import SdkTree
from rocm_wheels.model.gfx import base_target

CACHE_TEST_VERSION = "1"  # raise it when a verdict of this module could be another one
NOT_APPLICABLE = "not applicable"

_OTHER_TARGETS = ("gfx1100", "gfx942", "gfx90a", "gfx1030")


@dataclass(frozen=True)
class Check:
    """One thing that was tried; ``passed`` is ``None`` where it does not apply to this toolchain."""

    what: str
    expected: str
    seen: str
    passed: bool | None


@dataclass(frozen=True)
class CacheVerdict:
    """Whether device objects may be taken from the cache, and why."""

    trusted: bool
    checks: tuple[Check, ...]


def self_test(
    cache: CompilerCache, sdk: SdkTree, target: str, folder: Path, env: Mapping[str, str]
) -> CacheVerdict:
    """Try the cache with device code for ``target``, as a build on Linux would use it.

    ``env`` is the user's. What is tried goes into ``folder`` alone: a cache of its own and, for sccache,
    a server of its own, so the user's cache neither answers nor learns anything. ccache's settings are
    the user's, except where it stores. Raises BuildError when the compiler itself fails.
    """
    with trial_in(cache, sdk, folder, env) as trial:
        checks = (
            _twice(trial, target),
            _device_header(trial, target),
            _other_target(trial, target),
            _device_library(trial, target),
        )
    return CacheVerdict(all(check.passed is not False for check in checks), checks)


def _twice(trial: Trial, target: str) -> Check:
    """Compile the same source again: it must be answered. What is cached is stored with a little delay."""
    trial.write_header(3, hours=3)
    first = second = trial.compile(target)
    for pause in PAUSES:
        second = trial.compile(target)
        if second.word != "miss":
            break
        time.sleep(pause)
    same = second.digest == first.digest
    seen = second.word if second.word != "hit" else f"hit, {'the same' if same else 'other'} bytes"
    return Check("the same source compiled twice", "hit, the same bytes", seen, second.word == "hit" and same)


def _device_header(trial: Trial, target: str) -> Check:
    """Change what only device code reads."""
    before = trial.compile(target)
    trial.write_header(5, hours=1)
    return _must_differ("a header that only device code reads, changed", before, trial.compile(target))


def _other_target(trial: Trial, target: str) -> Check:
    """Compile for another GPU."""
    what = "another --offload-arch"
    others = [other for other in _OTHER_TARGETS if other != base_target(target)]
    other = next(filter(trial.can_compile, others), None)
    if other is None:
        return Check(what, "miss", f"{NOT_APPLICABLE}: this ROCm compiles for {target} alone", None)
    return _must_differ(f"{what} ({other})", trial.compile(target), trial.compile(other))


def _device_library(trial: Trial, target: str) -> Check:
    """Change a device library that clang links in; four zeros at its end leave its code as it was."""
    what, expected = "a device library in HIP_DEVICE_LIB_PATH, changed", "miss"
    if trial.sdk.bitcode is None:
        return Check(what, expected, f"{NOT_APPLICABLE}: this ROCm has no folder of them", None)
    copy = trial.folder / "bitcode"
    shutil.copytree(trial.sdk.bitcode, copy)
    trial = replace(trial, env={**trial.env, "HIP_DEVICE_LIB_PATH": os.fspath(copy)})
    linked = [path for path in trial.linked(target) if path.parent == copy.resolve()]
    if not linked:
        return Check(what, expected, f"{NOT_APPLICABLE}: this compiler links none from there", None)
    trial.compile(target)
    with linked[0].open("ab") as library:
        library.write(bytes(4))
    seen = trial.compile(target).word
    return Check(f"{what} ({linked[0].name})", expected, seen, seen == "miss")


def _must_differ(what: str, before: Compile, after: Compile) -> Check:
    other = after.digest != before.digest
    seen = f"{after.word}, {'other' if other else 'the same'} bytes"
    return Check(what, "miss, other bytes", seen, after.word == "miss" and other)
