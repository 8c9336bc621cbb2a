"""Plan an installation, and prove the code in it: nothing is changed, no wheel is fetched without need.

What holds code for GPUs must be of the chosen index (``requested`` has the rules), and torch have code for a
GPU that is here (``kernel_proof``).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rocm_wheels.core import errors, files, log, parallel, shell, user_folders
from rocm_wheels.index import reader
from rocm_wheels.models import package_indexes
from rocm_wheels.models.closed_projects import is_closed_project
from rocm_wheels.user import (
    candidates,
    environment,
    fetch,
    gpu_support,
    install_options,
    kernel_proof,
    offers,
    package_set,
    plan_reader,
    requested,
)
from rocm_wheels.user.environment import name_uv
from rocm_wheels.user.host import StatedMachine, make_host
from rocm_wheels.user.installed_packages import InstalledDistribution, detect_build
from rocm_wheels.user.lock import (
    TOOL,
    LockedPackage,
    format_lock,
    read_lock,
    select_packages,
    strip_credentials,
)
from rocm_wheels.user.pip_settings import read_pip_settings
from rocm_wheels.wheels import dist_info

_JOBS = 8
_TRITON_PROJECT = re.compile(r"triton(-.+)?|pytorch-triton.*")


@dataclass(frozen=True)
class InstallPlan:
    """An installation, before anything is changed; pure data.

    Of ``packages``, the whole set, ``kept`` are installed already; ``removed`` are installed and would be in
    the way. ``indexes``, ``requirements`` and ``choice`` (None without a torch that was chosen) are as on
    ``PackageSet``. ``demand`` is what torch must serve, None without an AMD GPU; ``proof`` what was read of
    torch, None without a GPU or a torch. ``override_line`` makes a GPU pass for the one that torch has code
    for.
    """

    site: package_set.InstallSite
    packages: tuple[LockedPackage, ...]
    index: str
    indexes: tuple[str, ...]
    requirements: tuple[str, ...]
    choice: candidates.WheelChoice | None
    kept: frozenset[str]
    removed: tuple[InstalledDistribution, ...]
    demand: kernel_proof.GpuDemand | None = None
    proof: kernel_proof.KernelProof | None = None
    override_line: str | None = None

    @property
    def target(self) -> environment.InstallTarget:
        """The environment."""
        return self.site.target

    @property
    def changed(self) -> tuple[LockedPackage, ...]:
        """What is installed anew."""
        return tuple(package for package in self.packages if package.project not in self.kept)

    @property
    def dependencies(self) -> str:
        """The index of what the chosen one lacks."""
        return self.indexes[-1] if self.indexes else self.index

    def find_source(self, package: LockedPackage) -> str:
        """Say from where it comes: ``index``, ``dependencies`` or ``installed`` (it is there, and fits)."""
        if package.index == offers.INSTALLED:
            return "installed"
        return "dependencies" if package_set.is_index(package.index, self.dependencies) else "index"

    def is_local(self, package: LockedPackage) -> bool:
        """Tell whether nothing of a package comes over the network."""
        cache = self.site.cache
        return fetch.find_fetched(package, cache) is not None or fetch.is_left_to_uv(package, cache)

    @property
    def bytes_to_fetch(self) -> int:
        """The known bytes that come over the network."""
        return sum(package.size or 0 for package in self.changed if not self.is_local(package))

    @property
    def proof_lines(self) -> list[str]:
        """What is known of torch's code, a sentence a GPU."""
        targets = self.demand.targets if self.demand else ()
        return [self.proof.describe(target) for target in targets] if self.proof else []

    @property
    def visible_line(self) -> str | None:
        """The variable that hides the GPUs which torch has no kernels for, None when it serves all."""
        if self.choice and self.choice.served:
            return self.choice.visible_line
        if self.proof is None or self.demand is None:
            return None
        supports = {gpu: self.proof.check(gpu.gfx) if gpu.gfx else None for gpu in self.demand.gpus}
        return gpu_support.make_visible_line(
            tuple((gpu, support is not None and support.runs) for gpu, support in supports.items())
        )

    @property
    def warnings(self) -> list[str]:
        """Say where torch of a known index comes without the triton that goes with it."""
        index = package_indexes.find_index_by_url(self.choice.index) if self.choice else None
        if self.choice is None or index is None:
            return []
        from rocm_wheels.models import torch_builds  # slow to import

        torch, platform = self.choice.picked.version, self.site.host.platform
        name = torch_builds.get_triton_name(torch, index, platform=platform)
        if not name or any(package.project == name for package in self.packages):
            return []
        message = f"torch {torch} goes with {name}, and does not require it: torch.compile will not work"
        separate = torch_builds.find_separate_triton(torch, index, platform=platform)
        from_pypi = f" without it; from PyPI, by others than PyTorch: pip install '{separate}'"
        return [f"{message}{from_pypi if separate else ''}"]

    def describe_action(self, package: LockedPackage) -> str:
        """Say what happens to a package, for people."""
        current = self.site.present.get(package.project)
        if package.project in self.kept:
            return "already installed"
        how = "local file" if self.is_local(package) else "to download"
        if current is None:
            return how
        kind = detect_build(current).kind if is_closed_project(package.project) else ""
        build = f" ({kind})" if kind not in ("", "unknown") else ""
        another = "another build of " if current.version == str(package.version) else ""
        return f"{how}, replaces {another}{current.version}{build}"

    def format_lock(self) -> str:
        """Return the plan as a lock: all that is needed to install it again on a machine of this kind."""
        packages = [
            replace(
                package,
                url=strip_credentials(package.url),
                index="" if package.index == offers.CHOSEN else strip_credentials(package.index),
            )
            for package in self.packages
        ]
        gpus = dict.fromkeys(gpu.native or gpu.gfx or "" for gpu in self.demand.gpus) if self.demand else {}
        return format_lock(packages, {"gfx": [*gpus] or ["none"], "requirements": self.requirements})

    def list_commands(self) -> list[str]:
        """Return what to type to get the same by hand, line by line."""
        python, lines, places = str(self.target.python), [], []
        if not self.changed:
            return []
        if self.target.base_python:
            lines.append(shell.format_command(environment.make_venv_command(self.target, name_uv())))
        for package in self.changed:
            url = shell.hide_credentials(package.url)
            place = f"{package.project} @ {url}" + (f"#sha256={package.sha256}" if package.sha256 else "")
            if package.file != package.name:  # the label of a variant is no part of a name that uv reads
                words = ["curl", "--fail", "--location", "--output", package.name, url]
                lines.append(shell.format_command(words))
                if package.sha256:
                    lines.append(f"echo '{package.sha256}  {package.name}' | sha256sum --check --quiet")
                place = f"./{package.name}"
            places.append(place)
        if self.removed:
            names = [distribution.name for distribution in self.removed]
            lines.append(shell.format_command([name_uv(), "pip", "uninstall", "--python", python, *names]))
        again = [p.project for p in self.changed if p.project in self.site.present]
        words = [name_uv(), "pip", "install", "--no-config", "--no-deps", "--python", python]
        words += [word for project in again for word in ("--reinstall-package", project)]
        return [*lines, shell.format_command([*words, *places])]


