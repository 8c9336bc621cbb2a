"""Check that AddressSanitizer is where a version says so, and nowhere else.

What is compiled with it stops a process that did not load its runtime first: nobody may get it who did not
ask for it. Its versions sort above those without it, so that installers take them wherever both are.
"""

from __future__ import annotations

from rocm_wheels.audit import set_environments
from rocm_wheels.audit.audited_set import AuditedSet
from rocm_wheels.audit.audited_wheel import AuditedWheel
from rocm_wheels.audit.definition import Findings, check, error, join_names
from rocm_wheels.binaries import asan
from rocm_wheels.models import versions


@check("RW094 asan-label (error)")
def check_asan_label(wheel: AuditedWheel) -> Findings:
    """Libraries with AddressSanitizer are in a wheel whose version says `asan`, and such a wheel has some.

    Why: Without its runtime before everything else, loading one ends the process.
    Fix: Build all of it with `--packaging asan`, or nothing.
    """
    wheel.require_linux_libraries()
    instrumented = sorted(name for name, binary in wheel.binaries.items() if asan.is_instrumented(binary))
    is_labelled = versions.is_asan_version(wheel.name.version)
    if instrumented and not is_labelled:
        members = join_names(instrumented)
        yield error(f"compiled with AddressSanitizer, and the version does not say so: {members}")
    if is_labelled and not instrumented:
        yield error(f"is named {wheel.name.version}, and none of its libraries has AddressSanitizer")
    if len(runtimes := asan.list_runtimes(wheel.binaries.values())) > 1:
        yield error(f"needs several of its runtimes, and a process has one: {join_names(runtimes)}")


@check("RW095 set-asan (error)", kind="set")
def check_set_asan(subject: AuditedSet) -> Findings:
    """All wheels of the set that belong together have AddressSanitizer, with one runtime, or none has.

    Why: Loading one ends the process, and installers take it for the newer one.
    Fix: Keep wheels with it in a folder, an index and a channel of their own.
    """
    labelled, plain = list[AuditedWheel](), list[AuditedWheel]()
    for project in set_environments.require_stack(subject):
        for wheel in subject.wheels_by_project[project]:
            (labelled if versions.is_asan_version(wheel.name.version) else plain).append(wheel)
    for wheel in plain if labelled else ():
        yield error(f"has no AddressSanitizer, and {labelled[0].scan.path.name} has", wheel.scan.path.name)
    runtimes = asan.list_runtimes(binary for wheel in labelled for binary in wheel.binaries.values())
    if len(runtimes) > 1:
        yield error(f"needs several runtimes, and a process has one: {join_names(runtimes)}")
