"""Check native libraries: what their tags promise, and what the loader would run and refuse.

Everything is judged from what ``scan_wheel`` read of each ELF and PE file; what libraries need of others is
in ``needs`` and ``symbols``.

Sources: the manylinux policies (pypa/auditwheel); ld.so(8); glibc 2.41, NEWS (executable stacks); System V
ABI, "Dynamic Section".
"""

from __future__ import annotations

import posixpath
import re

from packaging.utils import canonicalize_name

from rocm_wheels.audit.audited_wheel import (
    EXTENSION_MODULE,
    INSTALLED_ROOT,
    ORIGIN,
    TEST_FOLDER,
    AuditedWheel,
)
from rocm_wheels.audit.definition import Findings, Skip, check, error, join_names, note, warning
from rocm_wheels.core import tables
from rocm_wheels.core.errors import Finding
from rocm_wheels.models import ci
from rocm_wheels.models.libraries import is_rocm_library
from rocm_wheels.wheels import platform_promises


@check("RW012 elf-tag-too-old (error)")
def check_symbol_versions(wheel: AuditedWheel) -> Findings:
    """Libraries need no newer symbols than the tags promise.

    Why: Installers give it to older systems, where loading it ends with: version `GLIBC_2.34' not found.
    Fix: `rocm-wheels wheel repair` computes the tag; for an older one, build in that manylinux image.

    ``linux_x86_64`` promises nothing, and installers take it on every Linux: such a wheel may need what the
    image has that our own are built in, and no more.
    """
    platform = wheel.require_linux_libraries()
    tags = platform.fields.platform.split(".")
    if any(tag.startswith("musllinux") for tag in tags):
        raise Skip("it is for musl, too, of which there are no tables of symbols")
    policies = wheel.load_policies()
    policy_by_tag = {name: policy for policy in policies for name in (policy.name, *policy.aliases)}
    needed = platform_promises.compute_policy(policies, wheel.binaries.values())
    severity = "error"
    if bare_tags := [tag for tag in tags if tag.startswith("linux_")]:
        limit = f"{ci.load_container_table().wheel_platform}_{platform.architecture}"
        promised = policy_by_tag.get(limit, policies.lowest)
        if needed.priority >= promised.priority:
            raise Skip(f"{bare_tags[0]} promises nothing about symbols; they allow {needed.name}")
        severity = wheel.released_severity
        claim = f"installers take {bare_tags[0]} on every Linux, our wheels are for {promised.name}"
        tip = (
            "build in the image that `container resolve` prints; `rocm-wheels wheel repair` computes the tag"
        )
    else:
        if unknown := [tag for tag in tags if tag not in policy_by_tag]:
            raise Skip(f"auditwheel has no table for {unknown[0]}")
        promised = max((policy_by_tag[tag] for tag in tags), key=lambda policy: policy.priority)
        claim = f"its tag promises {promised.name}"
        tip = "`rocm-wheels wheel repair` computes the tag; an older one takes a compiler of that system"
    if needed.priority < promised.priority:
        is_newest = needed.name == policies.linux.name
        system = "a newer system than any tag stands for" if is_newest else needed.name
        reasons = join_names(platform_promises.explain_policy(policies, needed, wheel.binaries))
        finding = error if severity == "error" else warning
        yield finding(f"{claim}, and it needs {system}: {reasons}", tip=tip)


_DLL = re.compile(r"\.dll$", re.IGNORECASE)
# who has files for several machines inside says so in their names
_OTHER_MACHINE = re.compile(
    r"(?<![a-z0-9])(aarch64|arm|arm64|armv[5-8]\w*|x86|i[3-6]86|ia32|32|x32|ppc64\w*|powerpc\w*|riscv\w*|s390x?|mips\w*|loongarch\w*"
    r"|sparc\w*|wasm\w*|bpf\w*)(?![a-z0-9])"
)


