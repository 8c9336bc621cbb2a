"""Check what is installed: ROCm itself, torch and its companions, and whether they belong together.

Source: "Dependency specifiers" of the PyPA specifications; what goes with a torch, by the tables of
compatibility.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from rocm_wheels.core import errors
from rocm_wheels.gpus import gpu
from rocm_wheels.models import facts, lock, torch_builds
from rocm_wheels.models.project import InstallRecipe, find_project_of, list_default_packages, list_projects
from rocm_wheels.user import doctor_kernels, index_pages, installed_packages
from rocm_wheels.user.host import StatedMachine, make_host
from rocm_wheels.user.machine import DoctorSubject, join_some
from rocm_wheels.wheels import dist_info

_ROOT_VARIABLES = ("ROCM_PATH", "ROCM_HOME", "HIP_PATH", "HIP_DEVICE_LIB_PATH")
_PATH_VARIABLES = ("LD_LIBRARY_PATH", "LD_PRELOAD")
_PATH_SEPARATOR = re.compile(r"[:;]")
_SDK_GUIDE = "https://github.com/ROCm/TheRock/blob/main/RELEASES.md"


def check_rocm(subject: DoctorSubject) -> Iterator[errors.Finding]:
    """Say which ROCm is in the environment and which on the system, and whether they differ."""
    pip, system = _find_pip_rocm(subject), _list_system_rocm(subject)
    for installation in ([pip] if pip else []) + system:
        yield errors.Finding(
            "ok",
            f"ROCm {installation.version} {'from pip' if installation is pip else 'on the system'} "
            f"({installation.path})",
        )
    torch = subject.installed.torch
    if torch is not None and (built_on := dist_info.read_external_rocm(torch.distribution.external)):
        yield from _check_external_rocm(built_on, pip, system)
        return
    if not pip and not system:
        bundled = _find_bundled_hip(subject)
        bundled_text = f"; torch has its own libraries ({bundled})" if bundled else ""
        fix = "" if bundled else "none is needed: wheels of torch for ROCm bring or require what they use"
        text = f"no ROCm in the environment or on the system{bundled_text}"
        yield errors.Finding("ok" if bundled else "info", text, fix)
    if pip and system and _parse_minor(pip.version) != _parse_minor(system[0].version):
        leads = [
            name
            for name in (*_ROOT_VARIABLES, *_PATH_VARIABLES)
            if _leads_to(subject.env.get(name, ""), system[0].path)
        ]
        if leads:
            loads = set(leads) & set(_PATH_VARIABLES)
            yield errors.Finding(
                "error" if loads else "warning",
                f"{join_some(leads)} lead to ROCm {system[0].version} ({system[0].path}), "
                f"and torch uses {pip.version} from pip: "
                + (
                    "libraries of two releases in one process crash"
                    if loads
                    else "compilers take the other one"
                ),
                f"unset {' '.join(leads)}",
            )
        else:
            yield errors.Finding(
                "info",
                f"two releases of ROCm: {pip.version} from pip, which torch uses, "
                f"and {system[0].version} in {system[0].path}",
                f"leave {system[0].path} out of LD_LIBRARY_PATH and ROCM_PATH when torch runs",
            )


def _check_external_rocm(
    built_on: str, pip: gpu.RocmInstallation | None, system: Sequence[gpu.RocmInstallation]
) -> Iterator[errors.Finding]:
    """See that the installed ROCm that torch was built on is here, or packages of that very version."""
    if (pip is not None and pip.version == built_on) or any(
        _parse_minor(installation.version) == _parse_minor(built_on) for installation in system
    ):
        return
    others = [f"{installation.version} ({installation.path})" for installation in system]
    yield errors.Finding(
        "error",
        f"torch was built on an installed ROCm {built_on}, and there is {join_some(others) or 'none'} here",
        f"install that ROCm and let ROCM_PATH name its folder, or pip install 'rocm[libraries]=={built_on}'",
    )


def check_rocm_variables(subject: DoctorSubject) -> Iterator[errors.Finding]:
    """Tell of variables that lead to a ROCm that is not there, or not the one that torch was built for."""
    for name in _ROOT_VARIABLES:
        value = subject.env.get(name)
        if value and not Path(value).is_dir():
            yield errors.Finding("warning", f"{name}={value}: there is no such folder", f"unset {name}")
    for name in _PATH_VARIABLES:
        missing = [
            entry
            for entry in _split_entries(subject.env.get(name, ""))
            if "rocm" in entry.lower() and not Path(entry).exists()
        ]
        if missing:
            yield errors.Finding(
                "warning" if name == "LD_PRELOAD" else "info",
                f"{name} names {join_some(missing)}, which is not there",
                f"unset {name}",
            )
    torch, bundled = subject.installed.torch, _find_bundled_hip(subject)
    folders = [
        entry for entry in _split_entries(subject.env.get("LD_LIBRARY_PATH", "")) if _has_hip(Path(entry))
    ]
    if torch and torch.kind == "rocm" and bundled and folders:
        yield errors.Finding(
            "warning",
            f"LD_LIBRARY_PATH={':'.join(folders)} holds other HIP libraries, "
            "which may be loaded instead of torch's own",
            "unset LD_LIBRARY_PATH",
        )


def check_rocm_packages(subject: DoctorSubject) -> Iterator[errors.Finding]:
    """See that the ROCm packages are of one release, and say what compiling extensions takes."""
    parts = {
        package.name: package
        for package in subject.installed.packages
        if re.match(r"rocm(-sdk-.*)?$", package.name)
    }
    versions = {package.version for package in parts.values()}
    if len(versions) > 1:
        listed = join_some([f"{package.name} {package.version}" for package in parts.values()])
        version = parts["rocm"].version if "rocm" in parts else max(versions)
        yield errors.Finding(
            "error",
            f"the ROCm packages are not of one release: {listed}",
            subject.make_rocm_pip_line(f"rocm[libraries]=={version}", version),
        )
    torch = subject.installed.torch
    core = parts.get("rocm-sdk-core")
    if core is None or torch is None or torch.kind != "rocm":
        return
    if "rocm-sdk-devel" not in parts:
        yield errors.Finding(
            "info",
            "extensions for torch cannot be compiled here: the ROCm packages are those for running",
            subject.make_rocm_pip_line(f"rocm[devel]=={core.version}", core.version) + " && rocm-sdk init",
            source=_SDK_GUIDE,
        )
        return
    folder = parts["rocm-sdk-devel"].distribution.site_folder
    if not (folder / "_rocm_sdk_devel").is_dir():
        yield errors.Finding(
            "info", "the development files of ROCm are not unpacked yet", "rocm-sdk init", source=_SDK_GUIDE
        )
    elif not subject.env.get("ROCM_HOME"):
        yield errors.Finding(
            "info",
            "to compile extensions, torch needs ROCM_HOME",
            'export ROCM_HOME="$(rocm-sdk path --root)"',
            source=_SDK_GUIDE,
        )
    elif not _leads_to(subject.env["ROCM_HOME"], str(folder / "_rocm_sdk_devel")):
        yield errors.Finding(
            "warning",
            f"extensions are compiled with ROCM_HOME={subject.env['ROCM_HOME']}, "
            "and torch runs with the ROCm from pip",
            'export ROCM_HOME="$(rocm-sdk path --root)"',
            source=_SDK_GUIDE,
        )


def _find_pip_rocm(subject: DoctorSubject) -> gpu.RocmInstallation | None:
    version = subject.installed.rocm_version
    if version is None:
        return None
    package = subject.installed.get("rocm-sdk-core") or subject.installed.get("rocm")
    return gpu.RocmInstallation(version, "pip", str(package.distribution.site_folder) if package else "")


def _list_system_rocm(subject: DoctorSubject) -> list[gpu.RocmInstallation]:
    return [
        installation for installation in subject.hardware.rocm if installation.source not in {"pip", "forced"}
    ]


def _find_bundled_hip(subject: DoctorSubject) -> str:
    """Return the HIP runtime inside torch, "" without."""
    torch = subject.installed.torch
    folder = torch.folder / "lib" if torch and torch.folder else None
    return (
        next((str(library) for library in sorted(folder.glob("*amdhip64*"))), "")
        if folder and folder.is_dir()
        else ""
    )


def _leads_to(value: str, path: str) -> bool:
    return any(
        Path(entry) == Path(path) or Path(entry).is_relative_to(path) for entry in _split_entries(value)
    )


def _split_entries(value: str) -> list[str]:
    return [entry for entry in _PATH_SEPARATOR.split(value) if entry]


def _has_hip(folder: Path) -> bool:
    return (folder / "libamdhip64.so").exists() or any(folder.glob("libamdhip64.so.*"))


def _parse_minor(version: str) -> tuple[str, ...]:
    return tuple(re.findall(r"[0-9]+", version)[:2])


_KIND_NAMES = {"rocm": "ROCm", "cuda": "CUDA", "xpu": "Intel GPUs (XPU)", "cpu": "processors alone (CPU)"}
_OTHER_COMPANIONS = ("torchao", "torchcodec", "flash-attn", "xformers")  # compiled, without a recipe of ours
_PYTHON_TAG = re.compile(r"cp(?P<major>[0-9])(?P<minor>[0-9]+)(?P<free>t?)$")


def _list_compiled_companions() -> list[str]:
    """Return what is compiled against torch: by recipes, and others that are known."""
    built = [
        project.normalized_name for project in list_projects() if lock.TORCH_PROJECT in project.build.needs
    ]
    return list(dict.fromkeys([*built, *_OTHER_COMPANIONS]))


def check_environment(subject: DoctorSubject) -> Iterator[errors.Finding]:
    """Say which Python was looked at."""
    python = subject.installed.environment
    virtual = "a virtual environment" if python.is_virtual else "not a virtual environment"
    if subject.is_own:
        text = f"Python {python.version} ({python.python}, the environment of rocm-wheels itself)"
        yield errors.Finding("info", text, "rocm-wheels doctor --python DIR, where torch is in another one")
        return
    yield errors.Finding("ok", f"Python {python.version} ({python.python}, {virtual})")


def check_torch_build(subject: DoctorSubject) -> Iterator[errors.Finding]:
    """See that torch is there and was built for this machine's GPUs."""
    torch = subject.installed.torch
    amd = subject.has_amd
    if torch is None:
        yield errors.Finding(
            "info", f"torch is not installed{_describe_lack(subject)}", subject.make_torch_line()
        )
        return
    kind = _KIND_NAMES.get(torch.kind, "what cannot be told")
    number = f" {torch.build.version}" if torch.build.version else ""
    installer = f" by {torch.distribution.installer}" if torch.distribution.installer else ""
    description = f"torch {torch.version} is built for {kind}{number}"
    if torch.folder is None:
        text = f"torch {torch.version} is listed as installed, and its folder is not there"
        yield errors.Finding("error", text, subject.make_reinstall_line("torch"))
    elif torch.kind == "rocm" and not amd and subject.hardware.gpus:
        yield errors.Finding(
            "warning", f"{description}, and there is no AMD GPU here", subject.make_install_line("torch")
        )
    elif torch.kind in {"cuda", "cpu", "xpu"} and amd:
        hint = (
            "" if torch.distribution.label else "; PyPI has no build for ROCm: pip took this one from there"
        )
        yield errors.Finding(
            "error",
            f"{description}, and {subject.machine_name} has an AMD GPU: it is never used"
            f"{_describe_lack(subject) or hint}",
            subject.make_replace_torch_line(),
        )
    else:
        yield errors.Finding(
            "ok", f"{description} (installed{installer}, in {torch.distribution.site_folder})"
        )


