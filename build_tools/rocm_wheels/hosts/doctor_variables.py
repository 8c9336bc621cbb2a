"""Check environment variables: harmful ones from a table with sources, and those that depend on the machine.

Owns ``data/doctor_variables.yaml``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Literal

from pydantic import field_validator

from rocm_wheels.core import Finding, RocmWheelsError, load_record, suggest_name
from rocm_wheels.gpus import (
    HIP_VISIBLE_DEVICES,
    OVERRIDE_VARIABLE,
    ROCR_VISIBLE_DEVICES,
    Gpu,
    format_override_version,
    parse_override_version,
)
from rocm_wheels.hosts.gpu_support import check_kernel_support
from rocm_wheels.hosts.installed_kernels import list_kernel_targets
from rocm_wheels.hosts.machine import DoctorSubject, join_some
from rocm_wheels.models import TARGETS_VARIABLE as ARCHITECTURES
from rocm_wheels.models import Fact, FactTable, get_data_folder, parse_targets, strip_features

_ALLOCATOR_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")


class VariableHarm(Fact):
    """What a value of a variable does: ``when`` is a pattern for the whole value."""

    when: str
    severity: Literal["warning", "info"]
    text: str
    fix: str = ""

    @field_validator("when")
    @classmethod
    def _require_pattern(cls, value: str) -> str:
        try:
            re.compile(value)
        except re.error as cause:
            raise ValueError(f"{value!r} is not a regular expression: {cause}") from None
        return value


class AllocatorKeys(Fact):
    """The settings that torch's allocator knows."""

    keys: tuple[str, ...]


class VariableHarms(FactTable):
    """The table: what harms by variable."""

    variables: Mapping[str, tuple[VariableHarm, ...]]
    allocator_keys: AllocatorKeys


@lru_cache
def load_variable_harms() -> VariableHarms:
    """Return the table."""
    return load_record(get_data_folder() / "doctor_variables.yaml", VariableHarms)


def check_harmful_variables(subject: DoctorSubject) -> Iterator[Finding]:
    """Look the variables of the process up in the table."""
    table = load_variable_harms()
    for name, cases in table.variables.items():
        value = subject.env.get(name)
        for harm in cases if value is not None else ():
            if re.fullmatch(harm.when, value or ""):
                source = table.sources[harm.source].url
                yield Finding(
                    harm.severity, f"{name}={value}: {harm.text}", harm.fix or f"unset {name}", source=source
                )


def check_override(subject: DoctorSubject) -> Iterator[Finding]:
    """Judge HSA_OVERRIDE_GFX_VERSION: harmful where native kernels exist, or for another major version."""
    names = sorted(
        name for name in subject.env if name.startswith(OVERRIDE_VARIABLE) and _is_read(subject.env[name])
    )
    if not names:
        return
    statement = ", ".join(f"{name}={subject.env[name]}" for name in names)
    unset = f"unset {' '.join(names)}"
    if subject.machine.platform == "win32":
        yield Finding("info", f"{statement}: the runtime of Windows does not read it", unset)
        return
    try:
        targets = list_kernel_targets(subject.installed, "torch")
    except RocmWheelsError:  # the check of the kernels tells of it
        targets = ()
    posing = [gpu for gpu in subject.amd_gpus if gpu.native and gpu.gfx and gpu.native != gpu.gfx]
    for gpu in {(posing_gpu.native, posing_gpu.gfx): posing_gpu for posing_gpu in posing}.values():
        yield _judge_override(gpu, targets, statement, unset)
    if not posing:
        native = any(gpu.native for gpu in subject.amd_gpus)
        text = "changes nothing here" if native else "there is no GPU that it could be meant for"
        yield Finding("info", f"{statement}: {text}", unset)


def _is_read(text: str) -> bool:
    """Tell whether the runtime reads a version there; what is no version is told of by the look at GPUs."""
    try:
        return bool(parse_override_version(text))
    except ValueError:
        return False


