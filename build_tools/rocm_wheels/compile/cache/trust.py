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
from rocm_wheels.compile.cache.trial import RETRY_PAUSES, TrialCompile, CacheTrial, open_trial
from rocm_wheels.compile.sdk_tree import SdkTree
from rocm_wheels.model.gfx import strip_features

CACHE_TEST_VERSION = "1"  # raise it when a verdict of this module could be another one
NOT_APPLICABLE = "not applicable"

_OTHER_TARGETS = ("gfx1100", "gfx942", "gfx90a", "gfx1030")


@dataclass(frozen=True)
class TrustCheck:
    """One thing that was tried; ``passed`` is ``None`` where it does not apply to this toolchain."""

    what: str
    expected: str
    seen: str
    passed: bool | None


@dataclass(frozen=True)
class CacheVerdict:
    """Whether device objects may be taken from the cache, and why."""

    trusted: bool
    checks: tuple[TrustCheck, ...]


def check_cache_trust(
    cache: CompilerCache, sdk: SdkTree, target: str, folder: Path, env: Mapping[str, str]
) -> CacheVerdict:
    """Try the cache with device code for ``target``, as a build on Linux would use it.

    ``env`` is the user's. What is tried goes into ``folder`` alone: a cache of its own and, for sccache,
    a server of its own, so the user's cache neither answers nor learns anything. ccache's settings are
    the user's, except where it stores. Raises BuildError when the compiler itself fails.
    """
    with open_trial(cache, sdk, folder, env) as trial:
        checks = (
            _check_repeat(trial, target),
            _check_device_header(trial, target),
            _check_other_target(trial, target),
            _check_device_library(trial, target),
        )
    return CacheVerdict(all(check.passed is not False for check in checks), checks)


def _check_repeat(trial: CacheTrial, target: str) -> TrustCheck:
    """Compile the same source again: it must be answered. What is cached is stored with a little delay."""
    trial.write_header(3, hours=3)
    first = second = trial.compile_kernel(target)
    for pause in RETRY_PAUSES:
        second = trial.compile_kernel(target)
        if second.outcome != "miss":
            break
        time.sleep(pause)
    same = second.digest == first.digest
    outcome = second.outcome if second.outcome != "hit" else f"hit, {'the same' if same else 'other'} bytes"
    return TrustCheck(
        "the same source compiled twice", "hit, the same bytes", outcome, second.outcome == "hit" and same
    )


def _check_device_header(trial: CacheTrial, target: str) -> TrustCheck:
    """Change what only device code reads."""
    before = trial.compile_kernel(target)
    trial.write_header(5, hours=1)
    return _require_difference(
        "a header that only device code reads, changed", before, trial.compile_kernel(target)
    )


def _check_other_target(trial: CacheTrial, target: str) -> TrustCheck:
    """Compile for another GPU."""
    description = "another --offload-arch"
    others = [other for other in _OTHER_TARGETS if other != strip_features(target)]
    other = next(filter(trial.can_compile, others), None)
    if other is None:
        return TrustCheck(
            description, "miss", f"{NOT_APPLICABLE}: this ROCm compiles for {target} alone", None
        )
    return _require_difference(
        f"{description} ({other})", trial.compile_kernel(target), trial.compile_kernel(other)
    )


def _check_device_library(trial: CacheTrial, target: str) -> TrustCheck:
    """Change a device library that clang links in; four zeros at its end leave its code as it was."""
    description, expected = "a device library in HIP_DEVICE_LIB_PATH, changed", "miss"
    if trial.sdk.bitcode is None:
        return TrustCheck(description, expected, f"{NOT_APPLICABLE}: this ROCm has no folder of them", None)
    copy = trial.folder / "bitcode"
    shutil.copytree(trial.sdk.bitcode, copy)
    trial = replace(trial, env={**trial.env, "HIP_DEVICE_LIB_PATH": os.fspath(copy)})
    linked = [path for path in trial.find_linked_libraries(target) if path.parent == copy.resolve()]
    if not linked:
        return TrustCheck(
            description, expected, f"{NOT_APPLICABLE}: this compiler links none from there", None
        )
    trial.compile_kernel(target)
    with linked[0].open("ab") as library:
        library.write(bytes(4))
    outcome = trial.compile_kernel(target).outcome
    return TrustCheck(f"{description} ({linked[0].name})", expected, outcome, outcome == "miss")


def _require_difference(description: str, before: TrialCompile, after: TrialCompile) -> TrustCheck:
    other = after.digest != before.digest
    outcome = f"{after.outcome}, {'other' if other else 'the same'} bytes"
    return TrustCheck(description, "miss, other bytes", outcome, after.outcome == "miss" and other)