def _describe_lack(subject: DoctorSubject) -> str:
    """Say when no other torch would serve the GPU either."""
    return f"; {subject.describe_no_torch()}" if subject.has_no_torch else ""


def check_build_kinds(subject: DoctorSubject) -> Iterator[errors.Finding]:
    """See that what is compiled against torch was compiled against this kind of torch."""
    torch = subject.installed.torch
    for name in _list_compiled_companions():
        package = subject.installed.get(name)
        if package is None:
            continue
        if torch is None or "unknown" in {package.kind, torch.kind} or package.kind == torch.kind:
            number = f" {package.build.version}" if package.build.version else ""
            kind = f", for {_KIND_NAMES[package.kind]}{number}" if package.kind in _KIND_NAMES else ""
            yield errors.Finding("ok", f"{name} {package.version}{kind}")
        else:
            yield errors.Finding(
                "error",
                f"{name} {package.version} is built for {_KIND_NAMES[package.kind]}, "
                f"torch {torch.version} for {_KIND_NAMES[torch.kind]}: "
                + (project.install if (project := find_project_of(name)) else InstallRecipe()).mismatch,
                subject.make_pip_line("uninstall", "-y", name)
                + " && "
                + subject.make_install_line("torch", name),
            )


def check_recommended_torch(subject: DoctorSubject) -> Iterator[errors.Finding]:
    """Say which torch the tables recommend for the machine and this Python."""
    environment = subject.installed.environment
    threads = "t" if environment.free_threaded else ""
    stated = StatedMachine(("none",), "none", f"{environment.version}{threads}")
    host = replace(make_host(subject.env, stated), hardware=subject.hardware)
    try:
        recommended = index_pages.recommend_torch(host)
    except errors.HostError:
        return
    if subject.has_no_torch and recommended.kind == "cpu":
        text = f"the torch for {subject.machine_name}: none uses its GPU; for the processor alone there is"
        yield errors.Finding(
            "info", f"{text} {recommended.index.url}", f"{subject.make_install_line('torch')} --allow-cpu"
        )
        return
    message = f"the torch for {subject.machine_name}: {recommended.kind}, from {recommended.index.url}"
    yield errors.Finding("ok", f"{message} ({'; '.join(recommended.reasons)})")


