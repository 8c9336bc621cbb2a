"""``wheel finalize``: wheels of a release candidate get their final versions."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rocm_wheels.cli import boundary, catalogue, options
from rocm_wheels.cli.command import command, option
from rocm_wheels.core import errors, log, shell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocm_wheels.package import finalize
    from rocm_wheels.release import wheel_set
    from rocm_wheels.release.layout import FamilyPaths
    from rocm_wheels.stores.store import Store

_PUT_BACK_TIP = "a set never changes: put the file back from a copy of the store, or stage the wheels again"


@command("wheel finalize")
@click.argument("wheels", nargs=-1, type=options.wheel_file, metavar="[WHEEL]...")
@option("--store", metavar="STORE", help="Take the wheels, and the locks, of a set in this store.")
@catalogue.takes(catalogue.SET.but(help="The set of --store, or how its id begins."), catalogue.STORE_LAYOUT)
@option(
    "--to", multiple=True, metavar="PROJECT=V", help="The whole new version, where the rule is not meant."
)
@option("--keep", multiple=True, metavar="PROJECT", help="Take its wheels as they are.")
@catalogue.ROCM.but(
    multiple=True,
    metavar="[OLD=]V",
    help="What their ROCm is called now (7.1.0 for 7.1.0rc1): labels and pins follow.",
)
@catalogue.BUILD_TAG.but(
    name="build",
    default="",
    help="Build tag of the new wheels, where an earlier candidate of the same version has their names: 1.",
)
@catalogue.takes(
    catalogue.OUTPUT_DIR.but(required=True, help="Folder for the wheels, for `set stage`."),
    catalogue.REPLACE,
    catalogue.DRY_RUN.but(help="Tell what would become of the wheels; write nothing."),
    catalogue.JSON,
)
def finalize_command(  # noqa: PLR0917 - click passes them by name
    wheels: tuple[Path, ...],
    store: str | None,
    set_id: str | None,
    store_layout: Path | None,
    to: tuple[str, ...],
    keep: tuple[str, ...],
    rocm: tuple[str, ...],
    build: str,
    output_dir: Path,
    replace: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Make wheels with final versions of WHEELs that belong together, or of a set, with pre-releases.

    Every wheel is written anew, or named with --keep: version, file name, folders, RECORD, pins between the
    wheels, and the versions that its Python files state. All else is copied as it is. Nothing is known of the
    new wheels: they are staged as a set of their own, and tested.

    \b
    Examples:
      rocm-wheels wheel finalize dist/*.whl --rocm 7.1.0 --output-dir final
      rocm-wheels wheel finalize --store s3://wheels --set 2.9.1-93bf --rocm 7.1.0 --output-dir final
    """
    from rocm_wheels.package import finalize

    if bool(wheels) == bool(store) or bool(store) != bool(set_id):
        raise errors.UsageError(
            "wheels are named one way: as files, or by --store and --set",
            tip="for example: rocm-wheels wheel finalize dist/*.whl --output-dir final",
        )
    fetched, stage_command = None, ""
    if store and set_id:
        from rocm_wheels.release import wheel_set
        from rocm_wheels.release.layout import FamilyPaths, load_layout
        from rocm_wheels.stores.store import open_existing_store

        opened, layout = open_existing_store(store, boundary.read_environment()), load_layout(store_layout)
        document = wheel_set.find_set(opened, set_id, layout=layout)
        paths = FamilyPaths(layout, document.family)
        fetched = output_dir / f".{document.id}"
        wheels = _fetch_set(opened, paths, document, fetched)
        stage_command = _describe_stage(store, document, output_dir)
    candidates = finalize.read_candidates(wheels)
    planned = finalize.plan_final_wheels(
        candidates, finalize.FinalVersions.parse(candidates, to, keep, rocm, build)
    )
    if not dry_run:
        finalize.write_final_wheels(planned, output_dir, replace=replace)
    if fetched is not None:
        if not dry_run:
            for lock in document.locks:
                (fetched / lock.path).replace(output_dir / lock.path)
        shutil.rmtree(fetched)
        if dry_run and not any(output_dir.iterdir()):
            output_dir.rmdir()
    _print_final(planned, stage_command, dry_run=dry_run, as_json=as_json)