def plan_install(request: package_set.InstallRequest, env: Mapping[str, str]) -> InstallPlan:
    """Choose, resolve and compare. UsageError for bad input, HostError when nothing fits or nothing may.

    UnservedGpuError for a torch without code for a GPU of this machine, unless the request allows it: of the
    known indexes the first is taken whose torch has some.
    """
    target = environment.inspect_target(request.python, request.venv, env)
    python = target.environment
    settings = read_pip_settings(env, python.prefix)
    if settings.note and request.lock is None:
        log.log_note(f"{settings.note}; --index, UV_DEFAULT_INDEX and --find-links name places")
    env = {**env, **settings.variables}
    dependencies = requested.find_dependency_index(env, settings)
    version = f"{python.version}{'t' if python.free_threaded else ''}"
    host = make_host(env, StatedMachine(request.gfx, None, version))
    cache = user_folders.find_cache_folder(env, sys.platform)
    present = environment.list_installed(target) if target.base_python is None else {}
    reach = plan_reader.PlanReader(cache, settings.variables)
    site = package_set.InstallSite(target, host, present, dependencies, reach, cache, env, settings.variables)
    return kernel_proof.plan_served(lambda refused: _plan(request, site, refused), request.index)


def _plan(
    request: package_set.InstallRequest,
    site: package_set.InstallSite,
    refused: Mapping[str, install_options.UnservedGpuError],
) -> InstallPlan:
    posed, made_for = site.host.posed, list[str]()
    override_line = posed.line if posed else None
    if request.lock is not None:
        wanted, made_for = _read_lock(request, site)
    else:
        wanted = package_set.SetPlanner(request, site, refused).plan()
        override_line = wanted.choice.override_line if wanted.choice else override_line
    notes = environment.read_notes(site.target, site.present)
    plan = InstallPlan(
        site, wanted.packages, wanted.index, wanted.indexes, wanted.requirements, wanted.choice,
        kept=frozenset(
            package.project
            for package in wanted.packages
            if package.index == offers.INSTALLED
            or environment.is_of_wheel(site.present.get(package.project), package, notes)
        ),
        removed=find_other_tritons(wanted.packages, site.present),
        override_line=override_line,
    )  # fmt: skip
    plan = _complete_facts(_prove_torch(plan, request, made_for), whole=request.whole)
    bare = [package.file for package in plan.changed if not package.sha256 and not plan.is_local(package)]
    if bare:
        more = f" and {len(bare) - 3} more" if len(bare) > 3 else ""
        log.log_warning(f"{requested.NO_DIGEST} {', '.join(bare[:3])}{more}: {requested.ONLY_CONNECTION}")
    return plan