def check_triton(subject: DoctorSubject) -> Iterator[errors.Finding]:
    """See that there is one triton, and one for torch's kind."""
    torch, tritons = subject.installed.torch, subject.installed.tritons
    for package in tritons:
        yield errors.Finding("ok", f"{package.name} {package.version}")
    if len(tritons) > 1:
        names = [package.name for package in tritons]
        required_name = next(
            (package.name for package in tritons if torch and _requires_project(torch, package.name)), None
        )
        keep = required_name or next(
            (package.name for package in tritons if package.kind == "rocm"), names[-1]
        )
        version = next(package.version for package in tritons if package.name == keep)
        yield errors.Finding(
            "error",
            f"{join_some([str(package.distribution) for package in tritons])}: "
            "all of them are the module `triton`, "
            "and the files of the one installed last are over those of the other",
            subject.make_pip_line("uninstall", "-y", *names)
            + " && "
            + subject.make_install_line("torch", f"{keep}=={version}"),
        )
    elif not tritons and torch and torch.kind == "rocm" and _requires_project(torch, "triton"):
        yield errors.Finding(
            "warning", "there is no triton: torch.compile does not work", subject.make_install_line("torch")
        )


def check_duplicates(subject: DoctorSubject) -> Iterator[errors.Finding]:
    """Tell of packages that are there twice, and of those of the user that come first."""
    for package in subject.installed.packages:
        if not package.shadowed:
            continue
        first = subject.installed.get(package.name)
        if first and first.distribution.site_folder != package.distribution.site_folder:
            yield errors.Finding(
                "warning",
                f"{package.name} is installed twice: "
                f"{first.version} in {first.distribution.site_folder} is imported, "
                f"{package.version} in {package.distribution.site_folder} is not",
                "uninstall the one that is wrong, or leave its folder out of PYTHONPATH",
            )
        elif first:
            yield errors.Finding(
                "error",
                f"{package.distribution.site_folder} lists "
                f"{package.name} as {first.version} and as {package.version}: "
                "an upgrade was broken off",
                subject.make_reinstall_line(package.name),
            )
    user, compiled = subject.installed.environment.user_site, _list_compiled_companions()
    for package in subject.installed.packages:
        if (
            user
            and package.distribution.site_folder == user
            and not package.shadowed
            and package.name in {"torch", *compiled}
        ):
            yield errors.Finding(
                "warning",
                f"{package.name} {package.version} is in the user's own folder {user}, "
                f"where every Python {_get_python_minor(subject)} of this user finds it",
                f"PYTHONNOUSERSITE=1   # or: {subject.make_pip_line('uninstall', package.name)}",
            )