@check("RW045 architecture (error)")
def check_architecture(wheel: AuditedWheel) -> Findings:
    """Libraries are for the machine that the tags name.

    Why: Loading ends with: wrong ELF class, or: cannot open shared object file.
    Fix: Build on that machine, or tag it for the one that it was built on.

    On Windows, programs and assemblies for 32 bits run beside those for 64: only what a process for 64 bits
    loads must be for its machine.
    """
    platform, machines = wheel.wheel_platform, wheel.scan.machines
    if platform is None or not (wheel.scan.binaries or machines or wheel.libraries):
        raise Skip("holds no native library for the system that it is for")
    if platform.system == "linux":
        foreign = {n: b.architecture for n, b in wheel.scan.binaries.items() if n not in wheel.binaries}
        foreign |= {n: m for n, m in machines.items() if wheel.has_recipe or n not in wheel.scan.imports}
    else:
        foreign = {
            member: other
            for member, other in machines.items()
            if other != platform.architecture
            and (member in wheel.loaded_libraries or (other in ("amd64", "arm64") and _DLL.search(member)))
        }
        if not machines and platform.system == wheel.expected.platform:
            foreign = {member: f"Linux on {b.architecture}" for member, b in wheel.scan.binaries.items()}
    is_beside = bool(wheel.binaries) or platform.architecture in machines.values()
    for member, other in sorted(foreign.items()):
        name = member.lower()
        for own in (platform.architecture, *(("x64", "x86-64") if platform.architecture == "amd64" else ())):
            name = name.replace(own, "")
        is_told = is_beside and _OTHER_MACHINE.search(name) and member not in wheel.loaded_libraries
        yield (note if is_told else error)(f"is for {other}, the wheel for {platform.architecture}", member)
    if platform.system == "linux":
        yield from _find_no_libraries(wheel)


def _find_no_libraries(wheel: AuditedWheel) -> Findings:
    """Yield what is named like a library for Linux, and is none.

    What is named as Python's modules are is imported, but for data of tests. In anybody's wheel a text may be
    a script of the linker (INPUT, GROUP), and what is empty may be there for tests; in ours both are what a
    build left unfinished.
    """
    read = {*wheel.scan.binaries, *wheel.scan.machines, *wheel.scan.device_code, *wheel.damaged_members}
    empty = {member.name for member in wheel.scan.members if not member.size}
    for member in sorted({*wheel.libraries} - read):
        module = EXTENSION_MODULE.search(member)
        is_module = module is not None and module["python"] is not None
        message = "is empty" if member in empty else "is named like a library, and is no ELF file"
        if wheel.has_recipe or (is_module and not TEST_FOLDER.search(member)):
            yield error(message, member)
        elif is_module or member in empty:
            yield warning(message, member)


_ANYBODYS_FOLDER = re.compile(r"/+(tmp|var/+tmp|dev/+shm)(/|$)")
_SYSTEM_FOLDER = re.compile(r"/(usr/)?lib(32|64)?(/|$)")
_PYTHON_FOLDER = re.compile(r"python[23]\.[0-9]+")


@check("RW021 run-paths (error)")
def check_run_paths(wheel: AuditedWheel) -> Findings:
    """No library looks into the builder's folders, or out of site-packages.

    Why: Where somebody else can make that folder, what lies in it is loaded.
    Fix: Link with entries relative to $ORIGIN; `rocm-wheels wheel repair` takes the others out.

    A warning: link steps of upstream projects leave such entries behind, and the loader passes
    over a folder that is not there. Where anybody can make it (``/tmp``), it is a hole, and an error; so
    it is in a wheel of ours with a manylinux tag: the repair that gave it the tag takes such entries out.
    """
    is_repaired = wheel.has_recipe and wheel.is_manylinux
    for member, entries in _list_run_paths(wheel):
        absolute = [entry for entry in entries if entry.startswith("/") and not _SYSTEM_FOLDER.match(entry)]
        if any(map(_ANYBODYS_FOLDER.match, absolute)):
            message = f"looks for libraries in {join_names(absolute)}, where anybody can put some"
            yield error(message, member)
        elif absolute:
            message = f"looks for libraries in {join_names(absolute)}"
            yield (error if is_repaired else warning)(message, member)
        relative = [entry for entry in entries if ORIGIN.match(entry)]
        if leaving := [entry for entry in relative if _leaves_site_packages(member, entry)]:
            yield warning(f"looks for libraries outside of site-packages: {join_names(leaving)}", member)
        if named := [entry for entry in relative if _PYTHON_FOLDER.search(entry) and entry not in leaving]:
            yield warning(f"looks for libraries in the folder of one Python: {join_names(named)}", member)


