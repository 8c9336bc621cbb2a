"""Plan an installation: parse what is asked for, choose, resolve, compare. Nothing is changed.

A virtual environment that is not there yet is planned for before it is made: an installation that cannot
be planned leaves no folder behind. What a killed run has begun is recognised by the lock of that run,
inside, and is made again.
"""

from __future__ import annotations

import json
import os
import re
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit, urlunsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from rocm_wheels.core import errors, log, parallel, process
from rocm_wheels.core.extras import find_uv
from rocm_wheels.core.files import hash_file
from rocm_wheels.index import reader
from rocm_wheels.models.project import is_closed_project, list_default_packages, list_projects
from rocm_wheels.user import (
    candidates,
    compare_installed,
    installation,
    installed_packages,
    kernel_proof,
    package_offers,
    resolve,
    signed_index,
    wheel_cache,
)

if TYPE_CHECKING:
    from rocm_wheels.user.host import TargetHost

_NAMES_TIP = "give names and versions: torch 'torchvision>=0.24' 'torch==2.9.*'"
_NEEDS_NO_TORCH = re.compile(r"rocm.*|.*triton.*|amd-.*|hip-.*")


@dataclass(frozen=True)
class RequestedPackage:
    """A requirement as it was given, without its marker, which is true of the environment."""

    text: str
    project: str
    requirement: Requirement


def parse_packages(words: Sequence[str], markers: Mapping[str, str]) -> tuple[RequestedPackage, ...]:
    """Read requirements; UsageError for what is none, for a URL or file, and for a project twice.

    One whose marker is false is left out, and that is said.
    """
    packages: dict[str, RequestedPackage] = {}
    for word in words or list_default_packages():
        requirement = _parse_package(word)
        if requirement.marker is not None and not requirement.marker.evaluate(dict(markers)):
            log.log_note(f"left out, as its marker is not true of this Python: {word}")
            continue
        requirement.marker = None
        name = canonicalize_name(requirement.name)
        if (intended := package_offers.find_intended_project(name)) is not None:
            raise errors.UsageError(
                f"{name} is no project of torch's; did you mean {intended}?",
                tip="if not, install it by pip or uv itself: strangers register names that are nearly others",
            )
        if name in packages:
            raise errors.UsageError(
                f"{name} is requested twice: {packages[name].text} and {word}", tip="name it once"
            )
        packages[name] = RequestedPackage(str(requirement), name, requirement)
    if not packages:
        raise errors.UsageError("nothing is left to install", tip=_NAMES_TIP)
    return tuple(packages.values())


def find_torch_requirement(packages: Sequence[RequestedPackage]) -> str | None:
    """Return the requirement on torch that the packages come to; None where torch is not part of it."""
    for package in packages:
        if package.project == "torch":
            return package.text
    needs_it = any(
        package_offers.requires_pure_wheel(package.project)
        or (is_closed_project(package.project) and not _NEEDS_NO_TORCH.fullmatch(package.project))
        for package in packages
    )
    return "torch" if needs_it else None


def list_stable_projects(packages: Sequence[RequestedPackage], *, pre: bool) -> frozenset[str]:
    """Return the projects of which a pre-release is not what was asked for, where there are releases."""
    return frozenset(
        package.project for package in packages if not pre and not package.requirement.specifier.prereleases
    )


def list_resolver_lines(
    packages: Sequence[RequestedPackage], choice: candidates.WheelChoice | None, *, pinned: bool = True
) -> list[str]:
    """Return what the resolver is asked for.

    torch, where it was asked for, is exactly the one that was chosen; its companions are as they were asked
    for: which of them go with that torch, they say themselves. Extras for the GPUs come with torch.
    """
    lines = [entry.text for entry in packages if choice is None or entry.project != choice.project]
    if choice is None or choice.picked is None:
        return lines
    requested = next((entry.requirement for entry in packages if entry.project == choice.project), None)
    for text in choice.requires or (f"{choice.project}=={choice.picked.version}",):
        entry = Requirement(text)
        if canonicalize_name(entry.name) == choice.project and not (pinned and requested):
            entry.specifier = requested.specifier if requested else SpecifierSet()
        if requested or entry.extras:
            lines.insert(0, str(entry))
    return lines


