"""Carry out a plan: every file is here and checked, then uv installs exactly these, and it is looked at.

What is large comes by a download of our own, which goes on where it broke off; uv fetches the rest. All of it
is there before the environment is touched.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from rocm_wheels.core import errors, files, log, process, shell
from rocm_wheels.core.installation import find_uv
from rocm_wheels.index import reader
from rocm_wheels.user import environment, fetch, installed_packages, offers, resolve
from rocm_wheels.user.lock import LockedPackage, format_lock
from rocm_wheels.user.plan import InstallPlan, find_other_tritons

LARGE = 200 << 20  # bytes: from here on a download that breaks off is worth carrying on
_BUSY_TIP = "another installation into this environment is under way: wait for it to end, then run this again"
_BUSY_PATIENCE = 3600.0
_CHECKED = re.compile(r"The package `([^`]+)` requires (.+)")


def install(plan: InstallPlan, keep_wheels: Path | None = None) -> list[str]:
    """Install; returns what is installed now, for people. HostError with what is not so.

    Nothing of the environment is touched, nor is one made, before what is fetched here is whole and checked;
    uv fetches the rest before it installs. All wheels of the set are also put into the folder
    ``keep_wheels``, from which pip installs them without a network.
    """
    env = resolve.make_uv_environment(plan.site.env)
    if not plan.changed and keep_wheels is None:
        return _check(plan, plan.target, env)
    target = plan.target
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rocm-wheels-")))
        packages: Sequence[LockedPackage] = plan.changed
        if packages:
            _require_room(plan)
        if keep_wheels is not None:
            whole = _keep_wheels(plan, keep_wheels, work, env)
            packages = [package for package in whole if package.project not in plan.kept]
        own = [package for package in packages if _is_fetched_here(package)]
        left = [package for package in own if fetch.is_left_to_uv(package, plan.site.cache)]
        here = _fetch(plan, [package for package in own if package not in left])
        packages = fetch.add_digests(packages, here)
        here += [fetch.lead_to_cache(package, plan.site.cache) for package in left]
        try:
            target.own_folder.mkdir(parents=True, exist_ok=True)
        except OSError as cause:
            raise errors.HostError(f"{target.environment.prefix} cannot be made: {cause.strerror}") from cause
        purpose = f"installing into {target.environment.prefix}"
        held = files.lock_folder(
            target.own_folder, purpose=purpose, tip=_BUSY_TIP, patience=_BUSY_PATIENCE, error=errors.HostError
        )
        stack.enter_context(held)
        target = environment.make_venv(target, env)
        present = environment.list_installed(target)
        notes = environment.read_notes(target, present)
        if all(environment.is_of_wheel(present.get(p.project), p, notes) for p in plan.packages):
            return _check(plan, target, env)  # another run that was waited for has installed the same
        changed = [
            package.project
            for package in plan.packages
            if present.get(package.project) != plan.site.present.get(package.project)
        ]
        changed += ["triton"] if find_other_tritons(plan.packages, present) != plan.removed else []
        if changed:
            raise errors.HostError(
                f"{target.environment.prefix} has changed since this was planned: {', '.join(changed)}",
                tip="run the same command again",
            )
        environment.remove_partial_records(target, {package.project for package in packages})
        log.log_note(f"installing {', '.join(map(str, packages))}")
        try:
            _run_uv(plan, target, packages, here, work, env)
        except errors.HostError as failure:
            raise _describe_failure(plan, target, failure) from failure
        file_names = {package.project: package.file for package in plan.changed}
        wheels = {p.project: (file_names[p.project], p.sha256 or "") for p in packages}
        environment.write_notes(target, wheels)
        return _check(plan, target, env)


def _require_room(plan: InstallPlan) -> None:
    """Raise HostError where the disk of the environment has no room for what is fetched and unpacked."""
    prefix = plan.target.environment.prefix
    size, instead = plan.bytes_to_fetch, "install into an environment on another disk; nothing was fetched"
    files.require_room(prefix, size, "fetched and unpacked", error=errors.HostError, instead=instead)


def _is_fetched_here(package: LockedPackage) -> bool:
    """Tell whether uv is not to fetch a file: it is large, or is here, or has no digest, or a label."""
    return (
        (package.size or 0) > LARGE
        or package.file != package.name
        or not package.sha256
        or reader.path_of_url(package.url) is not None
    )


def _fetch(plan: InstallPlan, packages: Sequence[LockedPackage]) -> list[LockedPackage]:
    """Return packages that are here, under the names that installers read; HostError for unsound ones."""
    from rocm_wheels.wheels import scan  # slow to import

    fetched = fetch.fetch_packages(packages, plan.site.cache, variables=plan.site.connection)
    for package, wanted in zip(fetched, packages, strict=True):
        path = reader.path_of_url(package.url)
        if package.is_sdist or path is None:
            continue
        try:
            if refusals := scan.scan_wheel(path, device_code=False).list_refusals(startup_files=("*",)):
                raise errors.DataError("\n".join(refusals))
            is_variant = package.properties is not None
            properties = _read_properties(path, wanted.label) if is_variant else None
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

    name = f".dist-info/{document.VARIANT_FILE_NAME}"
    with WheelArchive.open(path) as archive:
        texts = [archive.read(member) for member in archive.members if member.name.endswith(name)]
    if len(texts) != 1:
        raise errors.DataError(f"{path.name} has {len(texts)} files {document.VARIANT_FILE_NAME}")
    variants = document.read_any_format(texts[0], name=path.name, label=label or None).variants
    if len(variants) != 1:
        raise errors.DataError(f"{path.name} says that it is {len(variants)} variants")
    return next(iter(variants.values()))


def _run_uv(  # noqa: PLR0917 - what is installed, from where, and where to
    plan: InstallPlan,
    target: environment.InstallTarget,
    packages: Sequence[LockedPackage],
    here: Sequence[LockedPackage],
    work: Path,
    env: Mapping[str, str],
) -> None:
    """Have uv install a lock of the packages, after what is in the way is removed.

    ``here`` lead to files, which uv looks for in its cache as well: what it has kept unpacked need not be
    there any more, and is fetched again where uv has not kept it.
    """
    files_here = {package.project: package for package in here}
    entries = []
    for package in packages:
        index = plan.index if package.index == offers.CHOSEN else package.index
        is_asked = package.project not in files_here and index in plan.indexes
        # uv compares sizes with those that it noted, which it does not of every file
        entry = files_here.get(package.project, package)
        entries.append(replace(entry, index=index if is_asked else "", size=None))
    lock = work / "pylock.toml"
    lock.write_text(format_lock(entries, {}), encoding="utf-8")
    places = {str(path.parent) for p in here if (path := reader.path_of_url(p.url)) is not None}
    settings = resolve.write_uv_settings(work, plan.indexes, sorted(places))
    present = plan.site.present
    words = ["install", "--config-file", str(settings), "-r", str(lock), "--preview-features", "pylock"]
    for package in packages:
        current = present.get(package.project)
        if current is not None and environment.is_of_version(current, package):
            words += ["--reinstall-package", package.project]

    def run(*arguments: str) -> None:
        command = [str(find_uv()), "pip", *arguments, "--python", str(target.python)]
        process.run_command(
            command, env=env, cwd=work, check=errors.HostError, description=f"uv pip {arguments[0]}"
        )

    try:
        if plan.removed:
            run(*words, "--target", str(work / "all"))  # all of it is here then
            names = ", ".join(map(str, plan.removed))
            log.log_note(f"removing {names}, which has the same folder as the new triton")
            run("uninstall", "--no-config", *(distribution.name for distribution in plan.removed))
        run(*words)
    except errors.HostError:
        gone = [p for p in packages if p.project in files_here and fetch.is_left_to_uv(p, plan.site.cache)]
        if not gone:
            raise
        # uv's cache is another one by now, or was cleaned
        _run_uv(plan, target, packages, [*here, *_fetch(plan, gone)], work, env)
        return
    for package in here:
        fetch.leave_to_uv(package, plan.site.cache)


def _describe_failure(
    plan: InstallPlan, target: environment.InstallTarget, cause: errors.HostError
) -> errors.HostError:
    """Say what is installed of a set whose installation failed: an installer may leave halves."""
    present, states, complete = environment.list_installed(target), [], 0
    for package in plan.changed:
        now = present.get(package.project)
        is_planned = now is not None and environment.is_of_version(now, package)
        is_partial = now is not None and is_planned and not environment.is_intact(now)
        complete += is_planned and not is_partial
        states.append(f"{now or f'{package.project} missing'}{' in part' if is_partial else ''}")
    return errors.HostError(
        f"the installation failed; {complete} of {len(plan.changed)} packages are installed as planned."
        f" There is now: {', '.join(states)}",
        tip=f"{f'{cause.tip}; then ' if cause.tip else ''}run the same command again",
    )


def _check(plan: InstallPlan, target: environment.InstallTarget, env: Mapping[str, str]) -> list[str]:
    """Look whether everything is installed as planned and belongs together; HostError with all that is not.

    What is wrong with other packages of the environment is a warning.
    """
    present = environment.list_installed(target)
    faults = []
    for package in plan.packages:
        installed = present.get(package.project)
        if installed is None or not environment.is_of_version(installed, package):
            faults.append(f"{package} is not installed, but {installed or 'nothing'}")
    words = [str(find_uv()), "pip", "check", "--no-config", "--python", str(target.python)]
    printed: list[str] = []
    process.run_command(words, env=env, check=None, on_line=printed.append)
    names = {package.project for package in plan.packages}
    for match in filter(None, map(_CHECKED.fullmatch, printed)):
        if match[1] in names:
            faults.append(match[0])
        else:
            log.log_warning(match[0])
    if faults:
        raise errors.HostError(
            "what is installed is not what was chosen:\n  " + "\n  ".join(faults),
            tip="run the same command again; `rocm-wheels doctor` tells more about the environment",
        )
    lines = []
    for package in plan.packages:
        current, kind = present[package.project], ""
        if plan.find_source(package) == "index":
            if package.project == "torch":  # it reads libraries of a package that says nothing of itself
                kind = f" (built for {installed_packages.detect_build(current).kind})"
            lines.append(f"{current}{kind}")
    return lines


def _keep_wheels(plan: InstallPlan, folder: Path, work: Path, env: Mapping[str, str]) -> list[LockedPackage]:
    """Put all wheels of the set into a folder, under the names that pip reads; sources are built.

    Also a list of them with digests for pip, and a lock of the folder. Returns the packages as they are
    there.
    """
    tip = "name another folder; nothing was installed"
    fetch.require_writable(folder, f"--keep-wheels {folder}", tip)
    kept = []
    for package in _fetch(plan, plan.packages):
        path = reader.path_of_url(package.url)
        if path is None:
            raise errors.HostError(f"{package} has no file")
        if package.is_sdist:
            settings, built = resolve.write_uv_settings(work, plan.indexes), work / package.project
            log.log_note(f"building {package.name}")
            process.run_command(
                [str(find_uv()), "build", "--wheel", "--config-file", str(settings), "--python",
                 str(plan.target.runnable_python), "--out-dir", str(built), str(path)],
                env=env, check=errors.HostError, description=f"building {package.name}",
                tip="nothing was installed",
            )  # fmt: skip
            (path,) = built.glob("*.whl")
            package = replace(package, name=path.name, sha256=files.hash_file(path))  # noqa: PLW2901 - a wheel
        place = (folder / package.name).absolute()
        if not place.is_file() or files.hash_file(place) != package.sha256:
            place.unlink(missing_ok=True)
            files.copy_atomically(path, place)
        if path.is_relative_to(plan.site.cache):
            fetch.discard_fetched(package, plan.site.cache)
        kept.append(replace(package, url=place.as_uri(), index=""))
    pins = [f"{p.project}=={p.version} --hash=sha256:{p.sha256}\n" for p in kept]
    files.write_atomically(folder / "requirements.txt", "".join(pins))
    beside = [replace(package, url=package.name) for package in kept]
    files.write_atomically(folder / "pylock.toml", replace(plan, packages=tuple(beside)).format_lock())
    return kept


def make_offline_line(folder: Path) -> str:
    """Return the line that installs from a folder of kept wheels where there is no network."""
    place = str(folder.absolute())
    words = ["pip", "install", "--no-index", "--no-deps", "--find-links", place]
    return shell.format_command([*words, "-r", f"{place}/requirements.txt"])
