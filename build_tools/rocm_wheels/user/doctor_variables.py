"""What ``doctor`` checks of the environment of the process: variables that harm, override, hide, or mislead.

Owns ``data/doctor_variables.yaml``.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Literal

from pydantic import field_validator

from rocm_wheels.core import errors, records, shell, tables
from rocm_wheels.core.errors import Finding
from rocm_wheels.gpus.gpu import format_override_version, parse_override_version
from rocm_wheels.gpus.variables import HIP_VISIBLE_DEVICES, OVERRIDE_VARIABLE, ROCR_VISIBLE_DEVICES
from rocm_wheels.models import facts, gfx, project_names
from rocm_wheels.user import gpu_support
from rocm_wheels.user.doctor_subject import DoctorSubject, error, info, join_some, ok, warning

_ALLOCATOR_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
_ALLOCATORS = ("native", "cudaMallocAsync", "hipMallocAsync")


class VariableHarm(facts.Fact):
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


class AllocatorKeys(facts.Fact):
    """The settings that torch's allocator knows."""

    keys: tuple[str, ...]


class VariableHarms(facts.FactTable):
    """The table: what harms by variable."""

    variables: Mapping[str, tuple[VariableHarm, ...]]
    allocator_keys: AllocatorKeys


@lru_cache
def load_variable_harms() -> VariableHarms:
    """Return the table."""
    return records.load_record(project_names.get_data_folder() / "doctor_variables.yaml", VariableHarms)


def check_harmful(subject: DoctorSubject) -> Iterator[Finding]:
    """Look the variables of the process up in the table."""
    table = load_variable_harms()
    for name, cases in table.variables.items():
        value = subject.env.get(name)
        for harm in cases if value is not None else ():
            if re.fullmatch(harm.when, value or ""):
                tell = warning if harm.severity == "warning" else info
                source = table.sources[harm.source].url
                yield tell(f"{name}={value}: {harm.text}", harm.fix or f"unset {name}", source)


def check_override(subject: DoctorSubject) -> Iterator[Finding]:
    """Judge HSA_OVERRIDE_GFX_VERSION: harmful where native kernels exist, or for another major version."""
    names = []
    for name in sorted(name for name in subject.env if name.startswith(OVERRIDE_VARIABLE)):
        with contextlib.suppress(ValueError):  # what is no version is told of by the look at GPUs
            names += [name] if parse_override_version(subject.env[name]) else []
    if not names:
        return
    statement = ", ".join(f"{name}={subject.env[name]}" for name in names)
    unset = f"unset {' '.join(names)}"
    if subject.stated:
        yield ok(f"{statement} is set here; it does not count for the GPUs that are stated")
        return
    if subject.machine.platform == "win32":
        yield info(f"{statement}: the runtime of Windows does not read it", unset)
        return
    targets = [target for code in subject.codes.get("torch", ()) for target in code.targets]

    def runs(target: str) -> bool:
        return gpu_support.check_kernel_support(targets, target).runs

    pairs = [(gpu.native, gpu.gfx) for gpu in subject.hardware.amd if gpu.native and gpu.gfx]
    posing = [(native, target) for native, target in dict.fromkeys(pairs) if native != target]
    for native, target in posing:
        text = f"{statement} makes {native} pose as {target}"
        majors = {format_override_version(chip).split(".")[0] for chip in (native, target)}
        place = ["--python", str(subject.python)] if subject.python else []
        fix = shell.format_command(["rocm-wheels", "configure", "--print", *place])
        fix += "   # what this card needs"
        if len(majors) > 1:
            text = f"{statement}: {native} cannot run code for {target}: another generation"
            yield error(f"{text}; programs crash or refuse to start", unset)
        elif runs(native):
            yield warning(f"{text}, although torch has kernels for {native} itself", unset)
        elif runs(target):
            yield info(f"{text}, which is untested", fix)
        else:
            lack = ", and torch has no kernels for that either" if targets else ""
            yield warning(f"{text}, which is untested{lack}", fix)
    if not posing:
        text = "changes nothing here" if pairs else "there is no GPU that it could be meant for"
        yield info(f"{statement}: {text}", unset)


def check_devices(subject: DoctorSubject) -> Iterator[Finding]:
    """Tell of lists of devices that torch refuses together."""
    hip, rocr = subject.env.get(HIP_VISIBLE_DEVICES), subject.env.get(ROCR_VISIBLE_DEVICES)
    if hip and rocr is not None and len(hip.split(",")) > len(rocr.split(",")):
        yield error(
            f"{HIP_VISIBLE_DEVICES}={hip} names more GPUs than {ROCR_VISIBLE_DEVICES}={rocr}: "
            "torch.cuda.device_count() fails",
            f"unset {HIP_VISIBLE_DEVICES}   # it counts among those that {ROCR_VISIBLE_DEVICES} leaves",
            load_variable_harms().sources["torch-cuda-init"].url,
        )


def check_architectures(subject: DoctorSubject) -> Iterator[Finding]:
    """Judge PYTORCH_ROCM_ARCH, which is read when something is compiled, and never later."""
    name = gfx.TARGETS_VARIABLE
    value = subject.env.get(name)
    if not value:
        return
    try:
        chosen = {gfx.strip_features(target) for target in gfx.parse_targets(value, input_name=name)}
    except errors.RocmWheelsError as refusal:
        yield warning(refusal.message, f"unset {name}")
        return
    absent = [target for target in subject.hardware.targets if target not in chosen]
    if absent:
        text = f"{name}={value}: extensions compiled here get no kernels for {join_some(absent)}"
        yield warning(text, f"unset {name}")
    else:
        text = f"{name}={value} is for compiling; it changes nothing of what is installed"
        yield info(text, f"unset {name}   # unless you compile")


def check_allocator(subject: DoctorSubject) -> Iterator[Finding]:
    """Tell of settings of torch's allocator that it does not know: it refuses to start."""
    table = load_variable_harms()
    keys, source = table.allocator_keys.keys, table.sources[table.allocator_keys.source].url
    names = [name for name in _ALLOCATOR_VARIABLES if subject.env.get(name)]
    for name in names:
        # commas inside […] part the values of one setting
        settings = re.sub(r"\[[^\]]*\]", "", subject.env[name]).split(",")
        for setting in filter(None, map(str.strip, settings)):
            key, colon, value = (part.strip() for part in setting.partition(":"))
            unset = f"unset {name}"
            if not key or not colon:
                text = f"{name}: {setting!r} is not KEY:VALUE; torch refuses it when it first uses a GPU"
                yield error(text, f"export {name}=expandable_segments:True   # for example", source)
            elif key not in keys:
                hint = tables.suggest_name(key, keys)
                text = f"{name}: torch refuses settings that it does not know, like {key!r}{hint}"
                yield (error if hint else warning)(text, unset, source)
            elif key == "backend" and value not in _ALLOCATORS:
                yield error(f"{name}: torch has no allocator {value!r}", unset, source)
    if len({subject.env[name] for name in names}) > 1:
        text = f"{' and '.join(names)} differ: {names[0]} is the one that counts"
        yield info(text, f"unset {' '.join(names[1:])}", source)


CHECKS = (
    check_harmful,
    check_override,
    check_devices,
    check_architectures,
    check_allocator,
)