@check("RW046 open-run-paths (error)")
def check_open_run_paths(wheel: AuditedWheel) -> Findings:
    """No run path stands for the current folder.

    Why: Whoever can write into the folder that a program is started in has its libraries loaded.
    Fix: `rocm-wheels wheel repair` takes such entries out.

    In wheels of ours it is an error, but where they stay as they were built, for the builder's machine.
    """
    for member, entries in _list_run_paths(wheel):
        messages = []
        if "" in entries:
            messages.append("an empty entry in its run path: the loader looks in the current folder")
        if bare := [entry for entry in entries if entry and entry[0] not in "/$"]:
            messages.append(f"looks for libraries relative to the current folder: {join_names(bare)}")
        yield from (Finding(wheel.released_severity, message, subject=member) for message in messages)


def _list_run_paths(wheel: AuditedWheel) -> list[tuple[str, list[str]]]:
    return [
        (member, [entry for run_path in binary.run_paths for entry in run_path.entries])
        for member, binary in sorted(wheel.scan.binaries.items())
    ]


def _leaves_site_packages(member: str, entry: str) -> bool:
    if ".data/" in member and not INSTALLED_ROOT.match(member):
        return False  # a program, which is not installed into site-packages
    folder = posixpath.dirname(INSTALLED_ROOT.sub("", member))
    place = posixpath.normpath(posixpath.join(folder, ORIGIN.sub("", entry)))
    return place == ".." or place.startswith("../")


@check("RW026 executable-stack (error)")
def check_executable_stack(wheel: AuditedWheel) -> Findings:
    """No library asks for an executable stack.

    Why: glibc 2.41 and newer refuse to load it: cannot enable executable stack.
    Fix: Link with -z noexecstack; `patchelf --clear-execstack` takes the flag away.
    """
    for member, binary in wheel.binaries.items():
        if binary.has_executable_stack and not binary.loader.program:
            yield error("asks for an executable stack, which glibc 2.41 and newer refuse to load", member)


@check("RW027 text-relocations (error)")
def check_text_relocations(wheel: AuditedWheel) -> Findings:
    """No library has relocations in its code.

    Why: Its code is written to when it is loaded: SELinux refuses that, and no two processes share it.
    Fix: Compile with -fPIC.
    """
    for member, binary in wheel.binaries.items():
        if binary.has_text_relocations:
            message = "has relocations in its code (DT_TEXTREL)"
            yield Finding(wheel.severity, message, subject=member)


@check("RW028 duplicate-soname (warning)")
def check_sonames(wheel: AuditedWheel) -> Findings:
    """No two different libraries of one SONAME.

    Why: The loader takes the one that comes first, whoever asks for it.
    Fix: Leave one, or give them names of their own.
    """
    members: dict[str, list[str]] = {}
    for member, binary in wheel.binaries.items():
        if binary.loader.soname and not binary.loader.program:
            members.setdefault(binary.loader.soname, []).append(member)
    needed = {name for binary in wheel.binaries.values() for name in binary.loader.needed}
    for soname, names in sorted(members.items()):
        if len({wheel.digests.get(name, name) for name in names}) > 1:
            message = f"{soname} is {join_names(names)}: different files of one SONAME"
            yield (error if soname in needed else warning)(message, names[0])


_HASH = re.compile(r"-[0-9a-f]{8,}(?=\.so|\.dll)")
_OPENMP = re.compile(r"lib(gomp|omp|iomp5)(?:-[0-9a-f]{8,})?\.(?:so|dll)\b")
_HIP_RUNTIME = re.compile(r"libamdhip64\.so|amdhip64(_[0-9]+)?\.dll")
_LIBRARY = re.compile(r"lib[^/]*\.so(\.[0-9.]+)?$|[^/]*\.dll$", re.IGNORECASE)


