"""Install torch for this machine's GPUs: plan the set, prove the code in it, have uv install it.

uv writes its answer as a lock: every file with URL and sha256. Before anything is fetched, what holds code
for GPUs must be of the chosen index (``requested`` has the rules), and torch have code for a GPU that is here
(``kernel_proof``). uv then installs exactly that lock; it fetches all before it touches the environment.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from rocm_wheels.core import errors, files, log, parallel, process, shell, user_folders
from rocm_wheels.core.extras import find_uv, name_uv
from rocm_wheels.index import reader
from rocm_wheels.models import package_indexes, project_names
from rocm_wheels.models.closed_projects import is_closed_project
from rocm_wheels.user import (
    candidates,
    environment,
    fetch,
    gpu_support,
    install_options,
    installed_packages,
    kernel_proof,
    package_set,
    requested,
    resolve,
)
from rocm_wheels.user.host import StatedMachine, TargetHost, make_host
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

LARGE = 200 << 20  # bytes: from here on a download that breaks off is worth carrying on
_JOBS = 8
_NOT_THERE = {403, 404, 410}  # 403: a bucket that may be read and not listed
_TRITON_PROJECT = re.compile(r"triton(-.+)?|pytorch-triton.*")
_BUSY_TIP = "another installation into this environment is under way: wait for it to end, then run this again"
_BUSY_PATIENCE = 3600.0


@dataclass(frozen=True)
class InstallPlan:
    """An installation, before anything is changed; pure data.

    ``packages`` is the whole set, of which ``kept`` are installed already; ``present`` is what is installed,
    ``removed`` what of that would be in the way. ``choice`` is that of torch, None where torch is not part of
    it; ``requirements`` is what uv was asked for. ``indexes`` are those that uv asks when it builds sources.
    ``demand`` is what torch must serve, None without an AMD GPU; ``proof`` what was read of torch, None
    without a GPU or a torch. ``override_line`` makes a GPU pass for the one that torch has code for.
    ``connection`` has variables that name proxies and certificates, of pip's settings.
    """

    target: environment.InstallTarget
    packages: tuple[LockedPackage, ...]
    index: str
    indexes: tuple[str, ...]
    cache: Path
    env: Mapping[str, str] = field(repr=False)
    requirements: tuple[str, ...] = ()
    choice: candidates.WheelChoice | None = None
    kept: frozenset[str] = frozenset()
    present: Mapping[str, installed_packages.InstalledDistribution] = field(default_factory=dict)
    removed: tuple[installed_packages.InstalledDistribution, ...] = ()
    warnings: tuple[str, ...] = ()
    demand: kernel_proof.GpuDemand | None = None
    proof: kernel_proof.KernelProof | None = None
    allow_cpu: bool = False
    override_line: str | None = None
    signers: Mapping[str, str] = field(default_factory=dict)
    connection: Mapping[str, str] = field(default_factory=dict)

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
        if package.index == resolve.INSTALLED:
            return "installed"
        return "dependencies" if package_set.is_index(package.index, self.dependencies) else "index"

    def is_local(self, package: LockedPackage) -> bool:
        """Tell whether nothing of a package comes over the network."""
        return fetch.find_fetched(package, self.cache) is not None or fetch.is_left_to_uv(package, self.cache)

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

    def describe_action(self, package: LockedPackage) -> str:
        """Say what happens to a package, for people."""
        current = self.present.get(package.project)
        if package.project in self.kept:
            return "already installed"
        how = "local file" if self.is_local(package) else "to download"
        if current is None:
            return how
        kind = installed_packages.detect_build(current).kind if is_closed_project(package.project) else ""
        build = f" ({kind})" if kind not in ("", "unknown") else ""
        another = "another build of " if current.version == str(package.version) else ""
        return f"{how}, replaces {another}{current.version}{build}"

    def format_lock(self) -> str:
        """Return the plan as a lock: all that is needed to install it again on a machine of this kind."""
        packages = [
            replace(
                package,
                url=strip_credentials(package.url),
                index="" if package.index in (resolve.CHOSEN, "") else strip_credentials(package.index),
            )
            for package in self.packages
        ]
        gpus = dict.fromkeys(gpu.native or gpu.gfx or "" for gpu in self.demand.gpus) if self.demand else {}
        machine = {"gfx": [*gpus] or ["none"], "requirements": self.requirements}
        return format_lock(packages, machine)


def plan_install(request: package_set.InstallRequest, env: Mapping[str, str]) -> InstallPlan:
    """Choose, resolve and compare. UsageError for bad input, HostError when nothing fits or nothing may.

    UnservedGpuError for a torch without code for a GPU of this machine, unless the request allows it: of the
    known indexes the first is taken whose torch has some.
    """
    return kernel_proof.plan_served(lambda refused: _plan(request, env, refused), request.index)


def _plan(
    request: package_set.InstallRequest,
    env: Mapping[str, str],
    refused: Mapping[str, install_options.UnservedGpuError],
) -> InstallPlan:
    target = environment.inspect_target(request.python, request.venv, env)
    python = target.environment
    settings = read_pip_settings(env, python.prefix)
    if settings.note and request.lock is None and not refused:
        log.log_note(f"{settings.note}; --index, --dependency-index and --find-links name places")
    env = {**env, **settings.variables}
    stated = StatedMachine(
        request.gfx, request.rocm, f"{python.version}{'t' if python.free_threaded else ''}"
    )
    host = make_host(env, stated)
    cache = user_folders.find_cache_folder(env, sys.platform)
    reach = package_set.PlanReader(cache, settings.variables)
    present = environment.list_installed(target) if target.base_python is None else {}
    machine: Sequence[str] = ()
    pip_index = settings.index, settings.index_source
    dependencies = requested.find_dependency_index(request.dependency_index, env, pip_index)
    if settings.no_index and request.dependency_index is None:
        dependencies = ""
    if request.lock is not None:
        content = read_lock(_read_text(request.lock), str(request.lock))
        machine = content.get("tool", {}).get(TOOL, {}).get("gfx", ())
        packages = select_packages(
            content, python.markers, host.tags, str(request.lock), folder=request.lock.absolute().parent
        )
        lines = [f"{package.project}=={package.version}" for package in packages]
        found = package_set.PackageSet(
            tuple(packages), str(request.lock), tuple(filter(None, [dependencies])), tuple(lines), None
        )
    else:
        planner = package_set.SetPlanner(
            request, dependencies, present, host, target, reach, env, cache, refused=refused
        )
        found = planner.plan()
        if request.signed is not None:
            planner.require_signed_files(found.packages)
    notes = environment.read_notes(target, present)
    kept = {
        package.project
        for package in found.packages
        if package.index == resolve.INSTALLED or _is_installed(package, present.get(package.project), notes)
    }
    plan = InstallPlan(
        target=target,
        packages=found.packages,
        index=found.index,
        indexes=found.indexes,
        cache=cache,
        env=env,
        requirements=found.requirements,
        choice=found.choice,
        kept=frozenset(kept),
        present=present,
        removed=_list_conflicts(found.packages, present),
        warnings=_warn_missing_triton(found, host),
        allow_cpu=request.allow_cpu,
        override_line=found.choice.override_line if found.choice else host.posed.line if host.posed else None,
        signers=request.signers or {},
        connection=settings.variables,
    )
    plan = _prove_torch(plan, host, reach, machine)
    plan = replace(plan, packages=_fill_facts(plan.packages, kept, reach, whole=request.whole))
    if bare := [
        package.file for package in plan.changed if not package.sha256 and not plan.is_local(package)
    ]:
        more = f" and {len(bare) - 3} more" if len(bare) > 3 else ""
        log.log_warning(f"{requested.NO_DIGEST} {', '.join(bare[:3])}{more}: {requested.ONLY_CONNECTION}")
    if plan.signers:
        _require_statements(plan, reach)
    return plan


def _read_text(lock: Path) -> str:
    try:
        return lock.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as cause:
        raise errors.DataError(
            f"--lock {lock} cannot be read: {getattr(cause, 'strerror', None) or 'it is not text'}",
            tip="`rocm-wheels install --dry-run -o pylock.toml` writes one",
        ) from None


def _is_installed(
    package: LockedPackage,
    current: installed_packages.InstalledDistribution | None,
    notes: Mapping[str, Sequence[str]],
) -> bool:
    """Tell whether what is installed is of this very wheel; of a plain dependency the version tells.

    Of what others installed the local part of the version has to tell: two builds may both be called 2.9.1.
    """
    if current is None or current.editable or current.version != str(package.version):
        return False
    if not is_closed_project(package.project) or package.is_sdist:
        return True  # what a source distribution was built into is not known beforehand
    if not environment.is_intact(current):
        return False
    if note := notes.get(package.project):
        return note[0] == package.file and package.sha256 in (None, note[1])
    return package.version.local is not None and package.properties is None


def _fill_facts(
    packages: Iterable[LockedPackage], kept: Iterable[str], reach: reader.IndexReader, *, whole: bool
) -> tuple[LockedPackage, ...]:
    """Ask the servers for the sizes that their pages do not say (HTML has no place for them).

    Folders that just have wheels state no digests: a lock needs these.
    """

    def fill(package: LockedPackage) -> LockedPackage:
        local = reader.path_of_url(package.url)
        if local is not None and whole and not package.sha256:
            package = replace(package, sha256=files.hash_file(local))
        if package.size is not None or package.project in kept or package.index == resolve.INSTALLED:
            return package
        try:
            return replace(package, size=reach.fetch_size(package.url)[1])
        except reader.UnreachableError:
            return package  # fetching it will tell

    return tuple(parallel.run_in_parallel(fill, packages, jobs=_JOBS))


def _list_conflicts(
    packages: Iterable[LockedPackage], present: Mapping[str, installed_packages.InstalledDistribution]
) -> tuple[installed_packages.InstalledDistribution, ...]:
    """Return installed tritons of other names: they all have the same folder, and overwrite each other."""
    names = {package.project for package in packages}
    if not any(map(_TRITON_PROJECT.fullmatch, names)):
        return ()
    others = (name for name in present if _TRITON_PROJECT.fullmatch(name) and name not in names)
    return tuple(present[name] for name in others)


def _warn_missing_triton(found: package_set.PackageSet, host: TargetHost) -> tuple[str, ...]:
    """Say when torch of a known index comes without the triton that goes with it: it did not require it."""
    index = package_indexes.find_index_by_url(found.choice.index) if found.choice else None
    torch = next((package for package in found.packages if package.project == "torch"), None)
    if index is None or torch is None:
        return ()
    from rocm_wheels.models import torch_builds  # slow to import

    name = torch_builds.get_triton_name(torch.version, index, platform=host.platform)
    if not name or any(package.project == name for package in found.packages):
        return ()
    message = f"torch {torch.version} goes with {name}, and does not require it: torch.compile will not work"
    if separate := torch_builds.find_separate_triton(torch.version, index, platform=host.platform):
        return (f"{message} without it; from PyPI, by others than PyTorch: pip install '{separate}'",)
    return (message,)


# --- the code for the GPU ---


def _prove_torch(
    plan: InstallPlan, host: TargetHost, reach: reader.IndexReader, machine: Sequence[str]
) -> InstallPlan:
    """Return a plan with what is known of torch's code before it is fetched, also of one that is installed.

    UnservedGpuError where it has none for a GPU here. ``machine`` has the GPUs that a lock was made for: one
    of them that runs the kernels of another by an override does so again.
    """
    demand = kernel_proof.make_demand(host, plan.override_line)
    torch = next((package for package in plan.packages if package.project == "torch"), None)
    if demand is None or torch is None:
        return replace(plan, demand=demand)
    devices = [package for package in plan.packages if kernel_proof.is_device_project(package.project)]
    proof = kernel_proof.KernelProof(f"torch {torch.version}")
    try:
        if plan.kept.issuperset({torch.project, *(device.project for device in devices)}):
            proof = kernel_proof.prove_installed(plan.target.environment) or proof
        else:
            here = [_as_candidate(package, plan.cache) for package in (torch, *devices)]
            if plan.choice is not None and plan.choice.picked.url == here[0].url:
                here[0] = plan.choice.picked  # its page may have METADATA beside it
            markers = plan.target.environment.markers
            proof = kernel_proof.prove_wheel(here[0], here[1:], demand, markers, reach)
    except errors.DataError as fault:  # of a file that rotted here: fetching it tells, and then it is proven
        proof = replace(proof, unread=errors.explain_error(fault))
    plan = replace(plan, demand=demand, proof=proof)
    if demand.list_faults(proof) and set(machine) & {gpu.native or gpu.gfx for gpu in demand.gpus}:
        posed = kernel_proof.find_proven_pose(proof, demand.gpus, host.platform)
        line = posed.line if posed else None
        plan = replace(plan, override_line=line, demand=kernel_proof.make_demand(host, line))
    if not plan.allow_cpu:
        kernel_proof.require_served(proof, plan.demand or demand, host, plan.choice)
    return plan


def _as_candidate(package: LockedPackage, cache: Path) -> candidates.ChoiceCandidate:
    """Return a package as a wheel that can be looked into: the file that is here, where there is one."""
    path = fetch.find_fetched(package, cache) if package.sha256 else None
    url = path.as_uri() if path else package.url
    link = reader.IndexLink(package.file, package.file, url, package.sha256, size=package.size)
    return candidates.ChoiceCandidate(link, dist_info.parse_wheel_name(package.file), rank=1)


# --- statements of how wheels were made ---


def _require_statements(plan: InstallPlan, reach: reader.IndexReader) -> None:
    """Raise HostError unless one of the keys has signed a statement about each new wheel of a recipe.

    ROCm's own packages are not asked for any, nor is what is installed already.
    """
    from rocm_wheels.package.provenance import check_signature, parse_stored_statement
    from rocm_wheels.wheels import statement

    names = project_names.find_wheel_projects()

    def find_fault(package: LockedPackage) -> str:
        name = f"{package.file}{statement.STATEMENT_SUFFIX}"
        try:
            content = _read_beside(package, statement.STATEMENT_SUFFIX, reach)
            signature = _read_beside(package, statement.STATEMENT_SIGNATURE_SUFFIX, reach)
            if content is None or signature is None:
                return f"the index has no {name}{'' if content is None else ' with a signature'}"
            local = fetch.find_fetched(package, plan.cache)
            sha256 = package.sha256 or (files.hash_file(local) if local else "")
            stated = parse_stored_statement(content, name=name, wheel=package.file, sha256=sha256)
            for _inner in statement.walk_statements(stated):
                pass  # each that it holds is about the wheel that it is named as the statement of
            if not check_signature(content, signature, plan.signers, plan.env):
                return f"{name} is not signed by {' or '.join(plan.signers)}"
        except errors.DataError as fault:
            return str(fault)
        return ""

    built = [
        package
        for package in plan.changed
        if package.project in names
        or any(package.project.startswith(f"amd-{name}-device-") for name in names)
    ]
    if faults := list(filter(None, parallel.run_in_parallel(find_fault, built, jobs=_JOBS))):
        raise errors.HostError(
            "\n".join(faults),
            tip="nothing was installed; leave --signed-by out to install what nobody answers for",
        )


def _read_beside(package: LockedPackage, suffix: str, reach: reader.IndexReader) -> bytes | None:
    """Return a file that lies beside a wheel; None where there is none, as servers say in several ways."""
    parts = urlsplit(package.url)
    answer = reach.get(urlunsplit(parts._replace(path=parts.path + suffix)))
    if answer.status in _NOT_THERE:
        return None
    if answer.status != 200:
        raise errors.DataError(f"{package.file}{suffix} cannot be read: the server says {answer.status}")
    return answer.content


# --- installing ---


def install(plan: InstallPlan, keep_wheels: Path | None = None) -> list[str]:
    """Install; returns what is installed now, for people. HostError with what is not so.

    Nothing of the environment is touched before every file is here, whole and checked. All wheels of the set
    are also put into the folder ``keep_wheels``, from which pip installs them without a network.
    """
    env = resolve.make_uv_environment(plan.env)
    if not plan.changed and keep_wheels is None:
        return _check(plan, plan.target, env)
    target = plan.target
    with ExitStack() as stack:
        try:
            target.own_folder.mkdir(parents=True, exist_ok=True)
        except OSError as cause:
            raise errors.HostError(f"{target.environment.prefix} cannot be made: {cause.strerror}") from cause
        purpose = f"installing into {target.environment.prefix}"
        stack.enter_context(
            files.lock_folder(
                target.own_folder,
                purpose=purpose,
                tip=_BUSY_TIP,
                patience=_BUSY_PATIENCE,
                error=errors.HostError,
            )
        )
        target = environment.make_venv(target, env)
        present = environment.list_installed(target)
        notes = environment.read_notes(target, present)
        is_done = all(_is_installed(entry, present.get(entry.project), notes) for entry in plan.packages)
        if is_done and keep_wheels is None:  # another run that was waited for has installed the same
            return _check(plan, target, env)
        _require_unchanged(plan, target, present)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rocm-wheels-")))
        changed = list(plan.changed)
        if keep_wheels is not None:
            whole = _keep_wheels(plan, keep_wheels, folder, env)
            changed = [package for package in whole if package.project not in plan.kept]
        if changed:
            environment.remove_partial_records(target, {package.project for package in changed})
            changed = _fetch_and_install(plan, target, changed, folder, env)
            wheels = {p.project: (p.file, p.sha256 or "") for p in _with_digests(plan.changed, changed)}
            environment.write_notes(target, wheels)
        return _check(plan, target, env)


def _require_unchanged(
    plan: InstallPlan,
    target: environment.InstallTarget,
    present: Mapping[str, installed_packages.InstalledDistribution],
) -> None:
    """Refuse a plan that was made of another state: a run that has ended meanwhile may have changed it."""
    changed = [
        package.project
        for package in plan.packages
        if present.get(package.project) != plan.present.get(package.project)
    ]
    if _list_conflicts(plan.packages, present) != plan.removed:
        changed.append("triton")
    if changed:
        raise errors.HostError(
            f"{target.environment.prefix} has changed since this was planned: {', '.join(changed)}",
            tip="run the same command again",
        )


def _fetch_and_install(
    plan: InstallPlan,
    target: environment.InstallTarget,
    packages: Sequence[LockedPackage],
    folder: Path,
    env: Mapping[str, str],
) -> list[LockedPackage]:
    """Install exactly these files by uv; returns them with their digests.

    What is large is fetched here, what uv has no name for, what nothing states the digest of, and a torch
    whose code could not be read before; files of this machine are checked. uv keeps what it has unpacked of
    it, and looks for it where it was.
    """
    is_unread = plan.proof is not None and not plan.proof.is_complete
    own = [
        package
        for package in packages
        if (package.size or 0) > LARGE
        or package.file != package.name
        or not package.sha256
        or reader.path_of_url(package.url) is not None
        or (is_unread and (package.project == "torch" or kernel_proof.is_device_project(package.project)))
    ]
    left = [package for package in own if not is_unread and fetch.is_left_to_uv(package, plan.cache)]
    fetched = _fetch(plan, [package for package in own if package not in left])
    if is_unread:
        _prove_files(plan, fetched)
    log.log_note(f"installing {', '.join(map(str, packages))}")
    try:
        _run_uv(plan, target, packages, fetched, left, folder, env)
    except errors.HostError as failure:
        if not left:
            raise _describe_failure(plan, target, failure) from failure
        # uv's cache is another one by now, or was cleaned
        for package in left:
            fetch.find_folder(package, plan.cache).rmdir()
        fetched = [*fetched, *_fetch(plan, left)]
        try:
            _run_uv(plan, target, packages, fetched, (), folder, env)
        except errors.HostError as again:
            raise _describe_failure(plan, target, again) from again
    for package in fetched:
        fetch.leave_to_uv(package, plan.cache)
    return _with_digests(packages, fetched)


def _with_digests(packages: Iterable[LockedPackage], fetched: Iterable[LockedPackage]) -> list[LockedPackage]:
    digests = {package.project: package.sha256 for package in fetched}
    return [replace(package, sha256=package.sha256 or digests.get(package.project)) for package in packages]


def _fetch(plan: InstallPlan, packages: Sequence[LockedPackage]) -> list[LockedPackage]:
    """Return packages that are here, under the names that installers read; HostError for unsound ones."""
    if not packages:
        return []
    from rocm_wheels.wheels import scan  # slow to import

    labels = {
        package.project: dist_info.split_wheel_name(package.file).label
        for package in packages
        if package.properties is not None
    }
    fetched = fetch.fetch_packages(packages, plan.cache, variables=plan.connection)
    for package in fetched:
        path = reader.path_of_url(package.url)
        if package.is_sdist or path is None:
            continue
        try:
            if refusals := scan.scan_wheel(path, device_code=False).list_refusals(startup_files=("*",)):
                raise errors.DataError("\n".join(refusals))
            properties = (
                _read_properties(path, labels[package.project]) if package.project in labels else None
            )
        except errors.DataError as cause:
            raise errors.HostError(f"{path} cannot be installed") from cause
        if properties != package.properties:
            raise errors.HostError(
                f"{package.name} is not the variant that the index's document says",
                tip="the index gives it out wrongly",
            )
    return fetched


def _read_properties(path: Path, label: str) -> Mapping[str, Mapping[str, tuple[str, ...]]]:
    """Return what a variant wheel says of itself, in the form of today or of 2025."""
    from rocm_wheels.variants import document
    from rocm_wheels.wheels.archive import WheelArchive

    with WheelArchive.open(path) as archive:
        places = [
            member
            for member in archive.members
            if member.name.endswith(f".dist-info/{document.VARIANT_FILE_NAME}")
        ]
        if len(places) != 1:
            raise errors.DataError(f"{path.name} has {len(places)} files {document.VARIANT_FILE_NAME}")
        found = document.read_any_format(archive.read(places[0]), name=path.name, label=label or None)
    if len(found.variants) != 1:
        raise errors.DataError(f"{path.name} says that it is {len(found.variants)} variants")
    return next(iter(found.variants.values()))


def _prove_files(plan: InstallPlan, fetched: Sequence[LockedPackage]) -> None:
    """Look for code for this machine's GPUs where that could not be done before the download.

    UnservedGpuError, with nothing installed, where there is none.
    """
    torch = [_as_candidate(package, plan.cache) for package in fetched if package.project == "torch"]
    if plan.proof is None or plan.demand is None or not torch:
        return
    devices = [
        _as_candidate(package, plan.cache)
        for package in fetched
        if kernel_proof.is_device_project(package.project)
    ]
    proof = kernel_proof.prove_files(torch[0], devices, plan.demand, plan.proof)
    for target in plan.demand.targets:
        log.log_note(proof.describe(target))
    if not plan.allow_cpu and (faults := plan.demand.list_faults(proof)):
        raise install_options.UnservedGpuError(
            "\n  ".join(faults), tip=f"nothing was installed; {install_options.ALLOW_CPU_TIP}"
        )


def _run_uv(  # noqa: PLR0917 - what is installed, and three ways in which it is there
    plan: InstallPlan,
    target: environment.InstallTarget,
    packages: Sequence[LockedPackage],
    fetched: Sequence[LockedPackage],
    left: Sequence[LockedPackage],
    folder: Path,
    env: Mapping[str, str],
) -> None:
    """Have uv install a lock, after what is in the way is removed; by then every file is in its cache."""
    here = {package.project: package for package in fetched}
    for package in left:
        place = fetch.find_folder(package, plan.cache) / package.name
        here[package.project] = replace(package, url=place.as_uri())
    lock, entries = folder / "pylock.toml", []
    for package in packages:
        known = plan.index if package.index == resolve.CHOSEN else package.index
        is_asked = package.project not in here and known in plan.indexes
        # uv compares sizes with those that it noted, which it does not of every file
        entry = here.get(package.project, package)
        entries.append(replace(entry, index=known if is_asked else "", size=None))
    lock.write_text(format_lock(entries, {}), encoding="utf-8")
    # where uv looks for what it has unpacked of a file, also of one that is no longer there
    places = {str(path.parent) for p in here.values() if (path := reader.path_of_url(p.url)) is not None}
    settings = resolve.write_uv_settings(folder, plan.indexes, sorted(places))
    words = [str(find_uv()), "pip", "install", "--config-file", str(settings), "-r", str(lock)]
    words += ["--preview-features", "pylock"]
    same = [
        p.project
        for p in packages
        if p.project in plan.present and plan.present[p.project].version == str(p.version)
    ]
    words += [word for project in same for word in ("--reinstall-package", project)]
    python = ["--python", str(target.python)]

    def run(*arguments: str, description: str) -> None:
        process.run_command(
            [*words, *arguments], env=env, cwd=folder, check=errors.HostError, description=description
        )

    if plan.removed:
        run(*python, "--target", str(folder / "all"), description="uv pip install")  # all of it is here then
        names = ", ".join(map(str, plan.removed))
        log.log_note(f"removing {names}, which has the same folder as the new triton")
        remove = [str(find_uv()), "pip", "uninstall", "--no-config", *python]
        process.run_command(
            [*remove, *(distribution.name for distribution in plan.removed)],
            env=env, check=errors.HostError, description="removing the other triton",
        )  # fmt: skip
    run(*python, description="uv pip install")


def _describe_failure(
    plan: InstallPlan, target: environment.InstallTarget, cause: errors.HostError
) -> errors.HostError:
    """Say what is installed of a set whose installation failed: an installer may leave halves."""
    present, states, complete = environment.list_installed(target), [], 0
    for package in plan.changed:
        now = present.get(package.project)
        is_planned = now is not None and now.version == str(package.version)
        is_partial = now is not None and is_planned and not environment.is_intact(now)
        complete += is_planned and not is_partial
        states.append(f"{now or f'{package.project} missing'}{' in part' if is_partial else ''}")
    return errors.HostError(
        f"the installation failed; {complete} of {len(plan.changed)} packages are installed as planned."
        f" There is now: {', '.join(states)}",
        tip=f"{f'{cause.tip}; then ' if cause.tip else ''}run the same command again",
    )


_CHECKED = re.compile(r"The package `([^`]+)` requires (.+)")


def _check(plan: InstallPlan, target: environment.InstallTarget, env: Mapping[str, str]) -> list[str]:
    """Look whether everything is installed as planned and belongs together; HostError with all that is not.

    What is wrong with other packages of the environment is a warning.
    """
    present = environment.list_installed(target)
    faults = [
        f"{package} is not installed, but {present.get(package.project) or 'nothing'}"
        for package in plan.packages
        if package.project not in present or present[package.project].version != str(package.version)
    ]
    words = [str(find_uv()), "pip", "check", "--no-config", "--python", str(target.python)]
    printed: list[str] = []
    process.run_command(words, env=env, check=None, on_line=printed.append)
    names = {package.project for package in plan.packages}
    for match in map(_CHECKED.fullmatch, printed):
        if match and match[1] in names:
            faults.append(match[0])
        elif match:
            log.log_warning(match[0])
    if faults:
        raise errors.HostError(
            "what is installed is not what was chosen:\n  " + "\n  ".join(faults),
            tip="run the same command again; `rocm-wheels doctor` tells more about the environment",
        )
    kinds = (
        {"torch": f" (built for {installed_packages.detect_build(present['torch']).kind})"}
        if "torch" in names
        else {}
    )
    return [
        f"{present[package.project]}{kinds.get(package.project, '')}"
        for package in plan.packages
        if plan.find_source(package) == "index"
    ]


def _keep_wheels(plan: InstallPlan, folder: Path, work: Path, env: Mapping[str, str]) -> list[LockedPackage]:
    """Put all wheels of the set into a folder, under the names that pip reads; sources are built.

    Also a list of them with digests for pip, and a lock of the folder. Returns the packages as they are
    there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    kept = []
    for package in _fetch(plan, plan.packages):
        path = reader.path_of_url(package.url)
        if path is None:
            raise errors.HostError(f"{package} has no file")
        if package.is_sdist:
            settings = resolve.write_uv_settings(work, plan.indexes)
            log.log_note(f"building {package.name}")
            process.run_command(
                [str(find_uv()), "build", "--wheel", "--config-file", str(settings), "--python",
                 str(plan.target.runnable_python), "--out-dir", str(work / package.project), str(path)],
                env=env, check=errors.HostError, description=f"building {package.name}",
                tip="nothing was installed",
            )  # fmt: skip
            (path,) = (work / package.project).glob("*.whl")
            package = replace(package, name=path.name)  # noqa: PLW2901 - from here on it is a wheel
        place = (folder / package.name).absolute()
        if not place.is_file() or files.hash_file(place) != files.hash_file(path):
            place.unlink(missing_ok=True)
            files.copy_atomically(path, place)
        if path.is_relative_to(plan.cache):
            fetch.discard_fetched(package, plan.cache)
        kept.append(replace(package, url=place.as_uri(), sha256=files.hash_file(place), index=""))
    pins = [f"{p.project}=={p.version} --hash=sha256:{p.sha256}\n" for p in kept]
    files.write_atomically(folder / "requirements.txt", "".join(pins))
    beside = [replace(package, url=package.name) for package in kept]
    files.write_atomically(folder / "pylock.toml", replace(plan, packages=tuple(beside)).format_lock())
    return kept