def list_device_extras(choice: candidates.WheelChoice | None) -> frozenset[str]:
    """Return the extras by which torch gets the kernels of this machine's GPUs (``device-gfx942``)."""
    extras = [extra for text in (choice.requires if choice else ()) for extra in Requirement(text).extras]
    return frozenset(extra for extra in extras if extra.startswith("device-"))


def _parse_package(word: str) -> Requirement:
    text = word.strip()
    if not text:
        raise errors.UsageError("a package has an empty name; is a variable not set?", tip=_NAMES_TIP)
    if text.startswith("-"):
        raise errors.UsageError(f"{text} is no option of this command", tip="--help lists them")
    if "://" in text or text.endswith((".whl", ".tar.gz", ".zip")) or text.startswith((".", "/", "~")):
        raise errors.UsageError(
            f"{text} is a file or URL: nothing would be chosen of it",
            tip="put wheels into a folder and name that with --index; or install it by pip or uv itself",
        )
    try:
        requirement = Requirement(text)
    except InvalidRequirement as cause:
        hint = " (two equals signs)" if re.search(r"[^=<>!~]=[^=]", text) else ""
        raise errors.UsageError(f"{text!r} is not a requirement{hint}", tip=_NAMES_TIP) from cause
    if requirement.url:
        raise errors.UsageError(f"{text} names a URL: nothing would be chosen of it", tip=_NAMES_TIP)
    return requirement


_UNFINISHED_MARK = "unfinished"  # beside the lock: `uv venv` has not ended well yet
# Debian's own Pythons have other folders than the environments that are made of them
_VENV_QUERY = """
import json, os, sys, sysconfig
scheme = "venv" if "venv" in sysconfig.get_scheme_names() else "nt" if os.name == "nt" else "posix_prefix"
base = {"base": sys.argv[1], "platbase": sys.argv[1]}
print(json.dumps([sysconfig.get_path(name, scheme, base) for name in ("purelib", "platlib", "scripts")]))
"""


def inspect_venv(folder: Path, base: Path | None, env: Mapping[str, str]) -> installation.InstallTarget:
    """Return a virtual environment of the Python ``base`` as a target: that at ``folder``, or the one to be.

    Without ``base`` the one that is there may be of any Python. UsageError where something else is there:
    other files, or an environment of another Python.
    """
    folder = folder.expanduser().absolute()
    env = {name: value for name, value in env.items() if name not in ("PYTHONHOME", "PYTHONPATH")}
    base_target = installation.inspect_target(base, env, changes=False)
    target = _plan_target(folder, base_target, env)
    lock = target.package_folders[0] / installation.LOCK_NAME
    begun = lock.is_dir() and ((lock / _UNFINISHED_MARK).exists() or not (folder / "pyvenv.cfg").exists())
    if begun or not folder.exists() or (folder.is_dir() and not _has_files(folder)):
        installation.require_writable_folder(target.package_folders[0])
        return target
    if not (folder / "pyvenv.cfg").is_file():
        raise errors.UsageError(
            f"--venv {folder} is there, and is no virtual environment",
            tip="name a folder that is not there yet, or one that this made",
        )
    try:
        existing = installed_packages.read_environment(folder, env)
    except errors.UsageError as cause:
        cause.tip = f"delete {folder}: the same command creates it again"
        raise errors.UsageError(f"--venv {folder} does not run") from cause
    if base is not None and _identify_base(existing) != _identify_base(base_target.environment):
        raise errors.UsageError(
            f"--venv {folder} is an environment of Python {existing.version} in {existing.base_prefix}, "
            "and not of"
            f" {base_target.environment.version} in {base_target.environment.base_prefix}",
            tip=f"delete {folder}, or name another folder",
        )
    return installation.inspect_target(folder, env)


