"""Check native libraries: what their tags promise, and what the loader would find, run and refuse.

Everything is judged from what ``scan_wheel`` read of each ELF and PE file. A library that import never
loads (one for each ROCm, chosen at run time) may lack what it needs: without a recipe that is no error.

Sources: the manylinux policies (pypa/auditwheel); ld.so(8); glibc 2.41, NEWS (executable stacks); System V
ABI, "Dynamic Section"; adang1345/delvewheel (DLLs of Windows).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rocm_wheels.audit import audited_wheel, check
from rocm_wheels.binaries import loader
from rocm_wheels.core import errors, tables
from rocm_wheels.models import ci
from rocm_wheels.models.libraries import is_rocm_library
from rocm_wheels.wheels import platform_promises

if TYPE_CHECKING:
    from auditwheel.policy import WheelPolicies  # type: ignore[import-untyped]

_NO_TABLES = audited_wheel.SkippedCheck(
    "the tables of auditwheel and delvewheel are not installed: rocm-wheels[build]"
)
_NO_LIBRARY = audited_wheel.SkippedCheck("holds no native library for Linux")
_NO_NATIVE = audited_wheel.SkippedCheck("holds no native library for the system that it is for")
_NO_DLL = audited_wheel.SkippedCheck("holds no native library for Windows")


@check.check(
    "RW012 elf-tag-too-old (error)",
    why="Installers give it to older systems, where loading it ends with: version `GLIBC_2.34' not found.",
    fix="`rocm-wheels wheel repair` computes the tag; for an older one, build in that manylinux image.",
)
def check_symbol_versions(
    wheel: audited_wheel.AuditedWheel,
) -> list[errors.Finding] | audited_wheel.SkippedCheck:
    """Libraries need no newer symbols than the tags promise.

    ``linux_x86_64`` promises nothing, and installers take it on every Linux: such a wheel may need what the
    image has that our own are built in, and no more.
    """
    if not wheel.binaries or wheel.wheel_platform is None or wheel.wheel_platform.system != "linux":
        return _NO_LIBRARY
    tags = wheel.wheel_platform.fields.platform.split(".")
    if any(tag.startswith("musllinux") for tag in tags):
        return audited_wheel.SkippedCheck("it is for musl, too, of which there are no tables of symbols")
    try:
        policies = platform_promises.load_policies(wheel.wheel_platform.architecture)
    except ModuleNotFoundError:
        return _NO_TABLES
    policy_by_tag = {name: policy for policy in policies for name in (policy.name, *policy.aliases)}
    needed = platform_promises.compute_policy(policies, wheel.binaries.values())
    if bare_tags := [tag for tag in tags if tag.startswith("linux_")]:
        limit = f"{ci.load_container_table().wheel_platform}_{wheel.wheel_platform.architecture}"
        promised = policy_by_tag.get(limit, policies.lowest)
        if needed.priority >= promised.priority:
            return audited_wheel.SkippedCheck(
                f"{bare_tags[0]} promises nothing about symbols; they allow {needed.name}"
            )
        is_released = wheel.has_recipe and not wheel.expected.unrepaired
        severity: errors.Severity = "error" if is_released else "warning"
        claim = f"installers take {bare_tags[0]} on every Linux, our wheels are for {promised.name}"
        tip = (
            "build in the image that `container resolve` prints; `rocm-wheels wheel repair` computes the tag"
        )
    else:
        if unknown := [tag for tag in tags if tag not in policy_by_tag]:
            return audited_wheel.SkippedCheck(f"auditwheel has no table for {unknown[0]}")
        promised = max((policy_by_tag[tag] for tag in tags), key=lambda policy: policy.priority)
        if needed.priority >= promised.priority:
            return []
        severity, claim = "error", f"its tag promises {promised.name}"
        tip = "`rocm-wheels wheel repair` computes the tag; an older one takes a compiler of that system"
    system = "a newer system than any tag stands for" if needed.name == policies.linux.name else needed.name
    reasons = audited_wheel.join_names(platform_promises.explain_policy(policies, needed, wheel.binaries))
    return [errors.Finding(severity, f"{claim}, and it needs {system}: {reasons}", tip)]


@check.check(
    "RW045 architecture (error)",
    why="Loading ends with: wrong ELF class, or: cannot open shared object file.",
    fix="Build on that machine, or tag it for the one that it was built on.",
)
def check_architecture(
    wheel: audited_wheel.AuditedWheel,
) -> list[errors.Finding] | audited_wheel.SkippedCheck:
    """Libraries are for the machine that the tags name.

    On Windows, programs and assemblies for 32 bits run beside those for 64: only what a process for 64 bits
    loads must be for its machine.
    """
    platform = wheel.wheel_platform
    if platform is None or not (wheel.scan.binaries or wheel.scan.machines):
        return _NO_NATIVE
    if platform.system == "linux":
        foreign = {n: b.architecture for n, b in wheel.scan.binaries.items() if n not in wheel.binaries}
        foreign |= {n: other for n, other in wheel.scan.machines.items() if n not in wheel.scan.imports}
    else:
        foreign = {
            member: other
            for member, other in wheel.scan.machines.items()
            if other != platform.architecture
            and (member in wheel.loaded_libraries or (other in ("amd64", "arm64") and _DLL.search(member)))
        }
    named = (platform.architecture, *(("x64", "x86-64") if platform.architecture == "amd64" else ()))
    findings = []
    for member, other in sorted(foreign.items()):
        name = member.lower()
        for own in named:
            name = name.replace(own, "")
        is_told = _OTHER_MACHINE.search(name) and member not in wheel.loaded_libraries
        message = f"is for {other}, the wheel for {platform.architecture}"
        findings.append(errors.Finding("info" if is_told else "error", message, subject=member))
    return findings


_DLL = re.compile(r"\.dll$", re.IGNORECASE)
# who has files for several machines inside says so in their names
_OTHER_MACHINE = re.compile(
    r"(?<![a-z0-9])(aarch64|arm|arm64|armv[5-8]\w*|x86|i[3-6]86|ia32|32|x32|ppc64\w*|powerpc\w*|riscv\w*|s390x?|mips\w*|loongarch\w*"
    r"|sparc\w*|wasm\w*|bpf\w*)(?![a-z0-9])"
)


_ANYBODYS_FOLDER = re.compile(r"/+(tmp|var/+tmp|dev/+shm)(/|$)")
_SYSTEM_FOLDER = re.compile(r"/(usr/)?lib(32|64)?(/|$)")
_ORIGIN = re.compile(r"\$(?:ORIGIN|\{ORIGIN\})(?:/|$)")
_PYTHON_FOLDER = re.compile(r"python[23]\.[0-9]+")
_INSTALLED_ROOT = re.compile(r"^[^/]+\.data/(?:purelib|platlib)/")


@check.check(
    "RW021 run-paths (warning)",
    why="Where somebody else can make that folder, what lies in it is loaded.",
    fix="Link with entries relative to $ORIGIN; `rocm-wheels wheel repair` takes the others out.",
)
def check_run_paths(wheel: audited_wheel.AuditedWheel) -> list[errors.Finding]:
    """No library looks into the builder's folders, or out of site-packages.

    A warning: link steps of upstream projects leave such entries behind, and the loader passes
    over a folder that is not there. Where anybody can make it (``/tmp``), it is a hole, and an error.
    """
    findings = []
    for member, entries in _list_run_paths(wheel):
        absolute = [entry for entry in entries if entry.startswith("/") and not _SYSTEM_FOLDER.match(entry)]
        if absolute:
            anybody = any(map(_ANYBODYS_FOLDER.match, absolute))
            message = f"looks for libraries in {audited_wheel.join_names(absolute)}"
            message += ", where anybody can put some" if anybody else ""
            findings.append(errors.Finding("error" if anybody else "warning", message, subject=member))
        relative = [entry for entry in entries if _ORIGIN.match(entry)]
        if leaving := [entry for entry in relative if _leaves_site_packages(member, entry)]:
            message = f"looks for libraries outside of site-packages: {audited_wheel.join_names(leaving)}"
            findings.append(errors.Finding("warning", message, subject=member))
        if named := [entry for entry in relative if _PYTHON_FOLDER.search(entry) and entry not in leaving]:
            message = f"looks for libraries in the folder of one Python: {audited_wheel.join_names(named)}"
            findings.append(errors.Finding("warning", message, subject=member))
    return findings


@check.check(
    "RW046 open-run-paths (error)",
    why="Whoever can write into the folder that a program is started in has its libraries loaded.",
    fix="`rocm-wheels wheel repair` takes such entries out.",
)
def check_open_run_paths(wheel: audited_wheel.AuditedWheel) -> list[errors.Finding]:
    """No run path stands for the current folder.

    In wheels of ours it is an error, but where they stay as they were built, for the builder's machine.
    """
    severity: errors.Severity = "error" if wheel.has_recipe and not wheel.expected.unrepaired else "warning"
    findings = []
    for member, entries in _list_run_paths(wheel):
        if "" in entries:
            message = "an empty entry in its run path: the loader looks in the current folder"
            findings.append(errors.Finding(severity, message, subject=member))
        if bare := [entry for entry in entries if entry and entry[0] not in "/$"]:
            message = f"looks for libraries relative to the current folder: {audited_wheel.join_names(bare)}"
            findings.append(errors.Finding(severity, message, subject=member))
    return findings


def _list_run_paths(wheel: audited_wheel.AuditedWheel) -> Iterator[tuple[str, list[str]]]:
    for member, binary in sorted(wheel.scan.binaries.items()):
        yield member, [entry for run_path in binary.run_paths for entry in run_path.entries]


def _leaves_site_packages(member: str, entry: str) -> bool:
    if ".data/" in member and not _INSTALLED_ROOT.match(member):
        return False  # a program, which is not installed into site-packages
    folder = posixpath.dirname(_INSTALLED_ROOT.sub("", member))
    place = posixpath.normpath(posixpath.join(folder, _ORIGIN.sub("", entry)))
    return place == ".." or place.startswith("../")


@check.check(
    "RW026 executable-stack (error)",
    why="glibc 2.41 and newer refuse to load it: cannot enable executable stack.",
    fix="Link with -z noexecstack; `patchelf --clear-execstack` takes the flag away.",
)
def check_executable_stack(wheel: audited_wheel.AuditedWheel) -> list[errors.Finding]:
    """No library asks for an executable stack."""
    message = "asks for an executable stack, which glibc 2.41 and newer refuse to load"
    return [
        errors.Finding("error", message, subject=member)
        for member, binary in wheel.binaries.items()
        if binary.has_executable_stack and not binary.loader.program
    ]


@check.check(
    "RW027 text-relocations (warning)",
    why="Its code is written to when it is loaded: SELinux refuses that, and no two processes share it.",
    fix="Compile with -fPIC.",
)
def check_text_relocations(wheel: audited_wheel.AuditedWheel) -> list[errors.Finding]:
    """No library has relocations in its code."""
    return [
        errors.Finding(
            "warning", "has relocations in its code (DT_TEXTREL)", "compile with -fPIC", subject=member
        )
        for member, binary in wheel.binaries.items()
        if binary.has_text_relocations
    ]


@check.check(
    "RW028 duplicate-soname (warning)",
    why="The loader takes the one that comes first, whoever asks for it.",
    fix="Leave one, or give them names of their own.",
)
def check_sonames(wheel: audited_wheel.AuditedWheel) -> list[errors.Finding]:
    """No two different libraries of one SONAME."""
    members: dict[str, list[str]] = {}
    for member, binary in wheel.binaries.items():
        if binary.loader.soname and not binary.loader.program:
            members.setdefault(binary.loader.soname, []).append(member)
    needed = {name for binary in wheel.binaries.values() for name in binary.loader.needed}
    return [
        errors.Finding(
            "error" if soname in needed else "warning",
            f"{soname} is {audited_wheel.join_names(names)}: different files of one SONAME",
            subject=names[0],
        )
        for soname, names in sorted(members.items())
        if len({wheel.digests.get(name, name) for name in names}) > 1
    ]


_HASH = re.compile(r"-[0-9a-f]{8,}(?=\.so|\.dll)")
_OPENMP = re.compile(r"lib(gomp|omp|iomp5)(?:-[0-9a-f]{8,})?\.(?:so|dll)\b")
_HIP_RUNTIME = re.compile(r"libamdhip64\.so|amdhip64(_[0-9]+)?\.dll")
_LIBRARY = re.compile(r"lib[^/]*\.so(\.[0-9.]+)?$|[^/]*\.dll$", re.IGNORECASE)


def strip_hash(name: str) -> str:
    """Return the name of a library before a repair put a hash into it (``libx-1a2b3c4d.so.7``)."""
    return _HASH.sub("", name)


@check.check(
    "RW029 two-runtimes (error)",
    why="Two HIP runtimes crash in one process; two OpenMP runtimes start twice the threads.",
    fix="Leave one, and link everything to it.",
)
def check_runtimes(wheel: audited_wheel.AuditedWheel) -> list[errors.Finding]:
    """One HIP runtime and one OpenMP."""
    findings = []
    hip = {
        wheel.digests.get(member, member): member
        for member in sorted(wheel.members)
        if _HIP_RUNTIME.match(strip_hash(posixpath.basename(member)))
    }
    if len(hip) > 1:
        message = (
            f"two HIP runtimes: {audited_wheel.join_names(hip.values())}: each has its own state of the GPUs"
        )
        findings.append(errors.Finding("error", message, "leave one, and link everything to it"))
    # two files are two runtimes, and so is what is needed from outside beside another kind
    inside = list_openmp_runtimes(wheel)
    needed = {name for binary in wheel.binaries.values() for name in binary.loader.needed}
    outside = {match[1]: name for name in sorted(needed) if (match := _OPENMP.match(name))}
    for member in inside.values():
        outside.pop(_OPENMP.match(posixpath.basename(member))[1], None)  # type: ignore[index] # it is one
    if len(runtimes := [*inside.values(), *outside.values()]) > 1:
        message = f"several OpenMP runtimes: {audited_wheel.join_names(sorted(runtimes))}"
        findings.append(errors.Finding("error", message))
    return findings


def list_openmp_runtimes(wheel: audited_wheel.AuditedWheel) -> dict[str, str]:
    """Return the OpenMP runtimes inside, each once: members by their digests."""
    return {
        wheel.digests.get(member, member): member
        for member in wheel.binaries
        if _OPENMP.match(posixpath.basename(member))
    }


@check.check(
    "RW030 grafted-rocm (error)",
    why="Two copies of one ROCm library are loaded, and hundreds of megabytes are downloaded twice.",
    fix="Repair the wheel with --find-links to the ROCm packages: what these have stays outside.",
)
def check_grafted_rocm(wheel: audited_wheel.AuditedWheel) -> list[errors.Finding]:
    """No library of ROCm that a required package has."""
    name = canonicalize_name(wheel.scan.name.distribution) if wheel.scan.name else ""
    if wheel.rocm_folder is not None or name.startswith(("rocm", "amd-")):
        return []
    lines = wheel.scan.metadata.requires_dist if wheel.scan.metadata else ()
    # a torch for ROCm has these libraries, or requires who has them
    owners_name = re.compile(r"rocm.*|torch")
    requires = [r for r in map(Requirement, lines) if owners_name.fullmatch(canonicalize_name(r.name))]
    findings = []
    for member in sorted(wheel.members):
        file = posixpath.basename(member)
        if not _LIBRARY.match(file) or not is_rocm_library(strip_hash(file)):
            continue
        soname = wheel.binaries[member].loader.soname if member in wheel.binaries else None
        owners = wheel.required.owners if wheel.required is not None else {}
        owner = owners.get(strip_hash(soname or file)) or owners.get(strip_hash(file))
        if owner or requires:
            owner = owner or requires[0].name
            message = f"is a library of ROCm, and {owner}, which is required, has or brings another"
            findings.append(errors.Finding("error", message, subject=member))
        elif strip_hash(file) != file:
            message = "is a library of ROCm that a repair took from the builder's machine"
            severity: errors.Severity = "error" if wheel.has_recipe else "warning"
            findings.append(errors.Finding(severity, message, subject=member))
    return findings


@check.check(
    "RW031 needed-libraries (error)",
    why="Loading ends with: cannot open shared object file.",
    fix="Require the package that has it, or take it in: `rocm-wheels wheel repair --library-dir`.",
)
def check_needed_libraries(
    wheel: audited_wheel.AuditedWheel,
) -> list[errors.Finding] | audited_wheel.SkippedCheck:
    """What libraries are linked to will be there."""
    if not wheel.binaries or wheel.wheel_platform is None or wheel.wheel_platform.system != "linux":
        return _NO_LIBRARY
    try:
        policies = platform_promises.load_policies(wheel.wheel_platform.architecture)
    except ModuleNotFoundError:
        return _NO_TABLES
    promised = _list_promised(policies, wheel.wheel_platform.fields.platform.split("."))
    outside = promised | loader.list_own_names(wheel.scan.binaries)
    needed_by: dict[str, list[str]] = {}
    for member, binary in wheel.binaries.items():
        for library in binary.loader.needed:
            if (
                library not in outside
                and not platform_promises.is_dynamic_linker(library)
                and not _is_python(library)
            ):
                needed_by.setdefault(library, []).append(member)
    return [*_judge_needs(wheel, needed_by, lambda library: library), *_find_unreached(wheel, promised)]


_PRELOADS = re.compile(r"\bCDLL\b|\bdlopen\b|\bLoadLibrary\b")


def _find_unreached(wheel: audited_wheel.AuditedWheel, promised: Collection[str]) -> Iterator[errors.Finding]:
    """Yield a finding for each library inside that nobody who is linked to it finds.

    The loader looks for a file of that name in the run path of who needs it, and in DT_RPATH of who loads
    that; what is loaded already it knows by its SONAME. A package's ``__init__``, or the module that starts
    ROCm (a fat torch's), may load it before.
    """
    starts = ("/__init__.py", "/_rocm_init.py")
    text = b"".join(
        content for member, content in wheel.scan.texts.items() if member.endswith(starts)
    ).decode("utf-8", "replace")
    folders: dict[str, list[str]] = {}
    for member in wheel.members:
        folders.setdefault(posixpath.dirname(_INSTALLED_ROOT.sub("", member)), []).append(member)
    owners: dict[str, set[str]] = {}
    needed_by: dict[str, list[str]] = {}
    reached: dict[str, set[str]] = {}  # by member: the files that its run path leads to
    for member, binary in wheel.binaries.items():
        for name in {binary.loader.soname or "", posixpath.basename(member)} - {""}:
            owners.setdefault(name, set()).add(member)
        needs = () if binary.loader.program else binary.loader.needed
        for name in needs:
            needed_by.setdefault(name, []).append(member)
        folder = posixpath.dirname(_INSTALLED_ROOT.sub("", member))
        places = {
            posixpath.normpath(posixpath.join(folder, _ORIGIN.sub("", entry)))
            for run_path in binary.run_paths
            for entry in run_path.entries
            if _ORIGIN.match(entry)
        }
        reached[member] = {other for place in places for other in folders.get(place, ())}
    preloads = _PRELOADS.search(text) is not None
    for name, members in sorted(needed_by.items()):
        files = owners.get(name, set())
        loaded = [member for member in members if member in wheel.loaded_libraries]
        is_known = name in promised or not files.isdisjoint(wheel.extension_modules)
        stem = re.escape(name.partition(".")[0].removeprefix("lib"))
        is_preloaded = preloads and ("*.so" in text or re.search(rf"\b(?:lib)?{stem}\b", text) is not None)
        if not files or not loaded or is_known or is_preloaded:
            continue
        # a file of that name, or one of that SONAME that somebody finds by the name of the file
        loaders, waiting = set(members), list(members)
        while waiting:
            binary = wheel.binaries[member := waiting.pop()]
            names = {binary.loader.soname or "", posixpath.basename(member)}
            parents = {parent for own in names for parent in needed_by.get(own, ())} - loaders
            loaders |= parents
            waiting += parents
        ways: set[str] = set().union(
            *(
                reached[member]
                for member in loaders
                if member in members or any(path.is_rpath for path in wheel.binaries[member].run_paths)
            )
        )
        needs_of_ways = {need for member in members for need in wheel.binaries[member].loader.needed}
        if not any(file in ways and posixpath.basename(file) in needs_of_ways for file in files):
            message = (
                f"{name} is inside ({audited_wheel.join_names(sorted(files))}), where no run path leads to a "
                f"file of that name; needed by {audited_wheel.join_names(loaded)}"
            )
            tip = "link with $ORIGIN and the way to its folder, and name the file as its SONAME"
            yield errors.Finding("error", message, tip, subject=loaded[0])


def _list_promised(policies: WheelPolicies, tags: Collection[str]) -> set[str]:
    """Return the libraries that every system of the tags has; a tag without a table promises the fewest."""
    listed = [policy for policy in policies if policy.whitelist]
    named = [policy for policy in listed if {policy.name, *policy.aliases} & set(tags)]
    newest = min(listed, key=lambda policy: policy.priority)
    return set(max(named, key=lambda policy: policy.priority, default=newest).whitelist)


def _is_python(library: str) -> bool:
    return library.startswith("libpython3")


@check.check(
    "RW032 imported-dlls (error)",
    why="Loading ends with: DLL load failed, the specified module could not be found.",
    fix="Require the package that has it, or take it in: `rocm-wheels wheel repair --library-dir`.",
)
def check_imported_dlls(
    wheel: audited_wheel.AuditedWheel,
) -> list[errors.Finding] | audited_wheel.SkippedCheck:
    """What DLLs import, at once or delayed, will be there."""
    platform = wheel.wheel_platform
    if not wheel.scan.imports or platform is None or platform.system != "windows":
        return _NO_DLL
    try:
        is_system_dll = platform_promises.make_system_test(platform)
        inside = {posixpath.basename(member).lower() for member in wheel.members}
        needed_by: dict[str, list[str]] = {}
        for member, libraries in sorted(wheel.scan.imports.items()):
            for library in sorted({name.lower() for name in libraries} - inside):
                if not is_system_dll(library) and not platform_promises.is_vc_runtime(library):
                    needed_by.setdefault(library, []).append(member)
    except ModuleNotFoundError:
        return _NO_TABLES
    return _judge_needs(wheel, needed_by, str.lower)


_TORCH_LIBRARY = re.compile(r"(?:lib)?(?:torch|c10|shm)(?:[_.]|$)")
# of the driver, or of another vendor: whoever is linked to one has code for machines with it
_OTHER_VENDOR = re.compile(
    r"(?:lib)?(?:cuda(?:rt)?|cu[a-z]+|nv[a-z]+|nccl|npp\w+|migraphx\w*)(?:[-_.0-9]|$)", re.IGNORECASE
)
# packages of which neither the libraries nor the project begin with the other's name
_PROVIDERS: Mapping[str, re.Pattern[str]] = {
    "intel-openmp": re.compile(r"(?:lib)?iomp5"),
    "pyarrow": re.compile(r"(?:lib)?(?:arrow|parquet)"),
    "tensorflow": re.compile(r"(?:lib)?tensorflow"),
}
_NOT_IN_STEMS = re.compile(r"[^a-z0-9]+")
_FIND_LINKS_TIP = "--find-links to the wheels that it requires shows whether they have it"


def _judge_needs(
    wheel: audited_wheel.AuditedWheel, needed_by: Mapping[str, list[str]], normalize: Callable[[str], str]
) -> list[errors.Finding]:
    """Judge what is needed from outside.

    What a package that is required and not at hand is known to have may be there; so may ROCm, and what
    comes with another vendor's driver, on a machine that anybody's wheel is for. Anything else is missing: an
    error where an import loads the library that needs it, and in wheels of ours.
    """
    libraries = {normalize(name) for name in wheel.required.libraries} if wheel.required else set()
    libraries |= {normalize(name) for name in (wheel.project.repair.exclude if wheel.has_recipe else ())}
    # what is there and damaged is told by the archive's check
    scans = [wheel.scan, *(package.scan for package in (wheel.required.packages if wheel.required else ()))]
    libraries |= {
        normalize(posixpath.basename(member)) for scan in scans if scan for member in scan.damaged_members
    }
    if wheel.scan.metadata is None:
        return []  # nobody knows what it requires
    packages = wheel.list_absent_packages()
    findings, provided, strays = [], list[str](), list[str]()
    for library, members in sorted(needed_by.items()):
        is_rocm = is_rocm_library(library)
        if library in libraries or (wheel.installed_rocm and is_rocm):
            continue
        if any(_may_have(package, library) for package in packages):
            provided.append(library)
            continue
        requires_rocm = wheel.required is not None and any(
            package.name.startswith(("rocm", "torch")) for package in wheel.required.packages
        )
        is_of_machine = (is_rocm and not requires_rocm) or _OTHER_VENDOR.match(library)
        is_loaded = not wheel.loaded_libraries.isdisjoint(members)
        if not wheel.has_recipe and (is_of_machine or (not is_loaded and wheel.required is None)):
            strays.append(library)
            continue
        message = f"{library} is neither in the wheel, in what it requires, nor on every system of its tag"
        message = f"{message}; needed by {audited_wheel.join_names(members)}"
        tip = "require the package that has it, or `rocm-wheels wheel repair --library-dir` takes it in"
        severity: errors.Severity = "error" if wheel.has_recipe or is_loaded else "warning"
        findings.append(errors.Finding(severity, message, tip, subject=members[0]))
    for names, message in (
        (strays, "needs libraries that nothing it requires is known to have"),
        (provided, "needs libraries of packages that it requires"),
    ):
        if names:
            text = f"{message}: {audited_wheel.join_names(names)}"
            first = min(member for name in names for member in needed_by[name])
            findings.append(errors.Finding("info", text, _FIND_LINKS_TIP, first))
    return findings


def _may_have(package: str, library: str) -> bool:
    """Tell whether a package (normalized) is known to have such a library, or to require who has it."""
    if _TORCH_LIBRARY.match(library):
        return package == "torch"
    if is_rocm_library(library):
        return package.startswith(("rocm", "torch"))
    if package == "torch" and _OPENMP.match(library):
        return True  # its wheels bring one
    if _OTHER_VENDOR.match(library):
        return package.startswith(("nvidia", "cuda", "torch", "jax"))
    if provider := _PROVIDERS.get(package):
        return provider.match(library) is not None
    stem = _NOT_IN_STEMS.sub("", library.lower().removeprefix("lib").partition(".")[0])
    name = _NOT_IN_STEMS.sub("", package)
    return stem.startswith((name, name.removeprefix("py"), name.removeprefix("lib")))


@check.check(
    "RW042 debug-sections (info)",
    why="Everybody downloads it, and hardly anybody reads it.",
    fix="`strip --strip-debug` takes it out of a library, before the wheel is made.",
)
def check_debug_sections(wheel: audited_wheel.AuditedWheel) -> list[errors.Finding]:
    """No library holds debug information."""
    sizes = {member: binary.debug_size for member, binary in wheel.binaries.items() if binary.has_debug}
    total = sum(sizes.values())
    if not total:
        return []
    largest = sorted(sizes, key=lambda member: -sizes[member])
    counted = tables.format_count(len(sizes), "library", "libraries")
    message = (
        f"{tables.format_size(total)} of debug information in {counted}: {audited_wheel.join_names(largest)}"
    )
    return [errors.Finding("info", message, subject=largest[0])]