def make_offline_line(folder: Path) -> str:
    """Return the line that installs from a folder of kept wheels where there is no network."""
    place = str(folder.absolute())
    words = [
        "pip",
        "install",
        "--no-index",
        "--no-deps",
        "--find-links",
        place,
        "-r",
        f"{place}/requirements.txt",
    ]
    return shell.format_command(words)


def list_commands(plan: InstallPlan) -> list[str]:
    """Return what to type to get the same by hand, line by line."""
    python, lines, places = str(plan.target.python), [], []
    if not plan.changed:
        return []
    if plan.target.base_python:
        lines.append(shell.format_command(environment.make_venv_command(plan.target, name_uv())))
    for package in plan.changed:
        url = shell.hide_credentials(package.url)
        place = f"{package.project} @ {url}" + (f"#sha256={package.sha256}" if package.sha256 else "")
        if package.file != package.name:  # the label of a variant is no part of a name that uv reads
            lines.append(
                shell.format_command(["curl", "--fail", "--location", "--output", package.name, url])
            )
            if package.sha256:
                lines.append(f"echo '{package.sha256}  {package.name}' | sha256sum --check --quiet")
            place = f"./{package.name}"
        places.append(place)
    if plan.removed:
        names = [distribution.name for distribution in plan.removed]
        lines.append(shell.format_command([name_uv(), "pip", "uninstall", "--python", python, *names]))
    again = [
        word for p in plan.changed if p.project in plan.present for word in ("--reinstall-package", p.project)
    ]
    words = [name_uv(), "pip", "install", "--no-config", "--no-deps", "--python", python, *again, *places]
    return [*lines, shell.format_command(words)]