def _has_files(folder: Path) -> bool:
    """Tell whether there is anything but folders: those alone are left of a run that was killed at once."""
    return any(files for _, _, files in os.walk(folder)) or any(
        path.is_symlink() for path in folder.iterdir()
    )


def begin_venv(target: installation.InstallTarget) -> None:
    """Make the folder of an environment that is not there yet. HostError where there can be none."""
    if target.base_python is not None:
        try:
            (target.package_folders[0] / installation.LOCK_NAME).mkdir(parents=True, exist_ok=True)
        except OSError as cause:
            raise errors.HostError(f"{target.environment.prefix} cannot be made: {cause.strerror}") from cause


def make_venv(plan: installation.InstallPlan, env: Mapping[str, str]) -> None:
    """Make the environment of a plan that is not there yet; who calls holds the lock inside of it."""
    target = plan.target
    if target.base_python is None:
        return
    prefix, begun = (
        target.environment.prefix,
        target.package_folders[0] / installation.LOCK_NAME / _UNFINISHED_MARK,
    )
    if (prefix / "pyvenv.cfg").exists() and not begun.exists():
        return  # another run has made it meanwhile
    log.log_note(f"making {target}")
    begun.touch()
    words = installation.make_venv_command(plan, str(find_uv()))
    words[2:2] = ["--quiet", "--allow-existing"]
    process.run_command(
        words,
        env=resolve.make_installer_environment(env),
        check=errors.HostError,
        description=f"making {prefix}",
    )
    if not target.python.is_file():
        raise errors.HostError(f"uv has made {prefix} without {target.python}")
    begun.unlink()


def _identify_base(environment: installed_packages.PythonEnvironment) -> tuple[str, bool, Path]:
    return environment.version, environment.free_threaded, environment.base_prefix.resolve()


def _plan_target(
    folder: Path, base_target: installation.InstallTarget, env: Mapping[str, str]
) -> installation.InstallTarget:
    output = process.capture_output(
        [base_target.python, "-I", "-c", _VENV_QUERY, folder],
        env=env,
        timeout=60,
        check=errors.UsageError,
        description=f"asking {base_target.python} where an environment has its packages",
    )
    *folders, scripts = (Path(os.path.normpath(path)) for path in json.loads(output))
    folders = list(dict.fromkeys(folders))
    environment = replace(
        base_target.environment,
        python=scripts / f"python{sysconfig.get_config_var('EXE') or ''}",
        prefix=folder,
        path=tuple(folders),
        site_packages=folders[0],
        user_site=None,
    )
    return replace(
        base_target,
        environment=environment,
        package_folders=tuple(folders),
        has_pip=False,
        base_python=base_target.python,
    )


_TRITON_PROJECT = re.compile(r"triton(-.+)?|pytorch-triton.*")
_SIZE_JOBS = 8
_NOT_THERE = {403, 404, 410}  # 403: a bucket that may be read and not listed
Chooser = Callable[[Sequence[str], "str | None"], candidates.WheelChoice]
# of wheels that recipes build: required, each has a statement that is about its bytes; optional, each that
# has one; off, nobody looks
ProvenanceMode = Literal["required", "optional", "off"]


@dataclass(frozen=True)
class InstallRequest:
    """What a user wants. ``installer`` is ``uv`` or ``pip``; ``gfx`` and ``rocm`` state another machine.

    ``venv`` is the folder of an environment that is made of ``python`` where it is not there. With
    ``stated_python`` (``3.12``, ``3.14t``) it is a plan for such a Python elsewhere. ``signers`` are
    public keys by name: one of them must have signed the statements of how wheels of torch and its companions
    were made; None: whoever wrote them. ``provenance`` says which wheels must have one: "" is ``required``
    with signers, else ``optional``. ``signed`` says which pages of the index are taken; None: all.
    ``allow_cpu``: a torch that serves no GPU of this machine is taken, too.
    """

    packages: tuple[str, ...] = ()
    index: str | None = None
    dependency_index: str | None = None
    python: Path | None = None
    installer: str = "uv"
    channel: str = "stable"
    pre: bool = False
    gfx: tuple[str, ...] = ()
    rocm: str | None = None
    require_hashes: bool = False
    rocm_index: str | None = None
    venv: Path | None = None
    stated_python: str = ""
    signers: Mapping[str, str] | None = None
    signed: signed_index.SignedIndexes | None = None
    provenance: ProvenanceMode | Literal[""] = ""
    allow_cpu: bool = False

    @property
    def provenance_mode(self) -> ProvenanceMode:
        """What holds of statements. UsageError for signers of what is not looked at."""
        if self.provenance == "off" and self.signers is not None:
            raise errors.UsageError(
                "--provenance off looks at no statement, and --signed-by names who must have signed them",
                tip="leave one of them out",
            )
        return self.provenance or ("optional" if self.signers is None else "required")


