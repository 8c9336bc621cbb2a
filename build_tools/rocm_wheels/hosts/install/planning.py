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
from rocm_wheels.hosts.choose.candidate import Candidate, Choice
from rocm_wheels.hosts.choose.pages import UnreachableIndexError
from rocm_wheels.hosts.install.asked import (
    Asked,
    device_extras,
    read_packages,
    requirements,
    steady,
    torch_wanted,
)
from rocm_wheels.hosts.install.belonging import left_unmet
from rocm_wheels.hosts.install.cache import Cache
from rocm_wheels.hosts.install.fetch import WholeReach
from rocm_wheels.hosts.install.offers import Offer, Offers, Places
from rocm_wheels.hosts.install.plan import Item, Plan
from rocm_wheels.hosts.install.records import differences, wheel_record
from rocm_wheels.hosts.install.resolve import Resolver
from rocm_wheels.hosts.install.rule import dependency_index, is_closed
from rocm_wheels.hosts.install.target import Target, installed, look_at_target
from rocm_wheels.hosts.install.venv import look_at_venv
from rocm_wheels.hosts.install.view import served
from rocm_wheels.hosts.installed.builds import build_of
from rocm_wheels.hosts.installed.distributions import Distribution
from rocm_wheels.index.reach import Reach, UnreachableError, base_url, local_path

if TYPE_CHECKING:
    from rocm_wheels.hosts.choose.host import Host

_TRITON = re.compile(r"triton(-.+)?|pytorch-triton.*")
_JOBS = 8
Chooser = Callable[[Sequence[str], "str | None"], Choice]


@dataclass(frozen=True)
class Request:
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
class Planned:
    """A plan, and the offers that it was made of (sources that are built need them again)."""

    plan: Plan
    offers: Offers


def make_plan(request: Request, cache: Cache, env: Mapping[str, str]) -> Planned:
    """Choose, resolve and compare. UsageError for bad input, HostError when nothing fits or nothing may."""
    target = (
        look_at_target(request.python, env)
        if request.venv is None
        else look_at_venv(request.venv, request.python, env)
    )
    if request.installer == "pip" and not target.has_pip:
        more = "" if target.made_of else f"; or `{target.python} -m ensurepip`"
        raise HostError(f"{target} has no pip", tip=f"leave --pip out: uv needs none{more}")
    asked = read_packages(request.packages, target.markers)
    host = _host(request, target, env)
    reach = WholeReach(cache)
    choosing = _chooser(request, host, reach)
    wanted = torch_wanted(asked)
    if wanted is None and request.index is None:
        raise UsageError(
            "nothing of this belongs to torch, which says from which index things come",
            tip="name torch as well, or the index with --index",
        )
    choice = choosing([wanted, *_beside(asked)], request.index) if wanted is not None else None
    there = installed(target)
    index = choice.index if choice else base_url(request.index or "")
    places = Places(
        index=index,
        dependencies=dependency_index(request.dependency_index, env),
        tags=host.tags,
        installed=there,
        choose=lambda project, version: _best_of(choosing, index, project, version),
        torch=choice.picked if choice else None,
        steady=steady(asked, pre=request.pre),
        rocm=base_url(request.rocm_index) if request.rocm_index is not None else None,
    )
    offers = Offers(places, reach)
    with served(offers) as url:
        resolver = Resolver(offers, url, target, env)
        found, lines = _resolved(asked, choice, resolver)
        items = _sized([_item(offer, there.get(offer.project), cache) for offer in found], reach)
    choice = _as_resolved(choice, found, choosing)
    _require_hashes(request, items)
    removed = in_the_way(items, there)
    warnings = (*_triton_missing(choice, found, host), *_warnings(items, removed, there, target))
    plan = Plan(
        target, request.installer, choice, tuple(lines), index, places.dependencies, items, removed, warnings
    )
    return Planned(plan, offers)


def _host(request: Request, target: Target, env: Mapping[str, str]) -> Host:
    from rocm_wheels.hosts.choose.machine import Stated, host_of

    threads = "t" if target.environment.free_threaded else ""
    stated = Stated(request.gfx, request.rocm, f"{target.environment.version}{threads}")
    return host_of(env, stated)


def _chooser(request: Request, host: Host, reach: Reach) -> Chooser:
    from rocm_wheels.hosts.choose.choosing import choose

    def chosen(requirements: Sequence[str], index: str | None) -> Choice:
        asked = requirements if index is None else requirements[:1]
        return choose(asked, index, host, reach, channel=request.channel, pre=request.pre)[0]

    return chosen


def _beside(asked: Sequence[Asked]) -> list[str]:
    """Return what else the index has to have that is looked for: no other one is asked for it."""
    return [one.project for one in asked if is_closed(one.project) and one.project != "torch"]


def _best_of(choosing: Chooser, index: str, project: str, version: Version) -> Candidate | None:
    try:
        return choosing([f"{project}=={version}"], index).picked
    except UnreachableIndexError:
        raise
    except HostError:
        return None  # a version that this machine can use no variant of is not offered


