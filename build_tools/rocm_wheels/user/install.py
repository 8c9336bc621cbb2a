"""Install a plan: download everything, install it by pip or uv in one go, then check the result."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from rocm_wheels.core import errors, extras, log, process
from rocm_wheels.core.download import DownloadPolicy, DownloadTarget
from rocm_wheels.core.files import link_or_copy, lock_folder
from rocm_wheels.user import (
    compare_installed,
    install_options,
    installation,
    installed_packages,
    kernel_proof,
    package_offers,
    plan_install,
    resolve,
    wheel_cache,
)
from rocm_wheels.wheels import dist_info

if TYPE_CHECKING:
    from rocm_wheels.variants import document
    from rocm_wheels.wheels.archive import WheelArchive

_BUSY_TIP = "another installation into this environment is under way: wait for it to end, then run this again"


def carry_out_plan(
    planned: plan_install.PlannedInstall,
    cache: wheel_cache.WheelCache,
    env: Mapping[str, str],
    *,
    policy: DownloadPolicy | None = None,
    cached: bool = True,
    keep_wheels: Path | None = None,
) -> list[str]:
    """Install; returns what is installed now, for people. HostError with what is not so.

    Nothing of the environment is touched before every file is here, whole and checked. ``cached``: the
    installer may keep what it unpacks, too. Wheels are also put into the folder ``keep_wheels``.
    """
    plan = planned.plan
    if not plan.changed:
        return check_installation(plan, {})
    cache.require_writable()
    # in the environment itself: others who install into it may have another cache
    locked_folder = plan.target.package_folders[0] / installation.LOCK_NAME
    plan_install.begin_venv(plan.target)
    with lock_folder(
        locked_folder,
        purpose=f"installing into {plan.target.environment.prefix}",
        tip=_BUSY_TIP,
        error=errors.HostError,
    ):
        plan_install.make_venv(plan, env)
        _require_unchanged(plan)
        files = _download_files(plan, cache, policy)
        _prove_downloads(plan, files)
        folder = plan.find_folder(cache)
        _link_files(plan, files, folder)
        _build_sdists(planned, folder, env)
        _remove_partial_records(plan)
        _run_installer(plan, files, folder, env, cached=cached)
        summary = check_installation(plan, files)
        if keep_wheels is not None:
            _keep_wheels(plan, files, keep_wheels)
        shutil.rmtree(folder, ignore_errors=True)
    return summary


def _require_unchanged(plan: installation.InstallPlan) -> None:
    """Refuse a plan that was made of another state: a run that has ended meanwhile may have changed it."""
    present = installation.list_installed(plan.target)
    changed = [item.offer.project for item in plan.items if present.get(item.offer.project) != item.current]
    if plan_install.list_conflicts(plan.items, present) != plan.removed:
        changed.append("triton")
    if changed:
        raise errors.HostError(
            f"{plan.target.environment.prefix} has changed since this was planned: {', '.join(changed)}",
            tip="run the same command again",
        )


def check_installation(plan: installation.InstallPlan, files: Mapping[str, Path]) -> list[str]:
    """Look whether everything is installed as planned and belongs together; HostError with all that is not.

    torch is the build that was chosen when its RECORD is that of the wheel, file by file.
    """
    present = installation.list_installed(plan.target)
    versions = {name: distribution.version for name, distribution in present.items()}
    faults, summary = [], []
    for item in plan.items:
        offer, distribution_now = item.offer, present.get(item.offer.project)
        if distribution_now is None or distribution_now.version != str(offer.version):
            faults.append(
                f"{offer.project} {offer.version} is not installed, but {distribution_now or 'nothing'}"
            )
            continue
        path = files.get(offer.project)
        if path is not None and not item.keep:
            entries = compare_installed.read_wheel_record(offer, path)
            faults += [
                f"{distribution_now}: {text}"
                for text in compare_installed.list_differences(entries or [], distribution_now)
            ]
        faults += [
            f"{distribution_now} requires {text}"
            for text in compare_installed.list_unmet_requirements(
                distribution_now.requires, versions, plan.target.markers
            )
        ]
        if offer.project == "torch":
            faults += _check_torch_code(plan)
            summary.append(
                f"{distribution_now} (built for {installed_packages.detect_build(distribution_now).kind})"
            )
        elif item.offer.source == "index":
            summary.append(str(distribution_now))
    if faults:
        raise errors.HostError(
            "what is installed is not what was chosen:\n  " + "\n  ".join(faults),
            tip="run the same command again; `rocm-wheels doctor` tells more about the environment",
        )
    return summary


def _check_torch_code(plan: installation.InstallPlan) -> list[str]:
    """Say when the installed torch has code for no GPU of this machine, as its own files have it."""
    if plan.demand is None or plan.allow_cpu:
        return []
    try:
        proof = kernel_proof.prove_installed(plan.target.environment)
    except errors.DataError as cause:
        return [errors.explain_error(cause)]
    return plan.demand.list_faults(proof) if proof else []


def _prove_downloads(plan: installation.InstallPlan, files: Mapping[str, Path]) -> None:
    """Look for code for this machine's GPUs where that could not be done before the download.

    UnservedGpuError, with nothing installed, where there is none.
    """
    if plan.proof is None or plan.demand is None or plan.proof.is_complete or "torch" not in files:
        return
    offers = [
        replace(item.offer, url=files[item.offer.project].absolute().as_uri())
        for item in plan.changed
        if not item.offer.is_sdist
    ]
    torch = next(offer for offer in offers if offer.project == "torch")
    proof = kernel_proof.prove_files(torch, kernel_proof.list_device_offers(offers), plan.demand, plan.proof)
    for target in plan.demand.targets:
        log.log_note(proof.describe(target))
    if not plan.allow_cpu and (faults := plan.demand.list_faults(proof)):
        raise install_options.UnservedGpuError(
            "\n  ".join(faults), tip=f"nothing was installed; {install_options.ALLOW_CPU_TIP}"
        )


def _download_files(
    plan: installation.InstallPlan, cache: wheel_cache.WheelCache, policy: DownloadPolicy | None
) -> dict[str, Path]:
    downloads = {
        item.offer.project: DownloadTarget(
            item.offer.name, item.offer.url, item.offer.sha256, item.offer.size
        )
        for item in plan.changed
    }
    fetched = wheel_cache.download_wheels(list(downloads.values()), cache, policy=policy)
    files = {project: fetched[download].path for project, download in downloads.items()}
    for item in plan.changed:
        require_sound_wheel(item.offer, files[item.offer.project])
    return files


def require_sound_wheel(offer: package_offers.PackageOffer, path: Path) -> None:
    """Refuse a wheel that is none, or another than the index says, before anything is installed.

    A variant is looked at in every form that is chosen from, those of 2025 included.
    """
    if offer.is_sdist:
        return
    from rocm_wheels.index import wheel_file
    from rocm_wheels.wheels import scan
    from rocm_wheels.wheels.archive import WheelArchive

    try:
        if refusals := scan.scan_wheel(path, device_code=False).list_refusals(startup_files=("*",)):
            raise errors.DataError("\n".join(refusals))
        with WheelArchive.open(path) as archive:
            content = wheel_file.read_metadata_and_variant(archive, path, None)[0]
            metadata = dist_info.parse_metadata(content, name=offer.name, variant_markers=True)
            properties = _read_stated_properties(archive, offer) if offer.properties is not None else None
    except errors.DataError as cause:
        raise errors.HostError(f"{path} cannot be installed") from cause
    wrongly = "the index gives it out wrongly"
    if metadata.version != offer.version:
        raise errors.HostError(f"{offer.name} holds {metadata.name} {metadata.version}", tip=wrongly)
    if properties != offer.properties:
        raise errors.HostError(f"{offer.name} is not the variant that the index's document says", tip=wrongly)


def _read_stated_properties(archive: WheelArchive, offer: package_offers.PackageOffer) -> document.Properties:
    """Return what a variant wheel says of itself."""
    from rocm_wheels.variants import document

    label = offer.label or ""
    members = [
        member
        for member in archive.members
        if member.name.endswith(f".dist-info/{document.VARIANT_FILE_NAME}")
    ]
    if len(members) != 1:
        raise errors.DataError(
            f"{offer.name} has the label {label}, and {len(members)} files {document.VARIANT_FILE_NAME}"
        )
    return document.read_any_format(archive.read(members[0]), name=offer.name, label=label).variants[label]


def _keep_wheels(plan: installation.InstallPlan, files: Mapping[str, Path], folder: Path) -> None:
    """Put the wheels that were installed into a folder, under the names that their index has for them."""
    folder.mkdir(parents=True, exist_ok=True)
    for item in plan.changed:
        if not item.offer.is_sdist:
            (folder / item.offer.name).unlink(missing_ok=True)
            link_or_copy(files[item.offer.project].resolve(), folder / item.offer.name)


def _link_files(plan: installation.InstallPlan, files: Mapping[str, Path], folder: Path) -> None:
    """Put the files into one folder, under the names that installers read: they know no variant labels.

    A hard link is a change of the file (its ctime), after which uv unpacks it anew.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for item in plan.changed:
        source, name = files[item.offer.project].resolve(), folder / item.offer.installer_name
        try:
            name.symlink_to(source)
        except OSError:  # Windows, without the right to
            link_or_copy(source, name)