@dataclass(frozen=True)
class PlannedInstall:
    """A plan, and the offers that it was made of (sources that are built need them again)."""

    plan: installation.InstallPlan
    offers: package_offers.PackageOffers


def plan_installation(
    request: InstallRequest,
    cache: wheel_cache.WheelCache,
    env: Mapping[str, str],
    *,
    reach: wheel_cache.WholeReach | None = None,
) -> PlannedInstall:
    """Choose, resolve and compare. UsageError for bad input, HostError when nothing fits or nothing may.

    Plans with the same ``reach`` are about the same state of the indexes. UnservedGpuError for a torch
    without code for a GPU of this machine, unless the request allows it.
    """
    _ = request.provenance_mode  # before the network is asked
    target = inspect_request_target(request, env)
    if request.installer == "pip" and not target.has_pip:
        hint = "" if target.base_python else f"; or `{target.python} -m ensurepip`"
        raise errors.HostError(f"{target} has no pip", tip=f"leave --pip out: uv needs none{hint}")
    packages = parse_packages(request.packages, target.markers)
    host = make_request_host(request, target, env)
    reach = reach or wheel_cache.WholeReach(cache)
    dependencies = package_offers.find_dependency_index(request.dependency_index, env)
    rocm = reader.resolve_index_url(request.rocm_index) if request.rocm_index is not None else None
    if request.signed is not None:
        exempt = frozenset({dependencies, *([rocm] if rocm else [])})
        exempt -= {
            reader.resolve_index_url(request.index or "")
        }  # signed, also where dependencies come from it
        reach.page_check = replace(request.signed, exempt=exempt).check_page
    chooser = _make_chooser(request, host, reach)
    torch_requirement = find_torch_requirement(packages)
    if torch_requirement is None and request.index is None:
        raise errors.UsageError(
            "nothing of this belongs to torch, which says from which index things come",
            tip="name torch as well, or the index with --index",
        )
    choice = (
        chooser([torch_requirement, *_list_companions(packages)], request.index)
        if torch_requirement is not None
        else None
    )
    present = installation.list_installed(target)
    index = choice.index if choice else reader.resolve_index_url(request.index or "")
    versions = {name: distribution.version for name, distribution in present.items()}
    if choice is not None and choice.picked is not None:
        versions["torch"] = choice.picked.version
    companions = _make_chooser(request, replace(host, versions=versions), reach)
    sources = package_offers.OfferSources(
        index=index,
        dependencies=dependencies,
        tags=host.tags,
        installed=present,
        choose=lambda project, version: _choose_version(companions, index, project, version),
        torch=choice.picked if choice else None,
        stable_projects=list_stable_projects(packages, pre=request.pre),
        rocm=rocm,
    )
    offers = package_offers.PackageOffers(sources, reach)
    with resolve.serve_offers(offers) as url:
        resolver = resolve.Resolver(offers, url, target, env)
        resolved, lines = _resolve_packages(packages, choice, resolver)
        items = tuple(
            make_install_item(offer, present.get(offer.project), cache, offers) for offer in resolved
        )
    choice = _match_choice(choice, resolved, chooser)
    override_line = choice.override_line if choice else None
    demand = kernel_proof.make_demand(host, override_line)
    proof = prove_torch(items, offers, demand, target, cache) if demand else None
    if choice and proof:
        choice = replace(choice, notes=kernel_proof.drop_open_questions(choice.notes, proof))
    if proof and demand and not request.allow_cpu:
        kernel_proof.require_served(proof, demand, host, choice.notes if choice else ())
    items = _fill_sizes(items, reach)
    _require_hashes(request, items)
    if request.provenance_mode != "off":
        items = _check_statements(items, request, reach, env)
    removed = list_conflicts(items, present)
    warnings = (
        *_warn_missing_triton(choice, resolved, host),
        *_list_warnings(items, removed, present, target),
    )
    plan = installation.InstallPlan(
        target, request.installer, choice, tuple(lines), index, sources.dependencies, items, removed,
        warnings, demand, proof, request.allow_cpu, override_line,
    )  # fmt: skip
    return PlannedInstall(plan, offers)