def _resolved(
    asked: Sequence[Asked], choice: Choice | None, resolver: Resolver
) -> tuple[list[Offer], list[str]]:
    """Resolve with exactly the torch that was chosen; where that fails, say whether another would do."""
    lines = requirements(asked, choice)
    try:
        found = resolver.resolve(lines)
    except HostError as failure:
        free = requirements(asked, choice, pinned=False)
        if free == lines:
            raise
        try:
            other = resolver.resolve(free)
        except HostError:
            raise failure from None
        names = {one.project for one in asked}
        together = " ".join(f"'{one.project}=={one.version}'" for one in other if one.project in names)
        failure.tip = f"these go together: rocm-wheels install {together}"
        raise
    more = _with_devices(found, device_extras(choice), resolver.offers)
    return (resolver.resolve([*lines, *more]), [*lines, *more]) if more else (found, lines)


def _with_devices(found: Sequence[Offer], extras: frozenset[str], offers: Offers) -> list[str]:
    """Return what torch's companions have of the same extras: their kernels may lie in other wheels."""
    lines = []
    for one in found if extras else ():
        if one.project != "torch" and one.source == "index" and not one.is_sdist:
            shared = sorted(extras.intersection(offers.extras(one)))
            lines += [f"{one.project}[{','.join(shared)}]=={one.version}"] if shared else []
    return lines


def _as_resolved(choice: Choice | None, found: Sequence[Offer], choosing: Chooser) -> Choice | None:
    """Return the choice of the torch that is taken: another one where only a companion was asked for."""
    torch = next((one for one in found if one.project == "torch"), None)
    if choice is None or torch is None or choice.picked is None or choice.picked.url == torch.url:
        return choice
    again = choosing([f"torch=={torch.version}"], choice.index)
    if again.picked is None or again.picked.url != torch.url:
        raise HostError(
            f"what was asked for goes with {torch.name}, which is not the build for this machine",
            tip="name a version of torch as well",
        )
    return again


def _item(offer: Offer, there: Distribution | None, cache: Cache) -> Item:
    path = local_path(offer.url) if offer.source != "installed" else None
    if path is None and offer.sha256:
        kept = cache.wheel(offer.sha256, offer.name)
        path = kept if kept.is_file() else None
    keep = offer.source == "installed" or _is_there(offer, there, path)
    matters = there is not None and not keep and is_closed(offer.project)
    kind = build_of(there).kind if matters and there is not None else ""
    return Item(offer, keep, there, "" if kind == "unknown" else kind, path is not None)


def _sized(items: Sequence[Item], reach: Reach) -> tuple[Item, ...]:
    """Ask the servers for the sizes that their pages do not say (HTML has no place for them)."""

    def sized(item: Item) -> Item:
        if item.keep or item.offer.size is not None:
            return item
        try:
            size = reach.look(item.offer.url)[1]
        except UnreachableError:
            size = None  # fetching it will tell
        return replace(item, offer=replace(item.offer, size=size))

    return tuple(parallel.each(sized, items, jobs=_JOBS))


def _is_there(offer: Offer, there: Distribution | None, path: Path | None) -> bool:
    """Tell whether what is installed was made of this very file; of a plain dependency the version tells."""
    if there is None or there.editable or there.version != str(offer.version):
        return False
    if not is_closed(offer.project):
        return True
    if offer.is_sdist:
        return True  # its version is pinned, and what it was built into is not known beforehand
    entries = wheel_record(offer, path)
    return entries is not None and not differences(entries, there)


def _require_hashes(request: Request, items: Sequence[Item]) -> None:
    bare = [one.offer.name for one in items if not one.keep and not one.offer.sha256 and not _is_local(one)]
    if not bare:
        return
    more = f" and {len(bare) - 3} more" if len(bare) > 3 else ""
    said = f"the index states no sha256 of {', '.join(bare[:3])}{more}"
    if request.require_hashes:
        raise HostError(said, tip="leave --require-hashes out to trust the connection alone")
    log.warn(f"{said}: only the connection vouches for the bytes")


def _is_local(item: Item) -> bool:
    return local_path(item.offer.url) is not None


def in_the_way(items: Sequence[Item], there: Mapping[str, Distribution]) -> tuple[Distribution, ...]:
    """Return installed tritons of other names: they all have the same folder, and overwrite each other."""
    names = {item.offer.project for item in items}
    if not any(_TRITON.fullmatch(name) for name in names):
        return ()
    return tuple(one for name, one in there.items() if _TRITON.fullmatch(name) and name not in names)


def _triton_missing(choice: Choice | None, found: Sequence[Offer], host: Host) -> tuple[str, ...]:
    """Say when torch of a known index comes without the triton that goes with it: it did not require it."""
    from rocm_wheels.model.compat.builds import triton_for
    from rocm_wheels.model.compat.releases import index_at

    index = index_at(choice.index) if choice else None
    torch = next((one for one in found if one.project == "torch"), None)
    if index is None or torch is None:
        return ()
    name = triton_for(torch.version, index, platform=host.platform)
    if not name or any(one.project == name for one in found):
        return ()
    return (f"torch {torch.version} goes with {name}, and does not require it: torch.compile will not work",)


def _warnings(
    items: Sequence[Item],
    removed: Sequence[Distribution],
    there: Mapping[str, Distribution],
    target: Target,
) -> tuple[str, ...]:
    after = {name: one.version for name, one in there.items()}
    after |= {item.offer.project: str(item.offer.version) for item in items}
    gone = {one.name for one in removed}
    after = {name: version for name, version in after.items() if name not in gone}
    changed = [item.offer.project for item in items if not item.keep]
    rest = [one for name, one in there.items() if name not in gone and name not in changed]
    return tuple(left_unmet([*changed, *gone], rest, after, target.markers))
