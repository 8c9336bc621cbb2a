"""Harmful environment variables: those of a table with sources, and those that depend on the machine.

Owns ``data/doctor_variables.yaml``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Literal

from pydantic import field_validator

from rocm_wheels.errors import RocmWheelsError
from rocm_wheels.gpus.forced import OVERRIDE
from rocm_wheels.gpus.gpu import Gpu
from rocm_wheels.gpus.names import read_version, version_of
from rocm_wheels.gpus.visible import HIP, ROCR
from rocm_wheels.hosts.doctor.subject import Finding, Subject, several
from rocm_wheels.hosts.installed.kernels import targets_of
from rocm_wheels.hosts.installed.serving import serve
from rocm_wheels.model.compat.facts import Fact, FactTable
from rocm_wheels.model.gfx import VARIABLE as ARCHITECTURES
from rocm_wheels.model.gfx import base_target, parse_targets
from rocm_wheels.model.names import data_folder
from rocm_wheels.records import did_you_mean, load

_ALLOCATOR = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")


class Harm(Fact):
    """What a value of a variable does: ``when`` is a pattern for the whole value."""

    when: str
    severity: Literal["warning", "info"]
    text: str
    fix: str = ""

    @field_validator("when")
    @classmethod
    def _is_a_pattern(cls, value: str) -> str:
        try:
            re.compile(value)
        except re.error as cause:
            raise ValueError(f"{value!r} is not a regular expression: {cause}") from None
        return value


class AllocatorKeys(Fact):
    """The settings that torch's allocator knows."""

    keys: tuple[str, ...]


class Harms(FactTable):
    """The table: what harms by variable."""

    variables: Mapping[str, tuple[Harm, ...]]
    allocator_keys: AllocatorKeys


@lru_cache
def harms() -> Harms:
    """Return the table."""
    return load(data_folder() / "doctor_variables.yaml", Harms)


def harmful(subject: Subject) -> Iterator[Finding]:
    """Look the variables of the process up in the table."""
    table = harms()
    for name, cases in table.variables.items():
        value = subject.env.get(name)
        for harm in cases if value is not None else ():
            if re.fullmatch(harm.when, value or ""):
                source = table.sources[harm.source].url
                yield Finding(
                    harm.severity, f"{name}={value}: {harm.text}", harm.fix or f"unset {name}", source
                )


def override(subject: Subject) -> Iterator[Finding]:
    """Judge HSA_OVERRIDE_GFX_VERSION: harmful where native kernels exist, or for another major version."""
    names = sorted(name for name in subject.env if name.startswith(OVERRIDE) and _is_read(subject.env[name]))
    if not names:
        return
    said = ", ".join(f"{name}={subject.env[name]}" for name in names)
    unset = f"unset {' '.join(names)}"
    if subject.machine.platform == "win32":
        yield Finding("info", f"{said}: the runtime of Windows does not read it", unset)
        return
    try:
        targets = targets_of(subject.installed, "torch")
    except RocmWheelsError:  # the check of the kernels tells of it
        targets = ()
    posing = [gpu for gpu in subject.amd if gpu.native and gpu.gfx and gpu.native != gpu.gfx]
    for gpu in {(one.native, one.gfx): one for one in posing}.values():
        yield _posing(gpu, targets, said, unset)
    if not posing:
        native = any(gpu.native for gpu in subject.amd)
        text = "changes nothing here" if native else "there is no GPU that it could be meant for"
        yield Finding("info", f"{said}: {text}", unset)


def _is_read(text: str) -> bool:
    """Tell whether the runtime reads a version there; what is no version is told of by the look at GPUs."""
    try:
        return bool(read_version(text))
    except ValueError:
        return False


def devices(subject: Subject) -> Iterator[Finding]:
    """Tell of lists of devices that torch refuses together."""
    hip, rocr = subject.env.get(HIP), subject.env.get(ROCR)
    if hip and rocr is not None and len(hip.split(",")) > len(rocr.split(",")):
        yield Finding(
            "error",
            f"{HIP}={hip} names more GPUs than {ROCR}={rocr}: torch.cuda.device_count() fails",
            f"unset {HIP}   # it counts among those that {ROCR} leaves",
            harms().sources["torch-cuda-init"].url,
        )


def architectures(subject: Subject) -> Iterator[Finding]:
    """Judge PYTORCH_ROCM_ARCH, which is read when something is compiled, and never later."""
    value = subject.env.get(ARCHITECTURES)
    if not value:
        return
    try:
        chosen = {base_target(one) for one in parse_targets(value, what=ARCHITECTURES)}
    except RocmWheelsError as wrong:
        yield Finding("warning", wrong.message, f"unset {ARCHITECTURES}")
        return
    absent = [gpu.gfx for gpu in subject.amd if gpu.gfx and gpu.gfx not in chosen]
    if absent:
        yield Finding(
            "warning",
            f"{ARCHITECTURES}={value}: extensions compiled here get no kernels for {several(absent)}",
            f"unset {ARCHITECTURES}",
        )
    else:
        text = "is for compiling; it changes nothing of what is installed"
        yield Finding(
            "info", f"{ARCHITECTURES}={value} {text}", f"unset {ARCHITECTURES}   # unless you compile"
        )


def allocator(subject: Subject) -> Iterator[Finding]:
    """Tell of settings of torch's allocator that it does not know: it refuses to start."""
    keys = harms().allocator_keys
    source = harms().sources[keys.source].url
    for name in _ALLOCATOR:
        # commas inside […] part the values of one setting
        settings = re.sub(r"\[[^\]]*\]", "", subject.env.get(name, "")).split(",")
        for setting in (one.strip() for one in settings if one.strip()):
            key, colon, value = setting.partition(":")
            if not colon or not key.strip():
                text = f"{name}: {setting!r} is not KEY:VALUE; torch refuses it when it first uses a GPU"
                yield Finding(
                    "error", text, f"export {name}=expandable_segments:True   # for example", source
                )
            elif key.strip() not in keys.keys:
                near = did_you_mean(key.strip(), keys.keys)
                text = f"{name}: torch refuses settings that it does not know, like {key.strip()!r}{near}"
                yield Finding("error" if near else "warning", text, f"unset {name}", source)
            elif key.strip() == "backend" and value.strip() not in {
                "native",
                "cudaMallocAsync",
                "hipMallocAsync",
            }:
                yield Finding(
                    "error", f"{name}: torch has no allocator {value.strip()!r}", f"unset {name}", source
                )
    set_ones = [name for name in _ALLOCATOR if subject.env.get(name)]
    if len({subject.env[name] for name in set_ones}) > 1:
        text = f"{' and '.join(set_ones)} differ: {set_ones[0]} is the one that counts"
        yield Finding("info", text, f"unset {' '.join(set_ones[1:])}", source)


def _posing(gpu: Gpu, targets: tuple[str, ...], said: str, unset: str) -> Finding:
    native, other = gpu.native or "", gpu.gfx or ""
    if version_of(native).split(".")[0] != version_of(other).split(".")[0]:
        text = f"{native} cannot run code for {other}: another generation; programs crash or refuse to start"
        return Finding("error", f"{said}: {text}", unset)
    if serve(targets, native).yes:
        text = f"makes {native} pose as {other}, although torch has kernels for {native} itself"
        return Finding("warning", f"{said} {text}", unset)
    fits = serve(targets, other).yes
    text = f"makes {native} pose as {other}, which nobody has tested"
    text += "" if fits or not targets else ", and torch has no kernels for that either"
    return Finding(
        "info" if fits else "warning",
        f"{said} {text}",
        "rocm-wheels configure --print   # what this card needs",
    )