def prove_torch(
    items: Sequence[installation.InstallItem],
    offers: package_offers.PackageOffers,
    demand: kernel_proof.GpuDemand,
    target: installation.InstallTarget,
    cache: wheel_cache.WheelCache,
) -> kernel_proof.KernelProof | None:
    """Return what is known of torch before it is fetched, of one that is installed, is here, or elsewhere."""
    torch = next((item for item in items if item.offer.project == "torch"), None)
    if torch is None:
        return None
    devices = [item for item in items if kernel_proof.is_device_project(item.offer.project)]
    if all(item.keep for item in (torch, *devices)):
        try:
            return kernel_proof.prove_installed(target.environment)
        except errors.DataError as fault:  # a damaged library: comparing what is installed tells more of it
            return kernel_proof.KernelProof(
                f"torch {torch.offer.version}", unread=errors.explain_error(fault)
            )
    here = [replace(item.offer, url=_find_here(item.offer, cache) or item.offer.url) for item in items]
    try:
        return kernel_proof.prove_offers(here, offers, demand, target.markers)
    except (
        errors.DataError
    ) as fault:  # of a file that rotted here: fetching it tells, and the proof comes after that
        return kernel_proof.KernelProof(f"torch {torch.offer.version}", unread=errors.explain_error(fault))


def _find_here(offer: package_offers.PackageOffer, cache: wheel_cache.WheelCache) -> str | None:
    """Return the URL of a file that was fetched before; None for one that was not."""
    path = cache.wheel_path(offer.sha256, offer.name) if offer.sha256 else None
    return path.as_uri() if path and path.is_file() else None


def inspect_request_target(request: InstallRequest, env: Mapping[str, str]) -> installation.InstallTarget:
    """Return the environment that a request is for. UsageError or HostError where it cannot be one."""
    if request.stated_python:
        return installation.state_target(request.stated_python, env)
    if request.venv is not None:
        return inspect_venv(request.venv, request.python, env)
    return installation.inspect_target(request.python, env)


def make_request_host(
    request: InstallRequest, target: installation.InstallTarget, env: Mapping[str, str]
) -> TargetHost:
    """Return the machine that a request is for, with the Python of its environment."""
    from rocm_wheels.user.host import StatedMachine, make_host

    threads = "t" if target.environment.free_threaded else ""
    stated_machine = StatedMachine(request.gfx, request.rocm, f"{target.environment.version}{threads}")
    return make_host(env, stated_machine)


def _make_chooser(request: InstallRequest, host: TargetHost, reach: reader.IndexReader) -> Chooser:
    from rocm_wheels.user import choose

    def choose_first(requirements: Sequence[str], index: str | None) -> candidates.WheelChoice:
        selected = requirements if index is None else requirements[:1]
        channel, pre, allow_cpu = request.channel, request.pre, request.allow_cpu
        return choose.choose_wheels(
            selected, index, host, reach, channel=channel, pre=pre, allow_cpu=allow_cpu
        )[0]

    return choose_first


def _list_companions(packages: Sequence[RequestedPackage]) -> list[str]:
    """Return what else the index has to have that is looked for: no other one is asked for it."""
    return [
        package.project
        for package in packages
        if is_closed_project(package.project) and package.project != "torch"
    ]