def strip_hash(name: str) -> str:
    """Return the name of a library before a repair put a hash into it (``libx-1a2b3c4d.so.7``)."""
    return _HASH.sub("", name)


def find_openmp_kind(name: str) -> str | None:
    """Return which OpenMP runtime a library is by its file name (``gomp``); None for another library."""
    match = _OPENMP.match(name)
    return match[1] if match else None


@check("RW029 two-runtimes (error)")
def check_runtimes(wheel: AuditedWheel) -> Findings:
    """One HIP runtime and one OpenMP.

    Why: Two HIP runtimes crash in one process; two OpenMP runtimes start twice the threads.
    Fix: Leave one, and link everything to it.
    """
    hip = {
        wheel.digests.get(member, member): member
        for member in sorted(wheel.members)
        if _HIP_RUNTIME.match(strip_hash(posixpath.basename(member)))
    }
    if len(hip) > 1:
        yield error(f"two HIP runtimes: {join_names(hip.values())}: each has its own state of the GPUs")
    # two files are two runtimes, and so is what is needed from outside beside another kind
    inside = list_openmp_runtimes(wheel).values()
    needed = {name for binary in wheel.binaries.values() for name in binary.loader.needed}
    outside = {kind: name for name in sorted(needed) if (kind := find_openmp_kind(name)) is not None}
    for member in inside:
        outside.pop(str(find_openmp_kind(posixpath.basename(member))), None)
    if len(runtimes := [*inside, *outside.values()]) > 1:
        yield error(f"several OpenMP runtimes: {join_names(sorted(runtimes))}")


def list_openmp_runtimes(wheel: AuditedWheel) -> dict[str, str]:
    """Return the OpenMP runtimes inside, each once: members by their digests."""
    return {
        wheel.digests.get(member, member): member
        for member in wheel.binaries
        if find_openmp_kind(posixpath.basename(member))
    }


@check("RW030 grafted-rocm (error)")
def check_grafted_rocm(wheel: AuditedWheel) -> Findings:
    """No library of ROCm that a required package has.

    Why: Two copies of one ROCm library are loaded, and hundreds of megabytes are downloaded twice.
    Fix: Repair the wheel with --find-links to the ROCm packages: what these have stays outside.
    """
    name = canonicalize_name(wheel.scan.name.distribution) if wheel.scan.name else ""
    if wheel.rocm_folder is not None or name.startswith(("rocm", "amd-")):
        return
    # a torch for ROCm has these libraries, or requires who has them
    owner_name = re.compile(r"rocm.*|torch")
    requires = [r.name for r in wheel.requirements if owner_name.fullmatch(canonicalize_name(r.name))]
    owners = wheel.required.owners if wheel.required is not None else {}
    for member in sorted(wheel.members):
        file = posixpath.basename(member)
        if not _LIBRARY.match(file) or not is_rocm_library(strip_hash(file)):
            continue
        soname = wheel.binaries[member].loader.soname if member in wheel.binaries else None
        owner = owners.get(strip_hash(soname or file)) or owners.get(strip_hash(file))
        if owner or requires:
            message = f"is a library of ROCm, and {owner or requires[0]}, which is required, has or brings"
            yield error(f"{message} another", member)
        elif strip_hash(file) != file:
            message = "is a library of ROCm that a repair took from the builder's machine"
            yield Finding(wheel.severity, message, subject=member)


@check("RW042 debug-sections (info)")
def check_debug_sections(wheel: AuditedWheel) -> Findings:
    """No library holds debug information.

    Why: Everybody downloads it, and hardly anybody reads it.
    Fix: `strip --strip-debug` takes it out of a library, before the wheel is made.
    """
    sizes = {member: binary.debug_size for member, binary in wheel.binaries.items() if binary.debug_size}
    if total := sum(sizes.values()):
        largest = sorted(sizes, key=lambda member: -sizes[member])
        counted = tables.format_count(len(sizes), "library", "libraries")
        size = tables.format_size(total)
        yield note(f"{size} of debug information in {counted}: {join_names(largest)}", largest[0])
