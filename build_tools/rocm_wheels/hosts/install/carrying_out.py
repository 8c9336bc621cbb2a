"""Carry a plan out: fetch everything, then install it by pip or uv in one go, then look whether it is so."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from rocm_wheels import log, process
from rocm_wheels.downloads.download import Patience, Wanted
from rocm_wheels.errors import DataError, HostError
from rocm_wheels.hosts.install.belonging import unmet
from rocm_wheels.hosts.install.cache import Cache
from rocm_wheels.hosts.install.fetch import fetch_all
from rocm_wheels.hosts.install.offers import Offer
from rocm_wheels.hosts.install.plan import Plan, as_typed, install_words, remove_words
from rocm_wheels.hosts.install.planning import Planned, in_the_way
from rocm_wheels.hosts.install.records import differences, wheel_record
from rocm_wheels.hosts.install.resolve import installer_environment
from rocm_wheels.hosts.install.target import LOCK, installed
from rocm_wheels.hosts.install.venv import begin_venv, make_venv
from rocm_wheels.hosts.install.view import served
from rocm_wheels.hosts.installed.builds import build_of
from rocm_wheels.sdk.uv import uv_program
from rocm_wheels.wheels.metadata import parse_metadata
from rocm_wheels.workspace import exclusive

if TYPE_CHECKING:
    from rocm_wheels.variants.document import Properties
    from rocm_wheels.wheels.members import WheelArchive

_OTHER = "another installation into this environment is under way: wait for it to end, then run this again"


def carry_out(
    planned: Planned,
    cache: Cache,
    env: Mapping[str, str],
    *,
    patience: Patience | None = None,
    cached: bool = True,
) -> list[str]:
    """Install; returns what is installed now, for people. HostError with what is not so.

    Nothing of the environment is touched before every file is here, whole and checked. ``cached``: the
    installer may keep what it unpacks, too.
    """
    plan = planned.plan
    if not plan.changed:
        return check(plan, {})
    cache.require_writable()
    # in the environment itself: others who install into it may have another cache
    place = plan.target.places[0] / LOCK
    begin_venv(plan.target)
    with exclusive(
        place, what=f"installing into {plan.target.environment.prefix}", tip=_OTHER, error=HostError
    ):
        make_venv(plan, env)
        _require_as_planned(plan)
        files = _fetch(plan, cache, patience)
        folder = plan.folder(cache)
        _link(plan, files, folder)
        _build(planned, folder, env)
        _remove_halves(plan)
        _install(plan, files, folder, env, cached=cached)
        said = check(plan, files)
        shutil.rmtree(folder, ignore_errors=True)
    return said


def _require_as_planned(plan: Plan) -> None:
    """Refuse a plan that was made of another state: a run that has ended meanwhile may have changed it."""
    there = installed(plan.target)
    other = [item.offer.project for item in plan.items if there.get(item.offer.project) != item.before]
    if in_the_way(plan.items, there) != plan.removed:
        other.append("triton")
    if other:
        raise HostError(
            f"{plan.target.environment.prefix} has changed since this was planned: {', '.join(other)}",
            tip="run the same command again",
        )


def check(plan: Plan, files: Mapping[str, Path]) -> list[str]:
    """Look whether everything is installed as planned and belongs together; HostError with all that is not.

    torch is the build that was chosen when its RECORD is that of the wheel, file by file.
    """
    there = installed(plan.target)
    versions = {name: one.version for name, one in there.items()}
    faults, said = [], []
    for item in plan.items:
        offer, now = item.offer, there.get(item.offer.project)
        if now is None or now.version != str(offer.version):
            faults.append(f"{offer.project} {offer.version} is not installed, but {now or 'nothing'}")
            continue
        path = files.get(offer.project)
        if path is not None and not item.keep:
            entries = wheel_record(offer, path)
            faults += [f"{now}: {text}" for text in differences(entries or [], now)]
        faults += [f"{now} requires {text}" for text in unmet(now.requires, versions, plan.target.markers)]
        if offer.project == "torch":
            faults += _kind_fault(plan, build := build_of(now).kind)
            said.append(f"{now} (built for {build})")
        elif item.offer.source == "index":
            said.append(str(now))
    if faults:
        raise HostError(
            "what is installed is not what was chosen:\n  " + "\n  ".join(faults),
            tip="run the same command again; `rocm-wheels doctor` tells more about the environment",
        )
    return said


def _kind_fault(plan: Plan, kind: str) -> list[str]:
    """Say when torch serves AMD GPUs by the choice, and is of another kind by its own files."""
    gpus = plan.choice.served if plan.choice else ()
    serves = any(yes and gpu.vendor == "amd" for gpu, yes in gpus)
    return [f"torch was chosen for an AMD GPU, and was built for {kind}"] if serves and kind != "rocm" else []


def _fetch(plan: Plan, cache: Cache, patience: Patience | None) -> dict[str, Path]:
    wanted = {
        item.offer.project: Wanted(item.offer.name, item.offer.url, item.offer.sha256, item.offer.size)
        for item in plan.changed
    }
    fetched = fetch_all(list(wanted.values()), cache, patience=patience)
    files = {project: fetched[one].path for project, one in wanted.items()}
    for item in plan.changed:
        if not item.offer.is_sdist:
            _require_right(item.offer, files[item.offer.project])
    return files


def _require_right(offer: Offer, path: Path) -> None:
    """Refuse a file that is no wheel, or another than the index says, before anything is installed.

    A variant is looked at in every form that is chosen from, those of 2025 included.
    """
    from rocm_wheels.index.taking import read_texts
    from rocm_wheels.wheels.members import WheelArchive

    try:
        with WheelArchive.open(path) as archive:
            archive.require_sound()
            said = parse_metadata(read_texts(archive, path, None)[0], name=offer.name)
            stated = _stated_properties(archive, offer) if offer.properties is not None else None
    except DataError as cause:
        raise HostError(f"{path} cannot be installed") from cause
    wrongly = "the index gives it out wrongly"
    if said.version != offer.version:
        raise HostError(f"{offer.name} holds {said.name} {said.version}", tip=wrongly)
    if stated != offer.properties:
        raise HostError(f"{offer.name} is not the variant that the index's document says", tip=wrongly)


def _stated_properties(archive: WheelArchive, offer: Offer) -> Properties:
    """Return what a variant wheel says of itself."""
    from rocm_wheels.variants.legacy import read_any_format
    from rocm_wheels.variants.metadata import FILE_NAME

    label = offer.label or ""
    found = [one for one in archive.members if one.name.endswith(f".dist-info/{FILE_NAME}")]
    if len(found) != 1:
        raise DataError(f"{offer.name} has the label {label}, and {len(found)} files {FILE_NAME}")
    return read_any_format(archive.read(found[0]), name=offer.name, label=label).variants[label]


def _link(plan: Plan, files: Mapping[str, Path], folder: Path) -> None:
    """Put the files into one folder, under the names that installers read: they know no variant labels.

    A hard link is a change of the file (its ctime), after which uv unpacks it anew.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for item in plan.changed:
        source, name = files[item.offer.project].resolve(), folder / item.offer.shown
        try:
            name.symlink_to(source)
        except OSError:  # Windows, without the right to
            try:
                os.link(source, name)
            except OSError:  # another disk
                shutil.copyfile(source, name)