def _choose_version(
    chooser: Chooser, index: str, project: str, version: Version
) -> candidates.ChoiceCandidate | None:
    try:
        return chooser([f"{project}=={version}"], index).picked
    except reader.UnreachableError:
        raise
    except errors.HostError:
        return None  # a version that this machine can use no variant of is not offered


def _resolve_packages(
    packages: Sequence[RequestedPackage], choice: candidates.WheelChoice | None, resolver: resolve.Resolver
) -> tuple[list[package_offers.PackageOffer], list[str]]:
    """Resolve with exactly the torch that was chosen; where that fails, say whether another would do."""
    lines = list_resolver_lines(packages, choice)
    try:
        resolved = resolver.resolve_set(lines)
    except errors.HostError as failure:
        free = list_resolver_lines(packages, choice, pinned=False)
        if free == lines:
            raise
        try:
            alternative = resolver.resolve_set(free)
        except errors.HostError:
            raise failure from None
        names = {entry.project for entry in packages}
        together = " ".join(
            f"'{entry.project}=={entry.version}'" for entry in alternative if entry.project in names
        )
        failure.tip = f"these go together: rocm-wheels install {together}"
        raise
    device_lines = _list_device_lines(resolved, list_device_extras(choice), resolver.offers)
    return (
        (resolver.resolve_set([*lines, *device_lines]), [*lines, *device_lines])
        if device_lines
        else (resolved, lines)
    )


def _list_device_lines(
    resolved: Sequence[package_offers.PackageOffer],
    extras: frozenset[str],
    offers: package_offers.PackageOffers,
) -> list[str]:
    """Return what torch's companions have of the same extras: their kernels may lie in other wheels."""
    lines = []
    for offer in resolved if extras else ():
        if offer.project != "torch" and offer.source == "index" and not offer.is_sdist:
            shared = sorted(extras.intersection(offers.list_extras(offer)))
            lines += [f"{offer.project}[{','.join(shared)}]=={offer.version}"] if shared else []
    return lines


def _match_choice(
    choice: candidates.WheelChoice | None, resolved: Sequence[package_offers.PackageOffer], chooser: Chooser
) -> candidates.WheelChoice | None:
    """Return the choice of the torch that is taken: another one where only a companion was asked for."""
    torch = next((offer for offer in resolved if offer.project == "torch"), None)
    if choice is None or torch is None or choice.picked is None or choice.picked.url == torch.url:
        return choice
    new_choice = chooser([f"torch=={torch.version}"], choice.index)
    if new_choice.picked is None or new_choice.picked.url != torch.url:
        raise errors.HostError(
            f"the request fits {torch.name}, which is not the build for this machine",
            tip="name a version of torch as well",
        )
    return new_choice


def make_install_item(
    offer: package_offers.PackageOffer,
    current: installed_packages.InstalledDistribution | None,
    cache: wheel_cache.WheelCache,
    offers: package_offers.PackageOffers,
) -> installation.InstallItem:
    """Return what is done with a file where ``current`` is installed (None: nothing)."""
    path = reader.path_of_url(offer.url) if offer.source != "installed" else None
    if path is None and offer.sha256:
        cached = cache.wheel_path(offer.sha256, offer.name)
        path = cached if cached.is_file() else None
    keep = offer.source == "installed" or _is_installed(offer, current, path, offers)
    matters = current is not None and not keep and is_closed_project(offer.project)
    kind = installed_packages.detect_build(current).kind if matters and current is not None else ""
    return installation.InstallItem(offer, keep, current, "" if kind == "unknown" else kind, path is not None)


def _fill_sizes(
    items: Sequence[installation.InstallItem], reach: reader.IndexReader
) -> tuple[installation.InstallItem, ...]:
    """Ask the servers for the sizes that their pages do not say (HTML has no place for them)."""

    def fill_size(item: installation.InstallItem) -> installation.InstallItem:
        if item.keep or item.offer.size is not None:
            return item
        try:
            size = reach.fetch_size(item.offer.url)[1]
        except reader.UnreachableError:
            size = None  # fetching it will tell
        return replace(item, offer=replace(item.offer, size=size))

    return tuple(parallel.run_in_parallel(fill_size, items, jobs=_SIZE_JOBS))


