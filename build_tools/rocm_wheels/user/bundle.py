"""Write a folder from which machines without a network install: every file, an index, a lock, the tool.

| in the folder | what it is |
|---|---|
| ``<gfx>/`` | a package index of the wheels of one kind of machine, under names that pip reads |
| ``tool/`` | wheels of rocm-wheels itself and of what it needs, uv among them |
| ``pylock.toml`` | what belongs to which machine, with digests, for ``rocm-wheels install --lock`` |
| ``SHA256SUMS`` | the digests of all files, for ``sha256sum --check`` |
| ``README.txt`` | the lines that install |

The lock and the digests are written last: a folder without them is not complete. The same command goes on
where it was ended.
"""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.requirements import Requirement

from rocm_wheels import __version__
from rocm_wheels.core import download, errors, extras, log, parallel, process, tables, workspace
from rocm_wheels.core.files import hash_file, link_or_copy, lock_folder, measure_free_space, write_atomically
from rocm_wheels.index import reader, update
from rocm_wheels.user import install, package_offers, plan_install, wheel_cache
from rocm_wheels.user.fleet import FleetMember, FleetRequest, make_lock, name_machines, plan_fleet

_LOCK_FILE, _SUMS_FILE, _README_FILE, _TOOL_FOLDER = "pylock.toml", "SHA256SUMS", "README.txt", "tool"
_STAGING_FOLDER, _HELD_FOLDER = ".staging", ".busy"
_OURS = (_LOCK_FILE, _SUMS_FILE, _README_FILE, _TOOL_FOLDER, _STAGING_FOLDER, _HELD_FOLDER)
_LINKS_PAGE = "links.html"
_JOBS = 2  # files that are hashed side by side


@dataclass(frozen=True)
class Bundle:
    """A folder that was written: how many files and bytes, and the lines that install from it."""

    folder: Path
    files: int
    size: int
    install_lines: tuple[str, ...]


def write_bundle(
    folder: Path,
    fleet: FleetRequest,
    cache: wheel_cache.WheelCache,
    env: Mapping[str, str],
    *,
    now: str,
    with_tool: bool = True,
) -> Bundle:
    """Write a folder for kinds of machine and their Pythons; ``now`` is when its indexes are made.

    Without ``with_tool`` rocm-wheels itself is not in it.

    UsageError for a folder with other files in it; HostError as ``plan_fleet``, and for what cannot be had.
    """
    folder, fleet = folder.absolute(), name_machines(fleet, env)
    names = {words: _name_folder(words) for words in fleet.gfx}
    _require_free_folder(folder, [*_OURS, *names.values()])
    members = plan_fleet(fleet, cache, env)
    pythons = dict.fromkeys(fleet.pythons) if with_tool else ()
    tools = [_plan_tool(fleet.install, python, cache, env) for python in pythons]
    _require_room(folder, [*(member.planned for member in members), *tools])
    folder.mkdir(parents=True, exist_ok=True)
    with lock_folder(
        folder / _HELD_FOLDER,
        purpose=f"writing {folder}",
        tip="wait for the other command",
        error=errors.HostError,
    ):
        for name in (_LOCK_FILE, _SUMS_FILE):
            (folder / name).unlink(missing_ok=True)
        placed = [_place_member(member, folder / names[member.gfx], cache, env, now) for member in members]
        for planned in tools:
            _place_files(planned, folder / _TOOL_FOLDER, cache, env, now)
        if with_tool:
            _place_own_wheel(folder / _TOOL_FOLDER, env, now)
        lines = _list_install_lines(names, placed, with_tool=with_tool)
        write_atomically(
            folder / _README_FILE, "\n".join(["Install from this folder:", "", *lines, ""]).encode()
        )
        paths = {sha256: path.relative_to(folder).as_posix() for path, sha256 in _list_placed(placed)}
        write_atomically(folder / _LOCK_FILE, make_lock(placed, paths).encode())
        shutil.rmtree(folder / _STAGING_FOLDER, ignore_errors=True)
        bundle = _write_sums(folder, lines, dict(_list_placed(placed)))
    shutil.rmtree(folder / _HELD_FOLDER, ignore_errors=True)
    return bundle


