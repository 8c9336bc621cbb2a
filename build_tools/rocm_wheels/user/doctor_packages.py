"""What ``doctor`` checks of an environment: torch and its companions, and whether they belong together.

Source: "Dependency specifiers" of the PyPA specifications; what goes with a torch, by the tables of
compatibility.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.tags import parse_tag
from packaging.utils import canonicalize_name

from rocm_wheels.core import errors
from rocm_wheels.core.errors import Finding
from rocm_wheels.models import facts, torch_builds
from rocm_wheels.models.project import InstallRecipe, find_project_of, list_default_packages, list_projects
from rocm_wheels.models.versions import is_asan_version
from rocm_wheels.user import index_pages, installed_packages
from rocm_wheels.user.doctor_subject import DoctorSubject, error, info, join_some, ok, warning
from rocm_wheels.user.host import StatedMachine, make_host
from rocm_wheels.wheels import python_tags

_KIND_NAMES = {"rocm": "ROCm", "cuda": "CUDA", "xpu": "Intel GPUs (XPU)", "cpu": "processors alone (CPU)"}
_OTHER_COMPANIONS = ("torchao", "xformers")  # compiled, without a recipe of ours


def _list_compiled_companions() -> list[str]:
    """Return what is compiled against torch: by recipes, and others that are known."""
    built = [project.normalized_name for project in list_projects() if project.is_built_against_torch]
    return list(dict.fromkeys([*built, *_OTHER_COMPANIONS]))


def check_python(subject: DoctorSubject) -> Iterator[Finding]:
    """Say which Python was looked at."""
    python = subject.installed.environment
    if subject.is_own:
        text = f"Python {python.version} ({python.python}, the environment of rocm-wheels itself)"
        yield info(text, "rocm-wheels doctor --python DIR, where torch is in another one")
    else:
        virtual = "a virtual environment" if python.is_virtual else "not a virtual environment"
        yield ok(f"Python {python.version} ({python.python}, {virtual})")


def check_recommended(subject: DoctorSubject) -> Iterator[Finding]:
    """Say which torch the tables recommend for the machine and this Python."""
    environment = subject.installed.environment
    threads = "t" if environment.free_threaded else ""
    stated = StatedMachine(("none",), "none", f"{environment.version}{threads}")
    host = replace(make_host(subject.env, stated), hardware=subject.hardware)
    try:
        recommended = index_pages.recommend_torch(host)
    except errors.HostError:
        return
    url = recommended.index.url
    if subject.lack and recommended.kind == "cpu":
        text = f"the torch for {subject.name}: none uses its GPU; for the processor alone there is {url}"
        yield info(text, f"{subject.format_install('torch')} --allow-cpu")
    else:
        reasons = "; ".join(recommended.reasons)
        yield ok(f"the torch for {subject.name}: {recommended.kind}, from {url} ({reasons})")


def check_torch(subject: DoctorSubject) -> Iterator[Finding]:
    """See that torch is there and was built for this machine's GPUs."""
    torch, has_amd = subject.installed.torch, subject.has_amd
    lack = f"; {subject.lack}" if subject.lack else ""  # then no other torch would serve the GPU either
    if torch is None:
        yield info(f"torch is not installed{lack}", subject.format_torch())
        return
    distribution = torch
    kind = _KIND_NAMES.get(torch.kind, "what cannot be told")
    description = f"torch {torch.version} is built for {f'{kind} {torch.build.version}'.rstrip()}"
    if torch.folder is None:
        text = f"torch {torch.version} is listed as installed, and its folder is not there"
        yield error(text, subject.format_reinstallation("torch"))
    elif torch.kind == "rocm" and not has_amd and subject.hardware.gpus:
        yield warning(f"{description}, and there is no AMD GPU here", subject.format_install("torch"))
    elif torch.kind in {"cuda", "cpu", "xpu"} and has_amd:
        origin = "" if distribution.label else "; PyPI has no build for ROCm: pip took this one from there"
        text = f"{description}, and {subject.name} has an AMD GPU: it is never used{lack or origin}"
        yield error(text, subject.format_other_torch())
    else:
        installer = f" by {distribution.installer}" if distribution.installer else ""
        yield ok(f"{description} (installed{installer}, in {distribution.site_folder})")