def _is_installed(
    offer: package_offers.PackageOffer,
    current: installed_packages.InstalledDistribution | None,
    path: Path | None,
    offers: package_offers.PackageOffers,
) -> bool:
    """Tell whether what is installed was made of this very file; of a plain dependency the version tells."""
    if current is None or current.editable or current.version != str(offer.version):
        return False
    if not is_closed_project(offer.project):
        return True
    if offer.is_sdist:
        return True  # its version is pinned, and what it was built into is not known beforehand
    entries = compare_installed.read_wheel_record(offer, path)
    return entries is not None and not compare_installed.list_differences(entries, current)


def _require_hashes(request: InstallRequest, items: Sequence[installation.InstallItem]) -> None:
    bare = [
        item.offer.name for item in items if not item.keep and not item.offer.sha256 and not _is_local(item)
    ]
    if not bare:
        return
    remaining = f" and {len(bare) - 3} more" if len(bare) > 3 else ""
    message = f"the index states no sha256 of {', '.join(bare[:3])}{remaining}"
    if request.require_hashes:
        raise errors.HostError(message, tip="leave --require-hashes out to trust the connection alone")
    log.log_warning(f"{message}: only the connection vouches for the bytes")


def _check_statements(
    items: Sequence[installation.InstallItem],
    request: InstallRequest,
    reach: reader.IndexReader,
    env: Mapping[str, str],
) -> tuple[installation.InstallItem, ...]:
    """Return what is installed, with what its statements say. HostError for wrong ones, and missing ones.

    ROCm's own packages are not asked for any, nor is what no index was asked for because it is installed. A
    file of which the index states no sha256 gets that of its statement, which its bytes must then have.
    """

    def check(item: installation.InstallItem) -> installation.InstallItem | errors.DataError:
        if item.keep or not _is_built_from_recipe(item.offer.project):
            return item
        try:
            return _check_statement(item, request, reach, env)
        except errors.DataError as fault:
            return fault

    checked = parallel.run_in_parallel(check, items, jobs=_SIZE_JOBS)
    faults = [fault for fault in checked if isinstance(fault, errors.DataError)]
    if faults:
        tip = "get the wheels from who built them; --provenance off looks at no statement"
        if request.signers is not None:
            tip = "leave --signed-by out to install what nobody answers for"
        elif all(isinstance(fault, _NoStatementError) for fault in faults):
            tip = "--provenance optional takes wheels without a statement, too"
        raise errors.HostError("\n".join(map(str, faults)), tip=f"nothing was installed; {tip}")
    return tuple(item for item in checked if isinstance(item, installation.InstallItem))


class _NoStatementError(errors.DataError):
    """A wheel that must have a statement has none."""


def _is_built_from_recipe(name: str) -> bool:
    """Tell whether a project (normalized name) is one that recipes build, or device wheels of one."""
    names = [project.normalized_name for project in list_projects()]
    return name in names or any(name.startswith(f"amd-{built}-device-") for built in names)