def _build_sdists(planned: plan_install.PlannedInstall, folder: Path, env: Mapping[str, str]) -> None:
    """Make wheels of source distributions (ROCm's ``rocm`` is one) in the place of these."""
    for item in planned.plan.changed:
        if item.offer.is_sdist:
            source = folder / item.offer.installer_name
            build_sdist(planned, item.offer, source, folder, env)
            source.unlink()


def build_sdist(
    planned: plan_install.PlannedInstall,
    offer: package_offers.PackageOffer,
    source: Path,
    folder: Path,
    env: Mapping[str, str],
) -> Path:
    """Make a wheel of a source distribution, from the same offers as everything; returns its path."""
    log.log_note(f"building {offer.installer_name}")
    with resolve.serve_offers(planned.offers) as url, tempfile.TemporaryDirectory(dir=folder) as built:
        words = [str(extras.find_uv()), "build", "--wheel", "--no-config", "--no-cache", "--quiet"]
        words += ["--python", str(planned.plan.target.python), "--default-index", url, "--out-dir", built]
        process.run_command(
            [*words, str(source)],
            env=resolve.make_installer_environment(env),
            check=errors.HostError,
            description=f"building {offer.installer_name}",
            tip="nothing was installed",
        )
        wheels = sorted(Path(built).glob("*.whl"))
        if len(wheels) != 1:
            raise errors.HostError(f"{offer.installer_name} became {len(wheels)} wheels")
        return wheels[0].replace(folder / wheels[0].name)