def _read_lock(
    request: package_set.InstallRequest, site: package_set.InstallSite
) -> tuple[package_set.PackageSet, list[str]]:
    """Return what a lock has for this Python, and the GPUs that it was made for."""
    lock, markers = request.lock, site.target.environment.markers
    assert lock is not None
    try:
        text = lock.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as cause:
        raise errors.DataError(
            f"--lock {lock} cannot be read: {getattr(cause, 'strerror', None) or 'it is not text'}",
            tip="`rocm-wheels install --dry-run -o pylock.toml` writes one",
        ) from None
    content = read_lock(text, str(lock))
    packages = select_packages(content, markers, site.host.tags, str(lock), folder=lock.absolute().parent)
    pins = tuple(f"{package.project}=={package.version}" for package in packages)
    indexes = tuple(filter(None, [site.dependencies]))
    gpus = content.get("tool", {}).get(TOOL, {}).get("gfx", [])
    return package_set.PackageSet(tuple(packages), str(lock), indexes, pins, None), gpus


def _complete_facts(plan: InstallPlan, *, whole: bool) -> InstallPlan:
    """Ask the servers for the sizes that their pages do not say (HTML has no place for them).

    Folders that just have wheels state no digests: a lock needs these.
    """

    def complete(package: LockedPackage) -> LockedPackage:
        local = reader.path_of_url(package.url)
        if local is not None and whole and not package.sha256:
            package = replace(package, sha256=files.hash_file(local))
        if package.size is not None or package.project in plan.kept:
            return package
        try:
            return replace(package, size=plan.site.reach.fetch_size(package.url)[1])
        except reader.UnreachableError:
            return package  # fetching it will tell

    return replace(plan, packages=tuple(parallel.run_in_parallel(complete, plan.packages, jobs=_JOBS)))