def check_asan(subject: DoctorSubject) -> Iterator[Finding]:
    """See that the runtime of a torch with AddressSanitizer is preloaded."""
    from rocm_wheels.binaries import asan  # few have one

    torch = subject.installed.torch
    if torch is None or not is_asan_version(torch.version):
        return
    preloaded = [Path(name).name for name in subject.env.get("LD_PRELOAD", "").split(":")]
    if not any(map(asan.is_runtime, preloaded)):
        yield error(
            f"torch {torch.version} has AddressSanitizer, whose runtime is not preloaded: it ends Python",
            "LD_PRELOAD=$(c++ -print-file-name=libasan.so) for gcc's, before each command",
        )


def check_kinds(subject: DoctorSubject) -> Iterator[Finding]:
    """See that what is compiled against torch was compiled against this kind of torch."""
    torch = subject.installed.torch
    for package in filter(None, map(subject.installed.get, _list_compiled_companions())):
        name, kind = package, _KIND_NAMES.get(package.kind, "")
        project = find_project_of(package.name)
        # by torch's stable ABI: torchcodec of PyPI, which pins none
        fits_all = package.kind == "cpu" and project is not None and not project.build.pins
        if torch is None or fits_all or "unknown" in {package.kind, torch.kind} or package.kind == torch.kind:
            yield ok(f"{name}, for {kind} {package.build.version}".rstrip() if kind else str(name))
        else:
            install = project.install if project else InstallRecipe()
            of_torch = f"torch {torch.version} for {_KIND_NAMES[torch.kind]}"
            text = f"{name} is built for {kind}, {of_torch}: {install.mismatch}"
            yield error(text, subject.format_reinstallation(package.name))


def check_triton(subject: DoctorSubject) -> Iterator[Finding]:
    """See that there is one triton, and one for torch's kind."""
    torch, tritons = subject.installed.torch, subject.installed.tritons
    for package in tritons:
        yield ok(str(package))

    def requires(name: str) -> bool:
        lines = torch.requires if torch else ()
        return any(re.match(rf"[\w-]*{re.escape(name)}\b", line) for line in lines)

    if len(tritons) > 1:
        # to keep: the one that torch requires, else one for ROCm, else the last
        kept = max(reversed(tritons), key=lambda package: (requires(package.name), package.kind == "rocm"))
        text = f"{join_some([str(package) for package in tritons])}: all of them are the module "
        text += "`triton`, and the files of the one installed last are over those of the other"
        install = subject.format_install("torch", f"{kept.name}=={kept.version}")
        yield error(text, subject.format_replacement([package.name for package in tritons], install))
    elif not tritons and torch and torch.kind == "rocm" and requires("triton"):
        yield warning("there is no triton: torch.compile does not work", subject.format_install("torch"))


def check_requirements(subject: DoctorSubject) -> Iterator[Finding]:
    """See that what torch's and ROCm's packages require is there, and what that requires in turn.

    ``uv pip check`` looks the same up, of all that is installed.
    """
    environment = subject.installed.environment
    present = {package.name: package for package in subject.installed.packages if not package.shadowed}
    pending = [(name, "") for name in present]  # each with an extra that is wanted of it, "" for itself
    for name, extra in pending:  # which grows
        for text in present[name].requires:
            try:
                required = Requirement(text)
            except InvalidRequirement:  # a marker of variants is one that nobody but their installer reads
                if not extra and "variant_" not in text:
                    yield info(f"{name} requires {text!r}, which cannot be read", subject.format_pip("check"))
                continue
            marker, required.marker = required.marker, None
            holds, by_extra = (
                marker is None or marker.evaluate({**environment.markers, "extra": value})
                for value in ("", extra)
            )
            if not by_extra or (extra and holds):  # of an extra what it alone adds
                continue
            dependency_name = canonicalize_name(required.name)
            if dependency_name not in present:  # the packages of others are read where they are required
                pattern = re.compile(re.escape(dependency_name))
                others, _ = installed_packages.read_distributions(environment.path, pattern)
                present |= {distribution.name: distribution for distribution in others[:1]}
            dependency = present.get(dependency_name)
            if dependency is None or not _is_satisfied(dependency.version, required):
                state = f"and {dependency.version} is installed" if dependency else "which is not installed"
                message = f"{name} {present[name].version} requires {required}, {state}"
                yield error(message, _suggest_fix(subject, name, required))
            else:
                entries = [(dependency_name, wanted) for wanted in ("", *sorted(required.extras))]
                pending += [entry for entry in entries if entry not in pending]