def check_device_lists(subject: DoctorSubject) -> Iterator[Finding]:
    """Tell of lists of devices that torch refuses together."""
    hip, rocr = subject.env.get(HIP_VISIBLE_DEVICES), subject.env.get(ROCR_VISIBLE_DEVICES)
    if hip and rocr is not None and len(hip.split(",")) > len(rocr.split(",")):
        yield Finding(
            "error",
            f"{HIP_VISIBLE_DEVICES}={hip} names more GPUs than {ROCR_VISIBLE_DEVICES}={rocr}: "
            "torch.cuda.device_count() fails",
            f"unset {HIP_VISIBLE_DEVICES}   # it counts among those that {ROCR_VISIBLE_DEVICES} leaves",
            source=load_variable_harms().sources["torch-cuda-init"].url,
        )


def check_architectures(subject: DoctorSubject) -> Iterator[Finding]:
    """Judge PYTORCH_ROCM_ARCH, which is read when something is compiled, and never later."""
    value = subject.env.get(ARCHITECTURES)
    if not value:
        return
    try:
        chosen = {strip_features(target) for target in parse_targets(value, input_name=ARCHITECTURES)}
    except RocmWheelsError as error:
        yield Finding("warning", error.message, f"unset {ARCHITECTURES}")
        return
    absent = [gpu.gfx for gpu in subject.amd_gpus if gpu.gfx and gpu.gfx not in chosen]
    if absent:
        yield Finding(
            "warning",
            f"{ARCHITECTURES}={value}: extensions compiled here get no kernels for {join_some(absent)}",
            f"unset {ARCHITECTURES}",
        )
    else:
        text = "is for compiling; it changes nothing of what is installed"
        yield Finding(
            "info", f"{ARCHITECTURES}={value} {text}", f"unset {ARCHITECTURES}   # unless you compile"
        )


def check_allocator(subject: DoctorSubject) -> Iterator[Finding]:
    """Tell of settings of torch's allocator that it does not know: it refuses to start."""
    keys = load_variable_harms().allocator_keys
    source = load_variable_harms().sources[keys.source].url
    for name in _ALLOCATOR_VARIABLES:
        # commas inside […] part the values of one setting
        settings = re.sub(r"\[[^\]]*\]", "", subject.env.get(name, "")).split(",")
        for setting in (part.strip() for part in settings if part.strip()):
            key, colon, value = setting.partition(":")
            if not colon or not key.strip():
                text = f"{name}: {setting!r} is not KEY:VALUE; torch refuses it when it first uses a GPU"
                yield Finding(
                    "error", text, f"export {name}=expandable_segments:True   # for example", source=source
                )
            elif key.strip() not in keys.keys:
                hint = suggest_name(key.strip(), keys.keys)
                text = f"{name}: torch refuses settings that it does not know, like {key.strip()!r}{hint}"
                yield Finding("error" if hint else "warning", text, f"unset {name}", source=source)
            elif key.strip() == "backend" and value.strip() not in {
                "native",
                "cudaMallocAsync",
                "hipMallocAsync",
            }:
                yield Finding(
                    "error",
                    f"{name}: torch has no allocator {value.strip()!r}",
                    f"unset {name}",
                    source=source,
                )
    set_ones = [name for name in _ALLOCATOR_VARIABLES if subject.env.get(name)]
    if len({subject.env[name] for name in set_ones}) > 1:
        text = f"{' and '.join(set_ones)} differ: {set_ones[0]} is the one that counts"
        yield Finding("info", text, f"unset {' '.join(set_ones[1:])}", source=source)


def _judge_override(gpu: Gpu, targets: tuple[str, ...], statement: str, unset: str) -> Finding:
    native, target = gpu.native or "", gpu.gfx or ""
    if format_override_version(native).split(".")[0] != format_override_version(target).split(".")[0]:
        text = f"{native} cannot run code for {target}: another generation; programs crash or refuse to start"
        return Finding("error", f"{statement}: {text}", unset)
    if check_kernel_support(targets, native).runs:
        text = f"makes {native} pose as {target}, although torch has kernels for {native} itself"
        return Finding("warning", f"{statement} {text}", unset)
    fits = check_kernel_support(targets, target).runs
    text = f"makes {native} pose as {target}, which is untested"
    text += "" if fits or not targets else ", and torch has no kernels for that either"
    return Finding(
        "info" if fits else "warning",
        f"{statement} {text}",
        "rocm-wheels configure --print   # what this card needs",
    )