def check_interpreter(subject: DoctorSubject) -> Iterator[errors.Finding]:
    """See that what is installed was built for this Python."""
    python = subject.installed.environment
    for package in subject.installed.packages:
        tags = package.distribution.tags
        if not package.shadowed and tags and not any(_fits_python(tag, python) for tag in tags):
            yield errors.Finding(
                "error",
                f"{package.name} {package.version} is built for {join_some(sorted(set(tags)), 2)}, "
                f"and this is Python {python.minor}",
                subject.make_reinstall_line(package.name),
            )


def check_unreadable(subject: DoctorSubject) -> Iterator[errors.Finding]:
    """Pass on what could not be read of the environment."""
    for fault in subject.installed.faults:
        yield errors.Finding("warning", fault, "delete it, or install the package again")


def _fits_python(tag: str, python: installed_packages.PythonEnvironment) -> bool:
    code, _, remaining = tag.partition("-")
    abi = remaining.partition("-")[0]
    for interpreter_tag in code.split("."):
        match = _PYTHON_TAG.match(interpreter_tag)
        if not match:
            if interpreter_tag in {"py3", f"py{python.version.split('.')[0]}{python.version.split('.')[1]}"}:
                return True
            continue
        major, minor = (int(part) for part in python.version.split(".")[:2])
        if (int(match["major"]), int(match["minor"])) == (major, minor):
            return abi == "none" or abi.endswith("t") == python.free_threaded
        if "abi3" in abi.split(".") and int(match["minor"]) < minor and not python.free_threaded:
            return True
    return False


