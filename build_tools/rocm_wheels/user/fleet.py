"""Plan one installation for several kinds of machine, and lock it in one file (PEP 751, ``pylock.toml``).

A kind of machine is a list of GPU targets; each is planned for every Python. What is the same for all of them
stands in the lock once. What differs has a line of its own for each list of targets, named in the table
``packages.tool.rocm-wheels``, which only ``rocm-wheels install --lock`` reads: a lock of one kind of machine
is for uv too (pip takes it where no wheel is a variant); one of several both refuse.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit

from packaging.utils import canonicalize_name
from packaging.version import Version

from rocm_wheels import __version__
from rocm_wheels.core import errors, parallel
from rocm_wheels.core.files import hash_file
from rocm_wheels.gpus.gpu import INTEGRATED_TARGETS, format_stated_target
from rocm_wheels.index import reader
from rocm_wheels.models.gfx import load_overrides
from rocm_wheels.user import installation, kernel_proof, package_offers, plan_install, wheel_cache
from rocm_wheels.user.host import PosedTarget, StatedMachine, TargetHost, make_host
from rocm_wheels.wheels import dist_info

TOOL = "rocm-wheels"  # our table in the lock
_LOCK_VERSION = "1.0"
_JOBS = 4  # plans side by side


@dataclass(frozen=True)
class FleetMember:
    """A kind of machine with one Python: ``gfx`` as it was given (``gfx942,gfx1100``, ``none``), its plan."""

    gfx: str
    python: str
    planned: plan_install.PlannedInstall

    @property
    def offers(self) -> tuple[package_offers.PackageOffer, ...]:
        """What is installed there, in order."""
        return tuple(item.offer for item in self.planned.plan.items)


@dataclass(frozen=True)
class LockedFile:
    """A file of a lock: ``place`` is a URL, or a path beside the lock."""

    name: str
    place: str
    sha256: str
    size: int | None = None


@dataclass(frozen=True)
class LockedPackage:
    """A package of a lock, for the kinds of machine ``gfx`` and the Pythons ``pythons``."""

    project: str
    version: str
    files: tuple[LockedFile, ...]
    gfx: tuple[str, ...]
    pythons: tuple[str, ...]


@dataclass(frozen=True)
class FleetRequest:
    """What is installed, on which kinds of machine (as ``--gfx`` has each), with which Pythons (``3.12``)."""

    install: plan_install.InstallRequest
    gfx: tuple[str, ...]
    pythons: tuple[str, ...]


def name_machines(fleet: FleetRequest, env: Mapping[str, str]) -> FleetRequest:
    """Return a request whose kinds of machine are named by targets, whatever cards they were called by.

    Machines are known again by these names. UsageError for what is no GPU, and for no machine at all.
    """
    if not fleet.gfx or not fleet.pythons:
        raise errors.UsageError(
            "no machine is named", tip="for example: --gfx gfx942 --gfx gfx1100 --python 3.12,3.13"
        )
    kinds: dict[str, None] = {}
    for words in fleet.gfx:
        gpus = make_host(env, StatedMachine(gfx=(words,))).hardware.gpus
        kinds[",".join(gpu.native or gpu.gfx or words for gpu in gpus) or "none"] = None
    return replace(fleet, gfx=tuple(kinds))


def plan_fleet(
    fleet: FleetRequest, cache: wheel_cache.WheelCache, env: Mapping[str, str]
) -> list[FleetMember]:
    """Plan for every kind of machine with every Python.

    UsageError for none of them; HostError where one has no build that serves all its GPUs: a machine that
    computes on the CPU unasked is not what a lock is for (``none`` asks for it).
    """
    fleet = name_machines(fleet, env)
    reach = wheel_cache.WholeReach(cache)  # all of them see the same state of the index

    def plan_member(kind: tuple[str, str]) -> FleetMember:
        words, python = kind
        gfx = ",".join(map(format_stated_target, words.split(",")))
        stated = replace(fleet.install, gfx=(gfx,), stated_python=python, python=None, venv=None)
        planned = plan_install.plan_installation(stated, cache, env, reach=reach)
        _require_served(planned.plan, words, python)
        return FleetMember(words, python, planned)

    kinds = list(product(fleet.gfx, dict.fromkeys(fleet.pythons)))
    return list(parallel.run_in_parallel(plan_member, kinds, jobs=_JOBS))


def _require_served(plan: installation.InstallPlan, gfx: str, python: str) -> None:
    """Refuse a torch of which is not known that it has kernels for every GPU of a kind of machine.

    Graphics inside a processor need none beside a card, nor does a GPU that is to run another's kernels.
    """
    if plan.demand is None or plan.choice is None:
        return
    served = {gpu.gfx for gpu, is_served in plan.choice.served if is_served}
    unserved = {}
    for target in plan.demand.targets:
        support = plan.proof.check(target) if plan.proof else None
        is_proven = support is not None and support.kind != "no"
        if not is_proven and (support is not None or target not in served):
            picked = plan.choice.picked.name if plan.choice.picked else "torch"
            unserved[target] = (
                plan.proof.describe(target) if plan.proof else f"{picked}: code for {target}: unknown"
            )
    is_posed = (
        plan.override_line is not None
        and kernel_proof.parse_override_line(plan.override_line) not in unserved
    )
    is_served = len(unserved) < len(plan.demand.targets)
    lines = [
        line
        for target, line in unserved.items()
        if not is_posed and not (is_served and target in INTEGRATED_TARGETS)
    ]
    if lines:
        raise errors.HostError(
            f"--gfx {gfx}, Python {python}: " + "\n  ".join(lines),
            tip="name an index that has such kernels with --index, or lock the CPU with --gfx none",
        )


def make_lock(members: Sequence[FleetMember], places: Mapping[str, str] | None = None) -> str:
    """Return the text of a lock. ``places`` are the paths of files beside it, by sha256 (hex).

    HostError for a file of which nothing states a digest.
    """
    packages = list_locked_packages(members, places or {})
    gfx = tuple(dict.fromkeys(member.gfx for member in members))
    lines = [
        f"lock-version = {_quote(_LOCK_VERSION)}",
        f"created-by = {_quote(f'{TOOL} {__version__}')}",
    ]
    for package in packages:
        lines += ["", *_format_package(package, gfx, _list_pythons(members, package.gfx))]
    lines += ["", f"[tool.{TOOL}]", f"machines = {_format_list(gfx)}"]
    lines.append(f"pythons = {_format_list(dict.fromkeys(member.python for member in members))}")
    text = "\n".join(lines) + "\n"
    _read_lock_text(text, "the lock")  # what we write is what the specification allows
    return text


def list_locked_packages(members: Sequence[FleetMember], places: Mapping[str, str]) -> list[LockedPackage]:
    """Return the packages of a lock, sorted by name; what is the same for several machines is there once."""
    by_kind: dict[tuple[str, str, str], dict[str, LockedFile]] = {}
    for member in members:
        for offer in member.offers:
            pythons = by_kind.setdefault((offer.project, str(offer.version), member.gfx), {})
            pythons[member.python] = _lock_file(offer, places)
    merged: dict[tuple[str, str, tuple[LockedFile, ...], tuple[str, ...]], list[str]] = {}
    for (project, version, gfx), pythons in by_kind.items():
        files = tuple(dict.fromkeys(pythons.values()))
        merged.setdefault((project, version, files, tuple(pythons)), []).append(gfx)
    packages = [
        LockedPackage(project, version, files, tuple(gfx), pythons)
        for (project, version, files, pythons), gfx in merged.items()
    ]
    return sorted(packages, key=lambda package: (package.project, Version(package.version), package.gfx))


def _lock_file(offer: package_offers.PackageOffer, places: Mapping[str, str]) -> LockedFile:
    sha256 = offer.sha256
    if sha256 is None and (path := reader.path_of_url(offer.url)) is not None:
        sha256 = hash_file(path)
    if sha256 is None:
        raise errors.HostError(
            f"the index states no sha256 of {offer.name}, and a lock has one of every file",
            tip="take an index that states them; `rocm-wheels index build` makes such indexes",
        )
    parts = urlsplit(offer.url)
    address = parts.netloc.rpartition("@")[2]  # a lock is passed around: no password of the index in it
    place = places.get(sha256) or urlunsplit(parts._replace(netloc=address))
    return LockedFile(offer.installer_name, place, sha256, offer.size)


def _list_pythons(members: Iterable[FleetMember], gfx: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(member.python for member in members if member.gfx in gfx))


def _format_package(package: LockedPackage, gfx: Sequence[str], pythons: Sequence[str]) -> list[str]:
    lines = ["[[packages]]", f"name = {_quote(package.project)}", f"version = {_quote(package.version)}"]
    if package.pythons != tuple(pythons):
        versions = [f"python_version == '{python.removesuffix('t')}'" for python in package.pythons]
        lines.append(f"marker = {_quote(' or '.join(versions))}")
    wheels = [file for file in package.files if file.name.endswith(".whl")]
    if wheels:
        lines += ["wheels = [", *(f"    {_format_file(wheel)}," for wheel in wheels), "]"]
    lines += [f"sdist = {_format_file(file)}" for file in package.files if file not in wheels]
    tool = [f"machines = {_format_list(package.gfx)}"] if package.gfx != tuple(gfx) else []
    return [*lines, f"[packages.tool.{TOOL}]", *tool] if tool else lines


def _format_file(file: LockedFile) -> str:
    key = "url" if urlsplit(file.place).scheme else "path"
    size = "" if file.size is None else f"size = {file.size}, "
    hashes = f"{{sha256 = {_quote(file.sha256)}}}"
    return f"{{name = {_quote(file.name)}, {key} = {_quote(file.place)}, {size}hashes = {hashes}}}"


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)  # what JSON escapes TOML escapes in the same way


def _format_list(texts: Iterable[str]) -> str:
    return f"[{', '.join(map(_quote, texts))}]"


def plan_locked_installation(
    lock: Path, request: plan_install.InstallRequest, cache: wheel_cache.WheelCache, env: Mapping[str, str]
) -> plan_install.PlannedInstall:
    """Plan to install what a lock has for this machine; nothing is chosen, resolved or looked up.

    DataError for a file that is no lock, HostError for a machine or a Python that it has nothing for.
    """
    document = _read_lock_text(_read_text(lock), str(lock))
    target = plan_install.inspect_request_target(request, env)
    host = plan_install.make_request_host(request, target, env)
    packages = _select_packages(document, lock, host)
    present = installation.list_installed(target)
    sources = package_offers.OfferSources(
        index=request.index or lock.absolute().parent.as_uri(),
        dependencies=request.dependency_index or lock.absolute().parent.as_uri(),
        tags=host.tags,
        installed=present,
        choose=lambda _project, _version: None,
    )
    offers = package_offers.PackageOffers(sources, wheel_cache.WholeReach(cache))
    selected = _select_files(packages, target, host.tags, lock)
    items = [
        plan_install.make_install_item(offer, present.get(offer.project), cache, offers) for offer in selected
    ]
    override_line = host.posed.line if host.posed else None
    demand = kernel_proof.make_demand(host, override_line)
    proof = plan_install.prove_torch(items, offers, demand, target, cache) if demand else None
    if proof and demand and _list_machines(document) and demand.list_faults(proof):
        # it was locked for a GPU of this machine, which runs these kernels by an override
        posed = kernel_proof.find_proven_pose(proof, demand.gpus, host.platform)
        override_line = posed.line if posed else None
        demand = kernel_proof.make_demand(host, override_line)
    if proof and demand and not request.allow_cpu:
        kernel_proof.require_served(proof, demand, host, ())
    plan = installation.InstallPlan(
        target=target,
        installer=request.installer,
        choice=None,
        requirements=tuple(f"{offer.project}=={offer.version}" for offer in selected),
        index=str(lock),
        dependencies=str(lock),
        items=tuple(items),
        removed=plan_install.list_conflicts(items, present),
        warnings=(),
        demand=demand,
        proof=proof,
        allow_cpu=request.allow_cpu,
        override_line=override_line,
    )
    return plan_install.PlannedInstall(plan, offers)


def _read_text(lock: Path) -> str:
    try:
        return lock.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as cause:
        raise errors.DataError(
            f"--lock {lock} cannot be read: {getattr(cause, 'strerror', None) or 'it is not text'}",
            tip="`rocm-wheels lock install -o pylock.toml` writes one",
        ) from None


def _read_lock_text(text: str, name: str) -> dict[str, Any]:
    """Return a lock as a dictionary; DataError for what is none by PEP 751."""
    from packaging.pylock import Pylock, PylockValidationError

    from rocm_wheels.core import toml_reader

    document = toml_reader.parse_toml(text, name=name)
    try:
        Pylock.from_dict(document)
    except PylockValidationError as cause:
        raise errors.DataError(f"{name} is no lock of PEP 751: {cause}") from None
    return document


def _list_machines(document: Mapping[str, Any]) -> Sequence[str]:
    """Return the kinds of machine of a lock; () for one of another program."""
    return _read_texts(document, "machines", "the lock") or ()


def _read_texts(table: Mapping[str, Any], key: str, name: str) -> list[str] | None:
    """Return a list of texts of our part of a table (``tool.rocm-wheels``), None where it is not there."""
    tool = table.get("tool", {}).get(TOOL, {})
    texts = tool.get(key) if isinstance(tool, dict) else tool
    if texts is None:
        return None
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise errors.DataError(
            f"tool.{TOOL}.{key} of {name} is not a list of texts",
            tip="`rocm-wheels lock install` makes the lock again",
        )
    return texts


def _select_packages(document: Mapping[str, Any], lock: Path, host: TargetHost) -> list[dict[str, Any]]:
    """Return the packages for a machine."""
    machines = _list_machines(document)
    chips = host.hardware.targets
    packages = document["packages"]
    if not machines:
        return list(packages)  # of another program: for any machine
    kind = _find_kind(machines, chips)
    if kind is None:
        here = ", ".join(chips) or "no AMD GPU"
        raise errors.HostError(
            f"{lock} is for {'; '.join(machines)}, and this machine has {here}",
            tip=_suggest_posing_kind(machines, host)
            or "--gfx names the machine that is meant; `rocm-wheels lock install` locks for more",
        )
    return [
        package
        for package in packages
        if kind in (_read_texts(package, "machines", package["name"]) or machines)
    ]


def _suggest_posing_kind(machines: Sequence[str], host: TargetHost) -> str:
    """Name the kind of machine that a GPU here passes for by an override; "" without one."""
    for gpu in host.hardware.usable if host.platform == "linux" else ():
        for option in load_overrides().cards.get(gpu.native or "", ()):
            if option.target in machines and not option.risky:
                posed = PosedTarget(gpu.native or "", option)
                return f"{posed}: --gfx {option.target} takes what is locked for it"
    return ""


def _find_kind(machines: Sequence[str], chips: Sequence[str]) -> str | None:
    """Return the kind of machine with exactly these targets, else that which has the best one of them."""
    targets = {machine: [word.strip() for word in machine.split(",")] for machine in machines}
    if not chips:
        return "none" if "none" in machines else None
    exact = [machine for machine, words in targets.items() if set(words) == set(chips)]
    serving = [machine for machine, words in targets.items() if chips[0] in words]
    return next(iter([*exact, *serving]), None)


def _select_files(
    packages: Sequence[dict[str, Any]], target: installation.InstallTarget, tags: Sequence[Any], lock: Path
) -> list[package_offers.PackageOffer]:
    from packaging.pylock import Pylock, PylockSelectError

    whole = Pylock.from_dict({"lock-version": _LOCK_VERSION, "created-by": TOOL, "packages": packages})
    offers = []
    try:
        for package, file in whole.select(environment=dict(target.markers), tags=tags):  # type: ignore[arg-type]
            offers.append(_make_offer(package, file, lock))
    except PylockSelectError as cause:
        raise errors.HostError(
            f"{lock} has nothing that fits Python {target.environment.minor} here: {cause}",
            tip="`rocm-wheels lock install --python` locks for more Pythons",
        ) from None
    return offers


def _make_offer(package: Any, file: Any, lock: Path) -> package_offers.PackageOffer:
    if not hasattr(file, "filename") or package.version is None:
        raise errors.DataError(
            f"{lock}: {package.name} is neither a wheel nor a source distribution with a version",
            tip="a lock of folders or of repositories is for pip and uv",
        )
    url = file.url or urljoin(f"{lock.absolute().parent.as_uri()}/", file.path)
    name = unquote(urlsplit(url).path.rpartition("/")[2])
    label = dist_info.parse_wheel_name(name).label if name.endswith(".whl") else None
    sha256 = file.hashes.get("sha256")
    if sha256 is None:
        raise errors.DataError(
            f"{lock}: {file.filename} has no sha256", tip="make the lock again, with sha256"
        )
    return package_offers.PackageOffer(
        project=canonicalize_name(package.name),
        version=package.version,
        installer_name=file.filename,
        name=name,
        url=url,
        source="index",
        sha256=sha256,
        size=file.size,
        label=label,
    )
