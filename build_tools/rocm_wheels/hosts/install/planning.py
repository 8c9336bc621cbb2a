"""From what is asked for to a plan: choose, resolve, compare with what is installed. Nothing is changed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import Version

from rocm_wheels import log, parallel
from rocm_wheels.errors import HostError, UsageError
from rocm_wheels.hosts.choose.candidate import ChoiceCandidate, WheelChoice
from rocm_wheels.hosts.choose.pages import UnreachableIndexError
from rocm_wheels.hosts.install.asked import (
    RequestedPackage,
    list_device_extras,
    parse_packages,
    list_resolver_lines,
    list_stable_projects,
    find_torch_requirement,
)
from rocm_wheels.hosts.install.belonging import list_broken_requirements
from rocm_wheels.hosts.install.cache import WheelCache
from rocm_wheels.hosts.install.fetch import WholeReach
from rocm_wheels.hosts.install.offers import PackageOffer, PackageOffers, OfferSources
from rocm_wheels.hosts.install.plan import InstallItem, InstallPlan
from rocm_wheels.hosts.install.records import list_differences, read_wheel_record
from rocm_wheels.hosts.install.resolve import Resolver
from rocm_wheels.hosts.install.rule import find_dependency_index, is_closed_project
from rocm_wheels.hosts.install.target import InstallTarget, list_installed, inspect_target
from rocm_wheels.hosts.install.venv import inspect_venv
from rocm_wheels.hosts.install.view import serve_offers
from rocm_wheels.hosts.installed.builds import detect_build
from rocm_wheels.hosts.installed.distributions import InstalledDistribution
from rocm_wheels.index.reach import IndexReader, UnreachableError, resolve_index_url, path_of_url

if TYPE_CHECKING:
    from rocm_wheels.hosts.choose.host import TargetHost

_TRITON_PROJECT = re.compile(r"triton(-.+)?|pytorch-triton.*")
_SIZE_JOBS = 8
Chooser = Callable[[Sequence[str], "str | None"], WheelChoice]


@dataclass(frozen=True)
class InstallRequest:
    """What a user wants. ``installer`` is ``uv`` or ``pip``; ``gfx`` and ``rocm`` state another machine.

    ``venv`` is the folder of an environment that is made of ``python`` where it is not there.
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


@dataclass(frozen=True)
class PlannedInstall:
    """A plan, and the offers that it was made of (sources that are built need them again)."""

    plan: InstallPlan
    offers: PackageOffers


def plan_installation(request: InstallRequest, cache: WheelCache, env: Mapping[str, str]) -> PlannedInstall:
    """Choose, resolve and compare. UsageError for bad input, HostError when nothing fits or nothing may."""
    target = (
        inspect_target(request.python, env)
        if request.venv is None
        else inspect_venv(request.venv, request.python, env)
    )
    if request.installer == "pip" and not target.has_pip:
        hint = "" if target.base_python else f"; or `{target.python} -m ensurepip`"
        raise HostError(f"{target} has no pip", tip=f"leave --pip out: uv needs none{hint}")
    packages = parse_packages(request.packages, target.markers)
    host = _make_target_host(request, target, env)
    reach = WholeReach(cache)
    chooser = _make_chooser(request, host, reach)
    torch_requirement = find_torch_requirement(packages)
    if torch_requirement is None and request.index is None:
        raise UsageError(
            "nothing of this belongs to torch, which says from which index things come",
            tip="name torch as well, or the index with --index",
        )
    choice = (
        chooser([torch_requirement, *_list_companions(packages)], request.index)
        if torch_requirement is not None
        else None
    )
    present = list_installed(target)
    index = choice.index if choice else resolve_index_url(request.index or "")
    sources = OfferSources(
        index=index,
        dependencies=find_dependency_index(request.dependency_index, env),
        tags=host.tags,
        installed=present,
        choose=lambda project, version: _choose_version(chooser, index, project, version),
        torch=choice.picked if choice else None,
        stable_projects=list_stable_projects(packages, pre=request.pre),
        rocm=resolve_index_url(request.rocm_index) if request.rocm_index is not None else None,
    )
    offers = PackageOffers(sources, reach)
    with serve_offers(offers) as url:
        resolver = Resolver(offers, url, target, env)
        resolved, lines = _resolve_packages(packages, choice, resolver)
        items = _fill_sizes(
            [_make_item(offer, present.get(offer.project), cache) for offer in resolved], reach
        )
    choice = _match_choice(choice, resolved, chooser)
    _require_hashes(request, items)
    removed = list_conflicts(items, present)
    warnings = (
        *_warn_missing_triton(choice, resolved, host),
        *_list_warnings(items, removed, present, target),
    )
    plan = InstallPlan(
        target, request.installer, choice, tuple(lines), index, sources.dependencies, items, removed, warnings
    )
    return PlannedInstall(plan, offers)


def _make_target_host(request: InstallRequest, target: InstallTarget, env: Mapping[str, str]) -> TargetHost:
    from rocm_wheels.hosts.choose.machine import StatedMachine, make_host

    threads = "t" if target.environment.free_threaded else ""
    stated_machine = StatedMachine(request.gfx, request.rocm, f"{target.environment.version}{threads}")
    return make_host(env, stated_machine)


def _make_chooser(request: InstallRequest, host: TargetHost, reach: IndexReader) -> Chooser:
    from rocm_wheels.hosts.choose.choosing import choose_wheels

    def choose_first(requirements: Sequence[str], index: str | None) -> WheelChoice:
        selected = requirements if index is None else requirements[:1]
        return choose_wheels(selected, index, host, reach, channel=request.channel, pre=request.pre)[0]

    return choose_first