def _build(planned: Planned, folder: Path, env: Mapping[str, str]) -> None:
    """Make wheels of source distributions (ROCm's ``rocm`` is one), from the same offers as everything."""
    sources = [item.offer for item in planned.plan.changed if item.offer.is_sdist]
    if not sources:
        return
    with served(planned.offers) as url:
        for one in sources:
            log.note(f"building {one.shown}")
            words = [str(uv_program()), "build", "--wheel", "--no-config", "--no-cache", "--quiet"]
            words += ["--python", str(planned.plan.target.python), "--default-index", url]
            process.run(
                [*words, "--out-dir", str(folder), str(folder / one.shown)],
                env=installer_environment(env),
                check=HostError,
                what=f"building {one.shown}",
                tip="nothing was installed",
            )
            (folder / one.shown).unlink()


def _remove_halves(plan: Plan) -> None:
    """Remove the records that a killed installation left half written: no installer gets past them.

    uv takes such a package for installed, pip cannot uninstall it. The files themselves are written anew.
    """
    projects = {item.offer.project for item in plan.changed}
    for info in sorted(one for place in plan.target.places for one in place.glob("*.dist-info")):
        if canonicalize_name(info.name.split("-", 1)[0]) not in projects:
            continue
        installer = info / "INSTALLER"
        ours = not installer.is_file() or installer.read_text(encoding="utf-8").strip() in ("pip", "uv", "")
        if not (info / "METADATA").is_file() or (ours and not (info / "RECORD").is_file()):
            log.note(f"removing {info}, which is left of an installation that was broken off")
            shutil.rmtree(info)


def _install(
    plan: Plan, files: Mapping[str, Path], folder: Path, env: Mapping[str, str], *, cached: bool
) -> None:
    uv = str(uv_program())
    quiet = installer_environment(env)
    names = ", ".join(f"{item.offer.project} {item.offer.version}" for item in plan.changed)
    log.note(f"installing {names}")
    words = install_words(plan, folder, uv, cached=cached)
    try:
        if plan.removed:
            log.note(
                f"removing {', '.join(map(str, plan.removed))}, which has the same folder as the new triton"
            )
            process.run(remove_words(plan, uv), env=quiet, check=HostError, what="removing the other triton")
        process.run(words, env=quiet, check=HostError, what=f"{plan.installer} install")
    except HostError as cause:
        by_hand = as_typed(plan, install_words(plan, folder, "uv"))
        on = f"; or, as all files are here:\n{by_hand}" if cached else ""
        tip = f"{f'{cause.tip}; then ' if cause.tip else ''}run the same command again{on}"
        raise HostError(_left(plan, files), tip=tip) from cause


def _left(plan: Plan, files: Mapping[str, Path]) -> str:
    """Say what is installed of a set whose installation failed: an installer may leave halves."""
    there = installed(plan.target)
    now = []
    whole = 0
    for item in plan.changed:
        found = there.get(item.offer.project)
        if found is None:
            now.append(f"{item.offer.project} missing")
            continue
        right = found.version == str(item.offer.version)
        half = right and bool(differences(wheel_record(item.offer, files[item.offer.project]) or [], found))
        whole += right and not half
        now.append(f"{found}{' in part' if half else ''}")
    return (
        f"the installation failed; {whole} of {len(plan.changed)} packages are installed as planned."
        f" There is now: {', '.join(now)}"
    )


@contextlib.contextmanager
def throw_away_cache() -> Iterator[Cache]:
    """Give a cache that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-") as folder:
        yield Cache(Path(folder))
