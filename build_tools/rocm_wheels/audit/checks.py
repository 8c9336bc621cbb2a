"""The tables of checks: id, name, what each looks for, why that hurts, and what to do about it.

``CHECKS`` are those of a wheel, ``SET_CHECKS`` those of a set of wheels; ``DRIFT_CHECKS`` compare a wheel
with an older one.

Ids are for good: a check that goes leaves a gap, and a new one takes the next number. ``severity`` is the
gravest that a check's findings have. **error**: it breaks on a machine that the tags promise, or an index
refuses it; **warning**: untidy, and works; **info**: worth knowing. Of wheels that are held to a recipe,
which are our own, some warnings are errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rocm_wheels.audit import (
    audited_set,
    audited_wheel,
    contents,
    device_code,
    drift,
    kernels,
    libraries,
    metadata,
    modules,
    publishing,
    set_agreement,
    set_index,
    set_requirements,
    split_wheels,
    symbols,
)
from rocm_wheels.core import errors, tables

SubjectT = TypeVar("SubjectT")


@dataclass(frozen=True)
class AuditCheck(Generic[SubjectT]):
    """A check. ``run_check`` returns what is wrong ([] when nothing is), or why it could not look.

    ``id`` and ``name`` are for good. ``needs_recipe``: it compares the wheel with what a recipe says.
    ``run_check`` is None for the import, which needs an environment, and for what is said of exceptions.
    """

    id: str
    name: str
    severity: errors.Severity
    summary: str
    reason: str
    fix: str
    run_check: Callable[[SubjectT], Sequence[errors.Finding] | audited_wheel.SkippedCheck] | None = None
    needs_recipe: bool = False


class WheelCheck(AuditCheck[audited_wheel.AuditedWheel]):
    """A check of one wheel."""


class SetCheck(AuditCheck[audited_set.AuditedSet]):
    """A check of a set of wheels; what its findings are about are file names."""


IMPORT_CHECK = "import"
EXCEPTION_CHECK = "exceptions"
LOST_WHEELS = "lost-wheels"

CHECKS: tuple[WheelCheck, ...] = (
    WheelCheck(
        "RW001", "archive", "error",
        "members are whole; RECORD, METADATA and names agree",
        "Installers refuse the wheel, or install something else than was packed.",
        "Build the wheel again; whatever changed it after it was packed must write RECORD, too.",
        contents.check_archive,
    ),
    WheelCheck(
        "RW002", "file-name", "error",
        "the distribution and version that were to be built",
        "The wheel of another project or version is published under this build.",
        "Look which folder the front end ran in, and whether the version reached its setup.",
        metadata.check_file_name, needs_recipe=True,
    ),
    WheelCheck(
        "RW003", "platform", "error",
        "the tags say the platform it is for",
        "Installers give it to machines that cannot run it, or to none.",
        "A wheel with native libraries must not be tagged `any`: its setup must tell that it is not pure.",
        metadata.check_platform,
    ),
    WheelCheck(
        "RW004", "python", "error",
        "the interpreter it was built for accepts its tags",
        "No Python that it was built for installs it.",
        "Run the front end with the Python of the build environment.",
        metadata.check_python,
    ),
    WheelCheck(
        "RW005", "metadata", "error",
        "every field of METADATA is valid",
        "Indexes refuse the upload, or installers pass over the field.",
        "Correct the field in pyproject.toml or setup.py (core metadata specification).",
        metadata.check_metadata,
    ),
    WheelCheck(
        "RW006", "requires-python", "error",
        "Requires-Python admits that interpreter",
        "Installers pass over the wheel, or take it for Pythons that it does not work in.",
        "State requires-python in pyproject.toml.",
        metadata.check_requires_python,
    ),
    WheelCheck(
        "RW007", "requirements", "error",
        "no requirement points at a place",
        "PyPI refuses direct references, and the place exists on the builder's machine alone.",
        "Require a version instead.",
        metadata.check_requirements,
    ),
    WheelCheck(
        "RW008", "rocm-requirement", "error",
        "rocm[libraries] is pinned where it must be",
        "Another ROCm than the one it was built with is installed beside it, or none.",
        "The pin reaches setup through PYTORCH_EXTRA_INSTALL_REQUIREMENTS.",
        metadata.check_rocm_requirement, needs_recipe=True,
    ),
    WheelCheck(
        "RW009", "pins", "error",
        "what was built with it is required at that version",
        "Beside another torch or triton it may not even be imported.",
        "Pin the version that it was built against.",
        metadata.check_pins, needs_recipe=True,
    ),
    WheelCheck(
        "RW010", "files", "error",
        "the files that the recipe names are inside",
        "Parts of the package are missing at run time.",
        "The build back end left them out: git-ignored files need to be named to some.",
        contents.check_files, needs_recipe=True,
    ),
    WheelCheck(
        "RW011", "installer-files", "error",
        "no file that only installers may write",
        "Installers take what direct_url.json or INSTALLER says for a fact of the user's machine.",
        "Take the files out of the wheel: they come from packing an installed package.",
        contents.check_installer_files,
    ),
    WheelCheck(
        "RW012", "elf-tag-too-old", "error",
        "libraries need no newer symbols than the tags promise",
        "Installers give it to older systems, where loading it ends with: version `GLIBC_2.34' not found.",
        "`rocm-wheels wheel repair` computes the tag; for an older one, build in that manylinux image.",
        libraries.check_symbol_versions,
    ),
    WheelCheck(
        "RW013", "rocm-init", "error",
        "the module that starts ROCm asks for the SDK's version",
        "torch loads the libraries of another ROCm, or finds none.",
        "The build writes the module before the front end runs: it must reach the wheel unchanged.",
        contents.check_rocm_init,
    ),
    WheelCheck(
        "RW014", "carried-rocm", "error",
        "of a wheel that carries its ROCm: what it is linked to is inside",
        "Loading it fails on machines without a ROCm of their own, for which such wheels are made.",
        "`rocm-wheels wheel fat` takes in all that it needs.",
        contents.check_carried_rocm,
    ),
    WheelCheck(
        "RW015", "rocm-build", "error",
        "a ROCm build, not a CPU-only one",
        "It installs and imports, and no GPU does anything.",
        "Look in the log for what configure said about HIP.",
        device_code.check_rocm_build, needs_recipe=True,
    ),
    WheelCheck(
        "RW016", "device-libraries", "error",
        "the libraries that must hold device code exist",
        "A part of the project was not built for GPUs.",
        "Look in the log for what configure said about HIP.",
        device_code.check_device_libraries, needs_recipe=True,
    ),
    WheelCheck(
        "RW017", "device-code", "error",
        "each library holds all, some or none of the targets",
        "Kernels are missing for a GPU: hipErrorNoBinaryForGpu at the first launch.",
        "Build again with a clean tree, and look in the log for the target that was left out.",
        device_code.check_device_code, needs_recipe=True,
    ),
    WheelCheck(
        "RW018", "device-consistency", "error",
        "without stated targets: libraries agree",
        "Part of the package runs on a GPU, and part of it does not.",
        "Build again with a clean tree.",
        device_code.check_consistency, needs_recipe=True,
    ),
    WheelCheck(
        "RW019", "device-coverage", "error",
        "device code only where the recipe has a rule",
        "Nobody has said which targets that library must serve, so nothing checks it.",
        "Say in the recipe, under checks.device_code, what the file must hold and why.",
        device_code.check_coverage, needs_recipe=True,
    ),
    WheelCheck(
        "RW020", "device-wheels", "error",
        "parts that were split off are whole and of this version",
        "Host library and kernels of two builds are installed together.",
        "Split the wheel again: both come out of one split.",
        split_wheels.check_device_wheels,
    ),
    WheelCheck(
        "RW021", "run-paths", "warning",
        "no library looks into the builder's folders, or out of site-packages",
        "Where somebody else can make that folder, what lies in it is loaded.",
        "Link with entries relative to $ORIGIN; `rocm-wheels wheel repair` takes the others out.",
        libraries.check_run_paths,
    ),
    WheelCheck(
        "RW022", IMPORT_CHECK, "error",
        "it can be imported in a clean process, and says of itself what was built",
        "Nothing works.",
        "The last lines that the process printed say what is missing.",
        needs_recipe=True,
    ),
    WheelCheck(
        "RW023", "wheel-tags", "error",
        "WHEEL states the tags of the file name",
        "Tools that read WHEEL take it for another platform; a sign of a file that was only renamed.",
        "`rocm-wheels wheel retag` changes both.",
        contents.check_wheel_tags,
    ),
    WheelCheck(
        "RW024", "purelib", "error",
        "a wheel for a platform does not call itself pure",
        "On systems where both folders differ it is installed into the wrong one.",
        "The project's setup must tell that it has binary modules.",
        contents.check_purelib,
    ),
    WheelCheck(
        "RW025", "record-digests", "error",
        "RECORD has a digest of each file, spelled as the specification says",
        "Nobody can see whether a file was changed after it was installed.",
        "Pack the wheel again: `rocm-wheels wheel retag` writes digests.",
        contents.check_record_digests,
    ),
    WheelCheck(
        "RW026", "executable-stack", "error",
        "no library asks for an executable stack",
        "glibc 2.41 and newer refuse to load it: cannot enable executable stack.",
        "Link with -z noexecstack; `rocm-wheels wheel repair --clear-exec-stack` takes the flag away.",
        libraries.check_executable_stack,
    ),
    WheelCheck(
        "RW027", "text-relocations", "warning",
        "no library has relocations in its code",
        "Its code is written to when it is loaded: SELinux refuses that, and no two processes share it.",
        "Compile with -fPIC.",
        libraries.check_text_relocations,
    ),
    WheelCheck(
        "RW028", "duplicate-soname", "warning",
        "no two different libraries of one SONAME",
        "The loader takes the one that comes first, whoever asks for it.",
        "Leave one, or give them names of their own.",
        libraries.check_sonames,
    ),
    WheelCheck(
        "RW029", "two-runtimes", "error",
        "one HIP runtime and one OpenMP",
        "Two HIP runtimes crash in one process; two OpenMP runtimes start twice the threads.",
        "Leave one, and link everything to it.",
        libraries.check_runtimes,
    ),
    WheelCheck(
        "RW030", "grafted-rocm", "error",
        "no library of ROCm that a required package has",
        "Two copies of one ROCm library are loaded, and hundreds of megabytes are downloaded twice.",
        "Repair the wheel with --find-links to the ROCm packages: what these have stays outside.",
        libraries.check_grafted_rocm,
    ),
    WheelCheck(
        "RW031", "needed-libraries", "error",
        "what libraries are linked to will be there",
        "Loading ends with: cannot open shared object file.",
        "Require the package that has it, or take it in: `rocm-wheels wheel repair --library-dir`.",
        libraries.check_needed_libraries,
    ),
    WheelCheck(
        "RW032", "imported-dlls", "error",
        "what DLLs import, at once or delayed, will be there",
        "Loading ends with: DLL load failed, the specified module could not be found.",
        "Require the package that has it, or take it in: `rocm-wheels wheel repair --library-dir`.",
        libraries.check_imported_dlls,
    ),
    WheelCheck(
        "RW033", "target-list", "error",
        "the targets that torch states are those it has code for",
        "Programs ask torch.cuda.get_arch_list() and are told of GPUs that it cannot use.",
        "Build with a clean tree: the list changed between configuring and compiling.",
        kernels.check_target_list,
    ),
    WheelCheck(
        "RW034", "kernel-files", "error",
        "kernel databases have every file that their lists name",
        "Matrix products fail on that GPU, when one of the shapes comes up.",
        "Take the database whole, from one ROCm.",
        kernels.check_kernel_files,
    ),
    WheelCheck(
        "RW035", "kernel-targets", "error",
        "each kernel database serves each target",
        "On that GPU the library fails, or is slow, although torch itself has code for it.",
        "Take the files of that target from the same ROCm.",
        kernels.check_kernel_targets,
    ),
    WheelCheck(
        "RW036", "code-object-version", "warning",
        "code objects are of version V4 or newer",
        "Loaders drop the older versions, which cannot state xnack and sramecc as IDs do.",
        "Compile with -mcode-object-version=4 or newer.",
        kernels.check_code_versions,
    ),
    WheelCheck(
        "RW037", "feature-mixtures", "warning",
        "code states xnack and sramecc everywhere or nowhere",
        "In one setting of the GPU a part of the package has no kernels.",
        "Build all libraries for one list of targets.",
        kernels.check_feature_mixtures,
    ),
    WheelCheck(
        "RW038", "generic-targets", "error",
        "code for generic processors is of version V6",
        "No runtime loads it; older runtimes pass over generic code of any version.",
        "Compile with -mcode-object-version=6, or for the processors themselves.",
        kernels.check_generic_targets,
    ),
    WheelCheck(
        "RW039", "target-packages", "error",
        "packages for a GPU that it requires are for one of its targets",
        "The libraries of another GPU are installed: nothing runs.",
        "Make METADATA and the code from one list of targets.",
        kernels.check_target_packages,
    ),
    WheelCheck(
        "RW040", "size", "warning",
        "the file is within the limits of PyPI, GitHub and S3",
        "The upload is refused, when everything else is done.",
        "Prune targets, take debug sections out, or ask for a higher limit.",
        publishing.check_size,
    ),
    WheelCheck(
        "RW041", "builder-paths", "info",
        "no library holds paths of the builder's folders",
        "They tell who built it and where, and make builds of two machines differ.",
        "Compile with -ffile-prefix-map.",
        publishing.check_builder_paths,
    ),
    WheelCheck(
        "RW042", "debug-sections", "info",
        "no library holds debug information",
        "Everybody downloads it, and hardly anybody reads it.",
        "`rocm-wheels wheel repair --strip` moves it into an archive beside the wheel.",
        libraries.check_debug_sections,
    ),
    WheelCheck(
        "RW043", "credentials", "error",
        "no token and no private key inside",
        "Whoever downloads the wheel can use it.",
        "Revoke it; then find out how it came into the build.",
        publishing.check_credentials,
    ),
    WheelCheck(
        "RW044", "licences", "error",
        "the licence files that METADATA names are inside",
        "PyPI refuses the upload, and licences ask to come with the copy.",
        "The build back end must take them into *.dist-info/licenses.",
        publishing.check_licences,
    ),
    WheelCheck(
        "RW045", "architecture", "error",
        "libraries are for the machine that the tags name",
        "Loading ends with: wrong ELF class, or: cannot open shared object file.",
        "Build on that machine, or tag it for the one that it was built on.",
        libraries.check_architecture,
    ),
    WheelCheck(
        "RW046", "open-run-paths", "error",
        "no run path stands for the current folder",
        "Whoever can write into the folder that a program is started in has its libraries loaded.",
        "`rocm-wheels wheel repair` takes such entries out.",
        libraries.check_open_run_paths,
    ),
    WheelCheck(
        "RW047", "archive-form", "error",
        "nothing that PyPI refuses in an archive that can be read",
        "The upload is refused.",
        "`rocm-wheels wheel retag` writes the archive again.",
        contents.check_archive_form,
    ),
    WheelCheck(
        "RW048", EXCEPTION_CHECK, "error",
        "exceptions of the policy have not ended",
        "What was let pass for a time is let pass for good, because nobody looks again.",
        "Mend what the exception is about, or decide again, with a new date.",
    ),
    WheelCheck(
        "RW049", "moved-code", "error",
        "of a split wheel: every kernel is there, no code is left over",
        "The HIP runtime finds no kernel for a GPU that has a device wheel.",
        "Split the wheel again: host and device wheels come out of one split.",
        split_wheels.check_moved_code,
    ),
    WheelCheck(
        "RW050", "device-extras", "error",
        "of a split wheel: extras lead to device wheels",
        "Installers bring the host wheel alone, or find nothing to install.",
        "Split the wheel again: METADATA is written with the device wheels.",
        split_wheels.check_device_extras,
    ),
    WheelCheck(
        "RW051", "kpack-runtime", "error",
        "of a split wheel with ROCm inside: it reads archives",
        "An older HIP runtime loads the library without a word, and fails at the first launch.",
        "Carry a ROCm that has librocm_kpack.",
        split_wheels.check_kpack_runtime,
    ),
    WheelCheck(
        "RW052", "needed-symbols", "error",
        "every symbol that libraries must find is defined",
        "Loading ends with: undefined symbol; or the first call does.",
        "Link to the library that has it, or compile with the headers of the one that will be there.",
        symbols.check_needed_symbols,
    ),
    WheelCheck(
        "RW053", "needed-versions", "error",
        "every symbol version that libraries need of others is defined there",
        "Loading ends with: version not found.",
        "Require the version of the library that it was linked to.",
        symbols.check_needed_versions,
    ),
    WheelCheck(
        "RW054", "allowed-contents", "error",
        "nothing is installed but what the recipe allows",
        "Files of other projects are overwritten, or programs appear that nobody has looked at.",
        "Take it out of the wheel, or name it under checks.contents of the recipe.",
        contents.check_allowed_contents, needs_recipe=True,
    ),
    WheelCheck(
        "RW055", "startup-files", "error",
        "nothing runs whenever Python starts",
        "Lines of a .pth and the module sitecustomize run in every program of that environment.",
        "Take it out; a recipe allows a .pth by checks.contents.startup_files.",
        contents.check_startup_files,
    ),
    WheelCheck(
        "RW056", "environment-files", "error",
        "nothing takes the place of python, pip or another project",
        "Whoever uses that environment next runs what the wheel has put there.",
        "Give programs names of their own, and install nothing beside the package.",
        contents.check_environment_files,
    ),
    WheelCheck(
        "RW057", "file-types", "error",
        "no links, and no bits of users or groups",
        "Unpacked by root, setuid files run as root; installers write a link's target into a file.",
        "Pack the files themselves, with mode 644 or 755.",
        contents.check_file_types,
    ),
    WheelCheck(
        "RW058", "colliding-names", "error",
        "no names that differ by case or Unicode form alone",
        "On Windows and macOS one overwrites the other, unseen on Linux.",
        "Rename one of them.",
        contents.check_colliding_names,
    ),
    WheelCheck(
        "RW059", "metadata-text", "error",
        "METADATA, entry points and variant.json are plain text that can be read",
        "Control characters hide text, or command a terminal; the rest is read in different ways.",
        "Build the wheel again: no back end writes this.",
        contents.check_metadata_text,
    ),
    WheelCheck(
        "RW060", "extension-modules", "error",
        "extension modules are for the Pythons and the machine of the tags",
        "Importing it ends with: No module named.",
        "Build with the Python that the wheel is tagged for, in a clean tree.",
        modules.check_extension_modules,
    ),
    WheelCheck(
        "RW091", "entry-points", "error",
        "entry points lead to modules that are inside",
        "The program ends with: No module named.",
        "Correct the entry point, or have the build back end take the module in.",
        modules.check_entry_points,
    ),
    WheelCheck(
        "RW092", "normal-names", "error",
        "file name and dist-info folder are spelled alike, and normalized",
        "Some installers and indexes refuse the wheel, or take it for another project or version.",
        "Build with a back end of today; `rocm-wheels wheel retag` writes both anew.",
        modules.check_normal_names,
    ),
    WheelCheck(
        "RW093", "bundle-targets", "error",
        "within a library, every kernel is there for the same targets",
        "Some operations fail on one kind of GPU alone: hipErrorNoBinaryForGpu.",
        "Build again with a clean tree: an object was compiled for other targets.",
        device_code.check_bundles,
    ),
)  # fmt: skip

DRIFT_CHECKS: tuple[WheelCheck, ...] = (
    WheelCheck(
        "RW081", "lost-files", "error",
        "against an older wheel: its files are there",
        "Somebody imports or reads each of them; a whole package was left out before.",
        "Look whether the sources took them out, or the build back end left them out.",
        drift.check_lost_files,
    ),
    WheelCheck(
        "RW082", "new-files", "warning",
        "against an older wheel: not many files came along",
        "Tests, headers or somebody else's package are downloaded and installed by everybody.",
        "Look which pattern of package data took them in.",
        drift.check_new_files,
    ),
    WheelCheck(
        "RW083", "lost-libraries", "error",
        "against an older wheel: its libraries and modules are there, under their SONAMEs",
        "What is linked to such a library no longer loads; what imports such a module fails.",
        "Bring it back, or build all that needs it again, and publish both together.",
        drift.check_lost_libraries,
    ),
    WheelCheck(
        "RW084", "lost-symbols", "error",
        "against an older wheel: libraries that others can link to export the same symbols",
        "Extensions that were built against the old library end with: undefined symbol.",
        "Bring the symbols back, or build all that uses them again, and publish both together.",
        drift.check_lost_symbols,
    ),
    WheelCheck(
        "RW085", "needed-drift", "warning",
        "against an older wheel: libraries are linked to the same libraries",
        "A feature is gone without a word, or the wheel needs what machines of users may not have.",
        "Look in the log of configure which option or library it found otherwise.",
        drift.check_needed_drift,
    ),
    WheelCheck(
        "RW086", "lost-targets", "error",
        "against an older wheel: each library and kernel database serves the same targets",
        "On GPUs that the wheel served before, the first kernel fails.",
        "Build for those targets again; where support ends, let an exception say so.",
        drift.check_lost_targets,
    ),
    WheelCheck(
        "RW087", "lost-kernels", "error",
        "against an older wheel: as many code objects and kernel files for each target",
        "Some operations fail, or are slow, on one kind of GPU alone.",
        "Look which sources are no longer compiled for that target.",
        drift.check_lost_kernels,
    ),
    WheelCheck(
        "RW088", "size-drift", "error",
        "against an older wheel: neither it nor a file of it grew or shrank beyond the limits",
        "A library was grafted by mistake, debug information left in, or a part not built.",
        "`rocm-wheels wheel diff` shows which files changed; limits can be set in a policy.",
        drift.check_size_drift,
    ),
    WheelCheck(
        "RW089", "requirement-drift", "warning",
        "against an older wheel: METADATA requires the same projects in the same way",
        "Installers bring something else, or refuse what they installed before.",
        "Look whether the project changed its requirements, or an edit of METADATA did.",
        drift.check_requirement_drift,
    ),
)  # fmt: skip

SET_CHECKS: tuple[SetCheck, ...] = (
    SetCheck(
        "RW061", "set-files", "error",
        "the files that the index, lock or set lists are there, with the digests that it states",
        "Installers refuse them, or install something else than was tested.",
        "Publish the files again, as they were listed; a file of a name is never replaced by another.",
        audited_set.check_set_files,
    ),
    SetCheck(
        "RW062", "set-pins", "error",
        "what a wheel requires of a project in the set is there, in that version and with those extras",
        "Installers find nothing to install, or take another build from elsewhere: segmentation faults.",
        "Build or stamp both again, from one lock.",
        set_requirements.check_set_pins,
    ),
    SetCheck(
        "RW063", "set-versions", "error",
        "one version of each project, and one ROCm, on each system",
        "Parts of several builds are installed together, with another ROCm below.",
        "Build or stamp them again, from one lock; or leave the older wheels out.",
        set_agreement.check_set_versions,
    ),
    SetCheck(
        "RW064", "set-complete", "error",
        "every project has a wheel for each Python that another one has a wheel for",
        "With that Python installers take torch from here, and the rest from elsewhere, or nothing.",
        "Build what is missing, or leave that Python out.",
        set_agreement.check_set_complete,
    ),
    SetCheck(
        "RW065", "set-plan", "error",
        "every wheel that was planned is there, with code for every target",
        "A release has gaps that nobody decided on.",
        "Build what is missing, or plan without it.",
        set_agreement.check_set_plan,
    ),
    SetCheck(
        "RW066", "set-devices", "error",
        "of split wheels: each extra leads to a device wheel, and each device wheel has an extra",
        "Installers find nothing to install for that GPU, or nobody ever gets the device wheel.",
        "Publish host and device wheels of one split, all together.",
        set_requirements.check_set_devices,
    ),
    SetCheck(
        "RW067", "metapackage", "error",
        "rocm is one file for all systems, and what its extras bring is there",
        "Which ROCm is installed depends on the system, on which job uploaded last, or on the machine.",
        "Build it once, as a wheel, from what all platforms have.",
        set_requirements.check_metapackage,
    ),
    SetCheck(
        "RW068", "set-target-packages", "error",
        "packages for a GPU that are required are for that GPU, and there",
        "The libraries of another GPU are installed, or none: nothing runs.",
        "Make METADATA and code from one list of targets; add ROCm's packages for all of them.",
        set_requirements.check_set_target_packages,
    ),
    SetCheck(
        "RW069", "device-default", "warning",
        "a wheel without kernels of its own brings some, or says which extra does",
        "It installs, finds the GPU, and nothing runs.",
        "Say at import which extra brings kernels, require a default, or publish variants beside it.",
        set_requirements.check_device_default,
    ),
    SetCheck(
        "RW070", "set-index", "error",
        "the index is what installers read: pages, links, digests, METADATA",
        "Some installer does not find a wheel, or refuses it.",
        "`rocm-wheels index build` writes the pages again.",
        set_index.check_set_index,
    ),
    SetCheck(
        "RW071", "set-resolvers", "error",
        "pip and uv take the newest wheels, and the same",
        "An older build is installed without a word, because its version sorts above.",
        "`rocm-wheels index resolve-check` names a spelling that sorts.",
        set_index.check_set_resolvers,
    ),
    SetCheck(
        "RW072", "set-abi", "error",
        "all was built with the C++ strings that torch was built with",
        "Loading it ends with: undefined symbol.",
        "Build both with one setting of _GLIBCXX_USE_CXX11_ABI.",
        set_agreement.check_set_abi,
    ),
    SetCheck(
        "RW073", "set-targets", "error",
        "all wheels of the stack, and all of ROCm's databases, serve the same targets",
        "One part of what is installed fails on a GPU that the others run on.",
        "Build what lacks a target again, from one list of targets.",
        set_agreement.check_set_targets,
    ),
    SetCheck(
        "RW074", "set-runtimes", "error",
        "the wheels bring one OpenMP runtime",
        "Two OpenMP runtimes start twice the threads, and wait for their own alone.",
        "Repair all wheels in one image, so that they take in one library.",
        set_agreement.check_set_runtimes,
    ),
    SetCheck(
        "RW090", LOST_WHEELS, "error",
        "against an older set: there is a wheel for each of its wheels",
        "Who has that Python, platform or GPU stays on the old release, or gets wheels that do not match.",
        "Build what is missing; where support ends, let an exception say so.",
        drift.check_lost_wheels,
    ),
)  # fmt: skip

ALL_CHECKS: tuple[AuditCheck[Any], ...] = tuple(
    sorted((*CHECKS, *SET_CHECKS, *DRIFT_CHECKS), key=lambda check: check.id)
)
"""The checks of all kinds, by their ids."""


def find_check(word: str) -> AuditCheck[Any]:
    """Return a check by its id or name. Raises UsageError for what is neither."""
    for check in ALL_CHECKS:
        if word.lower() in (check.id.lower(), check.name):
            return check
    names = [name for check in ALL_CHECKS for name in (check.id, check.name)]
    raise errors.UsageError(
        f"there is no check {word}{tables.suggest_name(word, names)}", tip="audit --list-checks"
    )


def get_check_id(name: str) -> str:
    """Return the id of a check, "" where there is none of that name."""
    return next((check.id for check in ALL_CHECKS if check.name == name), "")