def _fetch_set(
    store: Store, paths: FamilyPaths, document: wheel_set.SetDocument, folder: Path
) -> tuple[Path, ...]:
    """Return the wheels of a set, with their statements, and its locks, in a folder of this machine.

    What is there from a run that was killed is looked at again. Raises ReleaseError for bytes that are not
    those of the set.
    """
    from rocm_wheels.core import files
    from rocm_wheels.package import finalize
    from rocm_wheels.release import set_statements
    from rocm_wheels.wheels import statement

    def fetch(path: str, name: str, sha256: str) -> Path:
        target = folder / name
        if not target.exists() or files.hash_file(target) != sha256:
            target.unlink(missing_ok=True)
            if store.folder is not None and name.endswith(".whl"):
                files.link_or_copy(store.folder / path, target)
            else:
                store.fetch(path, target)
            if files.hash_file(target) != sha256:
                target.unlink()
                raise errors.ReleaseError(f"{store.url_of(path)} is not what was staged", tip=_PUT_BACK_TIP)
        return target

    folder.mkdir(parents=True, exist_ok=True)
    missing = [file for file in document.files if not (folder / file.name).exists()]
    finalize.require_room(folder, 0 if store.folder else sum(file.size for file in missing))
    for lock in document.locks:
        fetch(f"{paths.set_folder(document.id)}/{lock.path}", lock.path, lock.digest)
    wheels = []
    for file in document.files:
        wheels.append(fetch(paths.wheel_file(file.sha256, file.name), file.name, file.sha256))
        try:
            origin = set_statements.read_stored_origin(store, paths, document.id, file)
        except errors.DataError as fault:
            raise errors.ReleaseError(str(fault), tip=_PUT_BACK_TIP) from fault
        if origin is not None:
            statement.write_statement(wheels[-1], origin.statement, origin.signature)
        log.log_note(f"fetched {file.name}")
    return tuple(wheels)


def _describe_stage(store: str, document: wheel_set.SetDocument, folder: Path) -> str:
    """Return the command that makes a set of the new wheels."""
    from packaging.version import Version

    from rocm_wheels.package import finalize
    from rocm_wheels.release import wheel_set

    locks = [word for lock in document.locks for word in ("--lock", str(folder / lock.path))]
    words = ["rocm-wheels", "set", "stage", store, *locks, "--family", document.family]
    words += ["--layout", document.layout, "--rewritten-from", document.id]
    if wheel_set.TORCH_PROJECT not in document.projects:
        words += ["--version", finalize.make_final_version(Version(document.version))]
    return f"{shell.format_command(words)} {shlex.quote(str(folder))}/*.whl"


def _print_final(
    planned: Sequence[finalize.FinalWheel], stage_command: str, *, dry_run: bool, as_json: bool
) -> None:
    rows = [
        {
            "old": wheel.old.path.name,
            "new": wheel.name,
            "versions": [str(wheel.old.version), wheel.version],
            "requires": [list(pair) for pair in wheel.requires],
            "members": list(wheel.members),
            "kept": wheel.stays,
        }
        for wheel in planned
    ]
    lines = []
    for wheel in planned:
        lines.append(f"{wheel.old.path.name} {'stays' if wheel.stays else f'-> {wheel.name}'}")
        lines += [f"  requires {old} -> {new}" for old, new in wheel.requires]
        lines += [f"  {name}" for name in wheel.members]
    if dry_run:
        lines.append("dry run: nothing was written")
    elif stage_command:
        lines.append(f"stage them: {stage_command}")
    options.print_result({"wheels": rows, "stage": stage_command or None}, lines, as_json=as_json)