def _requires_project(package: installed_packages.InstalledPackage, name: str) -> bool:
    return any(re.match(rf"[\w-]*{re.escape(name)}\b", line) for line in package.distribution.requires)


def _get_python_minor(subject: DoctorSubject) -> str:
    return subject.installed.environment.minor


def check_requirements(subject: DoctorSubject) -> Iterator[errors.Finding]:
    """See that what torch's and ROCm's packages require is there, and what that requires in turn.

    ``uv pip check`` looks the same up, of all that is installed.
    """
    environment = subject.installed.environment
    markers = environment.markers
    present = {
        package.name: package.distribution for package in subject.installed.packages if not package.shadowed
    }
    pending: list[tuple[str, tuple[str, ...]]] = [(name, ()) for name in present]
    for name, extras in pending:  # which grows
        required, unreadable = _read_requirements(present[name], markers, extras)
        for text in unreadable:
            message = f"{name} requires {text!r}, which cannot be read"
            yield errors.Finding("info", message, subject.make_pip_line("check"))
        unread = {canonicalize_name(requirement.name) for requirement in required} - present.keys()
        if unread:
            pattern = re.compile("|".join(map(re.escape, unread)))
            others, _ = installed_packages.read_distributions(environment.path, pattern)
            for distribution in others:
                present.setdefault(distribution.name, distribution)
        for requirement in required:
            dependency = present.get(canonicalize_name(requirement.name))
            state = (
                "which is not installed" if dependency is None else f"and {dependency.version} is installed"
            )
            if dependency is None or not _is_satisfied(dependency.version, requirement):
                yield errors.Finding(
                    "error",
                    f"{name} {present[name].version} requires {requirement}, {state}",
                    _suggest_fix(subject, name, requirement),
                )
            else:
                asked = ((), tuple(sorted(requirement.extras)))
                pending += [entry for wanted in asked if (entry := (dependency.name, wanted)) not in pending]


def check_release_line(subject: DoctorSubject) -> Iterator[errors.Finding]:
    """Compare the versions of what is installed with torch by default with those that go with torch.

    Of the others, torch's own requirements tell.
    """
    torch = subject.installed.torch
    if torch is None:
        return
    try:
        belonging = torch_builds.find_companions(torch.version)
    except errors.DataError as error:
        yield errors.Finding("warning", error.message, subject.make_install_line("torch"))
        return
    for project in list_default_packages():
        package, expected = subject.installed.get(project), belonging.get(project)
        version = doctor_kernels.parse_optional_version(package.version) if package else None
        if package and version and expected and not facts.is_in_series(version, expected):
            yield errors.Finding(
                "warning",
                f"{project} {package.version} does not belong to torch {torch.version}: {expected} does",
                subject.make_install_line("torch", project),
            )


def _read_requirements(
    distribution: installed_packages.InstalledDistribution,
    markers: Mapping[str, str],
    extras: tuple[str, ...],
) -> tuple[list[Requirement], list[str]]:
    """Return what a package requires here (what ``extras`` add), without markers, and what cannot be read.

    Markers of variants are no requirement that anybody but their installer reads.
    """
    required, unreadable = [], []
    for text in distribution.requires:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            unreadable += [] if extras or "variant_" in text else [text]
            continue
        if _is_applicable(requirement, markers, extras):
            requirement.marker = None
            required.append(requirement)
    return required, unreadable


def _suggest_fix(subject: DoctorSubject, package: str, required: Requirement) -> str:
    """Return the line that brings a package: ROCm's from AMD's index, torch's with torch, others by pip."""
    name = canonicalize_name(required.name)
    if name.startswith(("rocm", "amd-torch")):
        return subject.make_rocm_pip_line(str(required), str(required.specifier))
    if not installed_packages.RELEVANT_PROJECTS.fullmatch(name):
        return subject.make_pip_line("install", str(required))
    names = dict.fromkeys([*(["torch"] if subject.installed.torch else []), package, name])
    torch_projects = [project for project in names if re.fullmatch(r"torch(vision|audio|ao)?", project)]
    return subject.make_install_line(*(torch_projects or ["torch"]))


def _is_applicable(required: Requirement, markers: Mapping[str, str], extras: tuple[str, ...]) -> bool:
    if required.marker is None:
        return not extras
    without = required.marker.evaluate({**markers, "extra": ""})
    if not extras:
        return without
    return not without and any(required.marker.evaluate({**markers, "extra": extra}) for extra in extras)


def _is_satisfied(version: str, required: Requirement) -> bool:
    try:
        return required.specifier.contains(Version(version), prereleases=True)
    except InvalidVersion:
        return version in str(required.specifier)