def _write_sums(folder: Path, lines: Sequence[str], known_digests: Mapping[Path, str]) -> Bundle:
    """Write the digests of all files, which says that the folder is complete."""
    files = sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and path.name != _SUMS_FILE and _HELD_FOLDER not in path.parts
    )
    digests = parallel.run_in_parallel(
        lambda path: known_digests.get(path) or hash_file(path), files, jobs=_JOBS
    )
    sums = [
        f"{digest}  {path.relative_to(folder).as_posix()}"
        for path, digest in zip(files, digests, strict=True)
    ]
    write_atomically(folder / _SUMS_FILE, "".join(f"{line}\n" for line in sums).encode())
    return Bundle(folder, len(files), sum(path.stat().st_size for path in files), tuple(lines))


def _name_folder(words: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", words).strip("-.") or "machine"


def _require_free_folder(folder: Path, names: Iterable[str]) -> None:
    if folder.exists() and not folder.is_dir():
        raise errors.UsageError(f"--output-dir {folder} is a file", tip="name a folder that is not there yet")
    strangers = {path.name for path in folder.iterdir()} - {*names} if folder.is_dir() else set()
    if strangers:
        raise errors.UsageError(
            f"--output-dir {folder} has other files: {', '.join(sorted(strangers)[:3])}",
            tip="name a folder that is not there yet, or one that the same command has begun",
        )


def _require_room(folder: Path, plans: Sequence[plan_install.PlannedInstall]) -> None:
    sizes = {item.offer.url: item.offer.size or 0 for planned in plans for item in planned.plan.items}
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    free = measure_free_space(existing)
    if sum(sizes.values()) > free:
        raise errors.HostError(
            f"{tables.format_size(sum(sizes.values()))} are to be written to {folder}, which has room for "
            f"{tables.format_size(free)}",
            tip="free some space, name fewer machines, or a folder on another disk",
        )


def _plan_tool(
    request: plan_install.InstallRequest, python: str, cache: wheel_cache.WheelCache, env: Mapping[str, str]
) -> plan_install.PlannedInstall:
    """Plan rocm-wheels itself, and uv, for a Python: from the index of dependencies, or that of torch."""
    index = package_offers.find_dependency_index(request.dependency_index, env)
    if _find_clone() is None:
        packages = [f"rocm-wheels=={__version__}"]
    else:
        stated = map(Requirement, importlib.metadata.requires("rocm-wheels") or ())
        packages = [str(entry) for entry in stated if "extra" not in str(entry.marker)]
    tool = plan_install.InstallRequest(
        packages=(*packages, "uv"),
        index=index,
        dependency_index=index,
        rocm_index=request.index,  # who has wheels of torch may have that of rocm-wheels, too
        gfx=("none",),
        stated_python=python,
        provenance="off",
    )
    try:
        return plan_install.plan_installation(tool, cache, env)
    except errors.HostError as cause:
        raise errors.HostError(
            f"rocm-wheels itself and uv for Python {python} cannot be taken along: {cause.message}",
            tip="--no-tool leaves them out; --index or --dependency-index names an index that has them",
        ) from None


def _find_clone() -> Path | None:
    home = workspace.get_project_home()
    return home if (home / "pyproject.toml").is_file() else None


def _place_own_wheel(folder: Path, env: Mapping[str, str], now: str) -> None:
    """Put rocm-wheels itself there where it is a clone: nobody else has that wheel."""
    clone = _find_clone()
    if clone is None:
        return
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-") as built:
        log.log_note("building the wheel of rocm-wheels")
        process.run_command(
            [str(extras.find_uv()), "build", "--wheel", "--quiet", "--out-dir", built, str(clone)],
            env=env,
            check=errors.HostError,
            description="building the wheel of rocm-wheels",
        )
        update.add_wheels(folder, sorted(Path(built).glob("*.whl")), now=now)


def _place_member(
    member: FleetMember, folder: Path, cache: wheel_cache.WheelCache, env: Mapping[str, str], now: str
) -> FleetMember:
    """Put the wheels of a kind of machine into its index; returns the plan with those wheels."""
    offers = _place_files(member.planned, folder, cache, env, now)
    plan = member.planned.plan
    items = tuple(replace(item, offer=offers[item.offer.project]) for item in plan.items)
    return replace(member, planned=replace(member.planned, plan=replace(plan, items=items)))


def _place_files(
    planned: plan_install.PlannedInstall,
    folder: Path,
    cache: wheel_cache.WheelCache,
    env: Mapping[str, str],
    now: str,
) -> dict[str, package_offers.PackageOffer]:
    """Put the wheels of a plan into an index, under the names of installers; returns them by project."""
    offers = [item.offer for item in planned.plan.items]
    downloads = {
        offer.project: download.DownloadTarget(offer.name, offer.url, offer.sha256, offer.size)
        for offer in offers
    }
    fetched = wheel_cache.download_wheels(list(downloads.values()), cache)
    staging = folder.parent / _STAGING_FOLDER / "files"
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    staged: dict[str, Path] = {}
    digests: dict[
        str, str
    ] = {}  # by file name; of what is written here and of what the download was checked by
    for offer in offers:
        file = fetched[downloads[offer.project]]
        source, wheel = file.path.resolve(), staging / offer.installer_name
        install.require_sound_wheel(offer, source)
        if offer.is_sdist:
            wheel = install.build_sdist(planned, offer, source, staging, env)
            digests[wheel.name] = hash_file(wheel)
        else:
            link_or_copy(source, wheel)
            digests[wheel.name] = file.sha256
        staged[offer.project] = wheel
    update.add_wheels(folder, list(staged.values()), now=now, link=True, digests=digests)
    return {
        offer.project: _make_placed_offer(
            offer, folder / offer.project / staged[offer.project].name, digests[staged[offer.project].name]
        )
        for offer in offers
    }


def _make_placed_offer(
    offer: package_offers.PackageOffer, path: Path, sha256: str
) -> package_offers.PackageOffer:
    """Return a file of a bundle: it has no label any more."""
    return replace(
        offer,
        installer_name=path.name,
        name=path.name,
        url=path.as_uri(),
        sha256=sha256,
        size=path.stat().st_size,
        label=None,
        properties=None,
    )


def _list_placed(members: Sequence[FleetMember]) -> list[tuple[Path, str]]:
    placed = []
    for member in members:
        for offer in member.offers:
            path = reader.path_of_url(offer.url)
            if path is not None and offer.sha256 is not None:
                placed.append((path, offer.sha256))
    return placed


def _list_install_lines(
    names: Mapping[str, str], members: Sequence[FleetMember], *, with_tool: bool
) -> list[str]:
    """Return what to type on a machine: with rocm-wheels, which takes its own share, or with pip alone."""
    tool = f"{_TOOL_FOLDER}/{_LINKS_PAGE}"
    install_tool = f"python3 -m venv rw && rw/bin/pip install --no-index --find-links {tool} uv rocm-wheels"
    front = f"{install_tool} && rw/bin/" if with_tool else ""
    lines = [
        "cd to this folder. rocm-wheels takes what belongs to the machine's GPU and Python:",
        f"  {front}rocm-wheels install --lock {_LOCK_FILE} --venv torch-env",
    ]
    for words, name in names.items():
        plan = next(member.planned.plan for member in members if member.gfx == words)
        packages = [f"'{text}'" for text in plan.requirements]
        lines.append(f"Or pip alone, for {words}:")
        lines.append(f"  pip install --no-index --find-links {name}/{_LINKS_PAGE} {' '.join(packages)}")
    return lines