def _check_statement(
    item: installation.InstallItem, request: InstallRequest, reach: reader.IndexReader, env: Mapping[str, str]
) -> installation.InstallItem:
    """Return an item with what its statement says. DataError for a wrong one, or for want of one."""
    from rocm_wheels.package.provenance import check_signature, parse_stored_statement
    from rocm_wheels.wheels.statement import (
        STATEMENT_SIGNATURE_SUFFIX,
        STATEMENT_SUFFIX,
        parse_statement,
        walk_statements,
    )

    offer = item.offer
    content = _read_beside(offer, STATEMENT_SUFFIX, reach)
    if content is None:
        if request.provenance_mode == "required":
            raise _NoStatementError(f"the index has no {offer.name}{STATEMENT_SUFFIX}")
        return item
    name = f"{offer.name}{STATEMENT_SUFFIX}"
    local = reader.path_of_url(offer.url) if not offer.sha256 else None
    stated = offer.sha256 or parse_statement(content, name=name).sha256
    sha256 = stated if local is None else hash_file(local)
    statement = parse_stored_statement(content, name=name, wheel=offer.name, sha256=sha256)
    for _inner in walk_statements(statement):
        pass  # each that it holds is about the wheel that it is named as the statement of
    state = "present"
    if request.signers is not None:
        signature = _read_beside(offer, STATEMENT_SIGNATURE_SUFFIX, reach)
        if signature is None:
            raise errors.DataError(f"the index has no {offer.name}{STATEMENT_SIGNATURE_SUFFIX}")
        signer = check_signature(content, signature, request.signers, env)
        if not signer:
            raise errors.DataError(f"{name} is not signed by {' or '.join(request.signers)}")
        state = f"signed by {signer}"
    return replace(item, offer=replace(offer, sha256=sha256), statement=state)


def _read_beside(offer: package_offers.PackageOffer, suffix: str, reach: reader.IndexReader) -> bytes | None:
    """Return a file that lies beside a wheel; None where there is none, as servers say in several ways."""
    parts = urlsplit(offer.url)
    try:
        answer = reach.get(urlunsplit(parts._replace(path=parts.path + suffix)))
    except reader.UnreachableError as cause:
        raise errors.DataError(f"{offer.name}{suffix} cannot be read: {cause}") from None
    if answer.status in _NOT_THERE:
        return None
    if answer.status != 200:
        raise errors.DataError(f"{offer.name}{suffix} cannot be read: the server says {answer.status}")
    return answer.content


def _is_local(item: installation.InstallItem) -> bool:
    return reader.path_of_url(item.offer.url) is not None


def list_conflicts(
    items: Sequence[installation.InstallItem], present: Mapping[str, installed_packages.InstalledDistribution]
) -> tuple[installed_packages.InstalledDistribution, ...]:
    """Return installed tritons of other names: they all have the same folder, and overwrite each other."""
    names = {item.offer.project for item in items}
    if not any(_TRITON_PROJECT.fullmatch(name) for name in names):
        return ()
    return tuple(
        distribution
        for name, distribution in present.items()
        if _TRITON_PROJECT.fullmatch(name) and name not in names
    )


def _warn_missing_triton(
    choice: candidates.WheelChoice | None, resolved: Sequence[package_offers.PackageOffer], host: TargetHost
) -> tuple[str, ...]:
    """Say when torch of a known index comes without the triton that goes with it: it did not require it."""
    from rocm_wheels.models import package_indexes, torch_builds

    index = package_indexes.find_index_by_url(choice.index) if choice else None
    torch = next((offer for offer in resolved if offer.project == "torch"), None)
    if index is None or torch is None:
        return ()
    name = torch_builds.get_triton_name(torch.version, index, platform=host.platform)
    if not name or any(offer.project == name for offer in resolved):
        return ()
    message = f"torch {torch.version} goes with {name}, and does not require it: torch.compile will not work"
    if separate := torch_builds.find_separate_triton(torch.version, index, platform=host.platform):
        return (f"{message} without it; from PyPI, by others than PyTorch: pip install '{separate}'",)
    return (message,)


def _list_warnings(
    items: Sequence[installation.InstallItem],
    removed: Sequence[installed_packages.InstalledDistribution],
    present: Mapping[str, installed_packages.InstalledDistribution],
    target: installation.InstallTarget,
) -> tuple[str, ...]:
    versions = {name: distribution.version for name, distribution in present.items()}
    versions |= {item.offer.project: str(item.offer.version) for item in items}
    removed_names = {distribution.name for distribution in removed}
    versions = {name: version for name, version in versions.items() if name not in removed_names}
    changed = [item.offer.project for item in items if not item.keep]
    unchanged = [
        distribution
        for name, distribution in present.items()
        if name not in removed_names and name not in changed
    ]
    return tuple(
        compare_installed.list_broken_requirements(
            [*changed, *removed_names], unchanged, versions, target.markers
        )
    )