def _is_satisfied(version: str, required: Requirement) -> bool:
    parsed = installed_packages.parse_optional_version(version)
    if parsed is None:
        return version in str(required.specifier)
    return required.specifier.contains(parsed, prereleases=True)


def _suggest_fix(subject: DoctorSubject, package: str, required: Requirement) -> str:
    """Return the line that brings a package: ROCm's from AMD's index, torch's with torch, others by pip."""
    name = canonicalize_name(required.name)
    if name.startswith(("rocm", "amd-torch")):
        return subject.format_rocm_pip(str(required), str(required.specifier))
    if not installed_packages.match_relevant_projects().fullmatch(name):
        return subject.format_pip("install", str(required))
    names = dict.fromkeys([*(["torch"] if subject.installed.torch else []), package, name])
    torch_projects = [project for project in names if re.fullmatch(r"torch(vision|audio|ao)?", project)]
    return subject.format_install(*(torch_projects or ["torch"]))


def check_release_line(subject: DoctorSubject) -> Iterator[Finding]:
    """Compare the versions of what is installed with torch by default with those that go with torch.

    Of the others, torch's own requirements tell.
    """
    torch = subject.installed.torch
    if torch is None:
        return
    try:
        belonging = torch_builds.find_companions(torch.version)
    except errors.DataError as refusal:
        yield warning(refusal.message, subject.format_install("torch"))
        return
    for package in filter(None, map(subject.installed.get, list_default_packages())):
        expected = belonging.get(package.name)
        version = installed_packages.parse_optional_version(package.version)
        if version and expected and not facts.is_in_series(version, expected):
            text = f"{package} does not belong to torch {torch.version}: {expected} does"
            yield warning(text, subject.format_install("torch", package.name))


def check_interpreter(subject: DoctorSubject) -> Iterator[Finding]:
    """See that what is installed was built for this Python."""
    python = subject.installed.environment
    for package in subject.installed.packages:
        tags = sorted({tag for tag in package.tags if tag.count("-") == 2})
        built_for = frozenset(tag for text in tags for tag in parse_tag(text))
        if not package.shadowed and tags and not python_tags.accepts_python(built_for, python.minor):
            text = f"{package} is built for {join_some(tags, 2)}, and this is Python {python.minor}"
            yield error(text, subject.format_reinstallation(package.name))


def check_twice(subject: DoctorSubject) -> Iterator[Finding]:
    """Tell of packages that are there twice, and of those of the user that come first."""
    python, compiled = subject.installed.environment, {"torch", *_list_compiled_companions()}
    for package in subject.installed.packages:
        name, version, folder = package.name, package.version, package.site_folder
        first = subject.installed.get(name)
        if not package.shadowed and folder == python.user_site and name in compiled:
            text = f"{name} {version} is in the user's own folder {folder}, "
            text += f"where every Python {python.minor} of this user finds it"
            yield warning(text, f"PYTHONNOUSERSITE=1   # or: {subject.format_pip('uninstall', name)}")
        elif package.shadowed and first and first.site_folder != folder:
            text = f"{name} is installed twice: {first.version} in {first.site_folder} is "
            text += f"imported, {version} in {folder} is not"
            yield warning(text, "uninstall the one that is wrong, or leave its folder out of PYTHONPATH")
        elif package.shadowed and first:
            text = f"{folder} lists {name} as {first.version} and as {version}: an upgrade was broken off"
            yield error(text, subject.format_reinstallation(name))


def check_unreadable(subject: DoctorSubject) -> Iterator[Finding]:
    """Pass on what could not be read of the environment."""
    for fault in subject.installed.faults:
        yield warning(fault, "delete it, or install the package again")


CHECKS = (
    check_python,
    check_recommended,
    check_torch,
    check_asan,
    check_kinds,
    check_triton,
    check_requirements,
    check_release_line,
    check_interpreter,
    check_twice,
    check_unreadable,
)