def find_other_tritons(
    packages: Sequence[LockedPackage], present: Mapping[str, InstalledDistribution]
) -> tuple[InstalledDistribution, ...]:
    """Return installed tritons of other names: they all have the same folder, and overwrite each other."""
    names = {package.project for package in packages}
    if not any(map(_TRITON_PROJECT.fullmatch, names)):
        return ()
    others = (name for name in present if _TRITON_PROJECT.fullmatch(name) and name not in names)
    return tuple(present[name] for name in others)


def _prove_torch(
    plan: InstallPlan, request: package_set.InstallRequest, made_for: Sequence[str]
) -> InstallPlan:
    """Return a plan with what is known of torch's code, also of one that is installed.

    It is known before the wheel is fetched. Where a server sends no parts of files, the wheel is fetched
    first, but for a dry run. UnservedGpuError where it has no code for a GPU here. ``made_for`` has the GPUs
    that a lock was made for: one of them that runs the kernels of another by an override does so again.
    """
    site, host = plan.site, plan.site.host
    demand = kernel_proof.make_demand(host, plan.override_line)
    torch = next((package for package in plan.packages if package.project == "torch"), None)
    if demand is None or torch is None:
        return replace(plan, demand=demand)
    carriers = [torch, *(p for p in plan.packages if kernel_proof.is_device_project(p.project))]
    is_fetched = False
    proof = _read_proof(plan, carriers, demand)
    if proof.unread and not (request.dry_run or request.allow_cpu):
        log.log_note(f"{proof.unread}: {torch.file} is fetched to see what it has code for")
        carriers = fetch.fetch_packages(carriers, site.cache, variables=site.connection)
        names = {carrier.project for carrier in carriers}
        kept = plan.kept - (names if names <= plan.kept else set())  # what is here and cannot be read goes
        plan = replace(plan, packages=tuple(fetch.add_digests(plan.packages, carriers)), kept=kept)
        is_fetched, proof = True, _read_proof(plan, carriers, demand)
    if demand.list_faults(proof) and set(made_for) & {gpu.native or gpu.gfx for gpu in demand.gpus}:
        posed = kernel_proof.find_proven_pose(proof, demand.gpus, host.platform)
        plan = replace(plan, override_line=posed.line if posed else None)
        demand = kernel_proof.make_demand(host, plan.override_line) or demand
    if not request.allow_cpu:
        try:
            kernel_proof.require_served(proof, demand, host, plan.choice)
        except install_options.UnservedGpuError as refusal:
            refusal.tip = f"nothing was installed; {refusal.tip}" if is_fetched else refusal.tip
            raise
    return replace(plan, demand=demand, proof=proof)


def _read_proof(
    plan: InstallPlan, carriers: Sequence[LockedPackage], demand: kernel_proof.GpuDemand
) -> kernel_proof.KernelProof:
    """Return what torch and its device wheels (``carriers``) say: installed, here or on a server."""
    nothing = kernel_proof.KernelProof(f"torch {carriers[0].version}")
    environment, reach = plan.target.environment, plan.site.reach
    try:
        if plan.kept.issuperset(package.project for package in carriers):
            return kernel_proof.prove_installed(environment) or nothing
        torch, *devices = (_as_candidate(plan, package) for package in carriers)
        return kernel_proof.prove_wheel(torch, devices, demand, environment.markers, reach)
    except errors.DataError as fault:  # of a file that rotted here: fetching it tells
        return replace(nothing, unread=errors.explain_error(fault))


def _as_candidate(plan: InstallPlan, package: LockedPackage) -> candidates.ChoiceCandidate:
    """Return a package as a wheel that can be looked into: the file that is here, where there is one."""
    path = fetch.find_fetched(package, plan.site.cache) if package.sha256 else None
    if path is None and plan.choice is not None and plan.choice.picked.url == package.url:
        return plan.choice.picked  # its page may have METADATA beside it
    url = path.as_uri() if path else package.url
    link = reader.IndexLink(package.file, package.file, url, package.sha256, size=package.size)
    return candidates.ChoiceCandidate(link, dist_info.parse_wheel_name(package.file), rank=1)