def _list_companions(packages: Sequence[RequestedPackage]) -> list[str]:
    """Return what else the index has to have that is looked for: no other one is asked for it."""
    return [
        package.project
        for package in packages
        if is_closed_project(package.project) and package.project != "torch"
    ]


def _choose_version(chooser: Chooser, index: str, project: str, version: Version) -> ChoiceCandidate | None:
    try:
        return chooser([f"{project}=={version}"], index).picked
    except UnreachableIndexError:
        raise
    except HostError:
        return None  # a version that this machine can use no variant of is not offered


def _resolve_packages(
    packages: Sequence[RequestedPackage], choice: WheelChoice | None, resolver: Resolver
) -> tuple[list[PackageOffer], list[str]]:
    """Resolve with exactly the torch that was chosen; where that fails, say whether another would do."""
    lines = list_resolver_lines(packages, choice)
    try:
        resolved = resolver.resolve_set(lines)
    except HostError as failure:
        free = list_resolver_lines(packages, choice, pinned=False)
        if free == lines:
            raise
        try:
            alternative = resolver.resolve_set(free)
        except HostError:
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
    resolved: Sequence[PackageOffer], extras: frozenset[str], offers: PackageOffers
) -> list[str]:
    """Return what torch's companions have of the same extras: their kernels may lie in other wheels."""
    lines = []
    for offer in resolved if extras else ():
        if offer.project != "torch" and offer.source == "index" and not offer.is_sdist:
            shared = sorted(extras.intersection(offers.list_extras(offer)))
            lines += [f"{offer.project}[{','.join(shared)}]=={offer.version}"] if shared else []
    return lines


def _match_choice(
    choice: WheelChoice | None, resolved: Sequence[PackageOffer], chooser: Chooser
) -> WheelChoice | None:
    """Return the choice of the torch that is taken: another one where only a companion was asked for."""
    torch = next((offer for offer in resolved if offer.project == "torch"), None)
    if choice is None or torch is None or choice.picked is None or choice.picked.url == torch.url:
        return choice
    new_choice = chooser([f"torch=={torch.version}"], choice.index)
    if new_choice.picked is None or new_choice.picked.url != torch.url:
        raise HostError(
            f"what was asked for goes with {torch.name}, which is not the build for this machine",
            tip="name a version of torch as well",
        )
    return new_choice


def _make_item(offer: PackageOffer, current: InstalledDistribution | None, cache: WheelCache) -> InstallItem:
    path = path_of_url(offer.url) if offer.source != "installed" else None
    if path is None and offer.sha256:
        cached = cache.wheel_path(offer.sha256, offer.name)
        path = cached if cached.is_file() else None
    keep = offer.source == "installed" or _is_installed(offer, current, path)
    matters = current is not None and not keep and is_closed_project(offer.project)
    kind = detect_build(current).kind if matters and current is not None else ""
    return InstallItem(offer, keep, current, "" if kind == "unknown" else kind, path is not None)


def _fill_sizes(items: Sequence[InstallItem], reach: IndexReader) -> tuple[InstallItem, ...]:
    """Ask the servers for the sizes that their pages do not say (HTML has no place for them)."""

    def fill_size(item: InstallItem) -> InstallItem:
        if item.keep or item.offer.size is not None:
            return item
        try:
            size = reach.fetch_size(item.offer.url)[1]
        except UnreachableError:
            size = None  # fetching it will tell
        return replace(item, offer=replace(item.offer, size=size))

    return tuple(parallel.run_in_parallel(fill_size, items, jobs=_SIZE_JOBS))


def _is_installed(offer: PackageOffer, current: InstalledDistribution | None, path: Path | None) -> bool:
    """Tell whether what is installed was made of this very file; of a plain dependency the version tells."""
    if current is None or current.editable or current.version != str(offer.version):
        return False
    if not is_closed_project(offer.project):
        return True
    if offer.is_sdist:
        return True  # its version is pinned, and what it was built into is not known beforehand
    entries = read_wheel_record(offer, path)
    return entries is not None and not list_differences(entries, current)


def _require_hashes(request: InstallRequest, items: Sequence[InstallItem]) -> None:
    bare = [
        item.offer.name for item in items if not item.keep and not item.offer.sha256 and not _is_local(item)
    ]
    if not bare:
        return
    remaining = f" and {len(bare) - 3} more" if len(bare) > 3 else ""
    message = f"the index states no sha256 of {', '.join(bare[:3])}{remaining}"
    if request.require_hashes:
        raise HostError(message, tip="leave --require-hashes out to trust the connection alone")
    log.log_warning(f"{message}: only the connection vouches for the bytes")


def _is_local(item: InstallItem) -> bool:
    return path_of_url(item.offer.url) is not None


def list_conflicts(
    items: Sequence[InstallItem], present: Mapping[str, InstalledDistribution]
) -> tuple[InstalledDistribution, ...]:
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
    choice: WheelChoice | None, resolved: Sequence[PackageOffer], host: TargetHost
) -> tuple[str, ...]:
    """Say when torch of a known index comes without the triton that goes with it: it did not require it."""
    from rocm_wheels.model.compat.builds import get_triton_name
    from rocm_wheels.model.compat.releases import find_index_by_url

    index = find_index_by_url(choice.index) if choice else None
    torch = next((offer for offer in resolved if offer.project == "torch"), None)
    if index is None or torch is None:
        return ()
    name = get_triton_name(torch.version, index, platform=host.platform)
    if not name or any(offer.project == name for offer in resolved):
        return ()
    return (f"torch {torch.version} goes with {name}, and does not require it: torch.compile will not work",)


def _list_warnings(
    items: Sequence[InstallItem],
    removed: Sequence[InstalledDistribution],
    present: Mapping[str, InstalledDistribution],
    target: InstallTarget,
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
    return tuple(list_broken_requirements([*changed, *removed_names], unchanged, versions, target.markers))