def _remove_partial_records(plan: installation.InstallPlan) -> None:
    """Remove the records that a killed installation left half written: no installer gets past them.

    uv takes such a package for installed, pip cannot uninstall it. The files themselves are written anew.
    """
    projects = {item.offer.project for item in plan.changed}
    for info in sorted(path for folder in plan.target.package_folders for path in folder.glob("*.dist-info")):
        if canonicalize_name(info.name.split("-", 1)[0]) not in projects:
            continue
        installer = info / "INSTALLER"
        ours = not installer.is_file() or installer.read_text(encoding="utf-8").strip() in ("pip", "uv", "")
        if not (info / "METADATA").is_file() or (ours and not (info / "RECORD").is_file()):
            log.log_note(f"removing {info}, which is left of an installation that was broken off")
            shutil.rmtree(info)


def _run_installer(
    plan: installation.InstallPlan,
    files: Mapping[str, Path],
    folder: Path,
    env: Mapping[str, str],
    *,
    cached: bool,
) -> None:
    uv = str(extras.find_uv())
    quiet = resolve.make_installer_environment(env)
    names = ", ".join(f"{item.offer.project} {item.offer.version}" for item in plan.changed)
    log.log_note(f"installing {names}")
    words = installation.make_install_command(plan, folder, uv, cached=cached)
    try:
        if plan.removed:
            log.log_note(
                f"removing {', '.join(map(str, plan.removed))}, which has the same folder as the new triton"
            )
            process.run_command(
                installation.make_remove_command(plan, uv),
                env=quiet,
                check=errors.HostError,
                description="removing the other triton",
            )
        process.run_command(words, env=quiet, check=errors.HostError, description=f"{plan.installer} install")
    except errors.HostError as cause:
        by_hand = installation.format_installer_command(
            plan, installation.make_install_command(plan, folder, "uv")
        )
        on = f"; or, as all files are here:\n{by_hand}" if cached else ""
        tip = f"{f'{cause.tip}; then ' if cause.tip else ''}run the same command again{on}"
        raise errors.HostError(_describe_state(plan, files), tip=tip) from cause


def _describe_state(plan: installation.InstallPlan, files: Mapping[str, Path]) -> str:
    """Say what is installed of a set whose installation failed: an installer may leave halves."""
    present = installation.list_installed(plan.target)
    states = []
    complete = 0
    for item in plan.changed:
        distribution = present.get(item.offer.project)
        if distribution is None:
            states.append(f"{item.offer.project} missing")
            continue
        is_planned_version = distribution.version == str(item.offer.version)
        is_partial = is_planned_version and bool(
            compare_installed.list_differences(
                compare_installed.read_wheel_record(item.offer, files[item.offer.project]) or [], distribution
            )
        )
        complete += is_planned_version and not is_partial
        states.append(f"{distribution}{' in part' if is_partial else ''}")
    return (
        f"the installation failed; {complete} of {len(plan.changed)} packages are installed as planned."
        f" There is now: {', '.join(states)}"
    )


@contextlib.contextmanager
def make_temporary_cache() -> Iterator[wheel_cache.WheelCache]:
    """Give a cache that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-") as folder:
        yield wheel_cache.WheelCache(Path(folder))
