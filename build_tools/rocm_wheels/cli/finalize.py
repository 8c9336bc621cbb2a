"""``wheel finalize``: wheels of a release candidate get their final versions."""

from __future__ import annotations

import shlex
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rocm_wheels.cli import catalogue, evidence, options, output
from rocm_wheels.cli.command import command, option
from rocm_wheels.core import errors, files

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rocm_wheels.release import wheel_set
    from rocm_wheels.stores.store import Store

_PUT_BACK_TIP = "a set never changes: put the file back from a copy of the store, or stage the wheels again"


@command("wheel finalize", together=[("--store", "--set")])
@click.argument("wheels", nargs=-1, type=options.wheel_file, metavar="[WHEEL]...")
@catalogue.STORE.but(help="Use the wheels, and the locks, of a set in this store.")
@catalogue.SET.but(help="The set of --store, or how its id begins.")
@option(
    "--to", multiple=True, metavar="PROJECT=V", help="The whole new version, in place of the computed one."
)
@option("--keep", multiple=True, metavar="PROJECT", help="Keep its wheels as they are.")
@catalogue.ROCM.but(
    multiple=True,
    metavar="[OLD=]V",
    help="The final version of their ROCm (7.1.0 for 7.1.0rc1); labels and pins follow.",
)
@catalogue.takes(
    catalogue.OUTPUT_DIR.but(required=True, help="Folder for the wheels, for `set stage`."),
    catalogue.DRY_RUN.but(help="Show what would become of the wheels; write nothing."),
    catalogue.JSON,
)
def finalize_command(  # noqa: PLR0917 - click passes them by name
    wheels: tuple[Path, ...],
    store: str | None,
    set_id: str | None,
    to: tuple[str, ...],
    keep: tuple[str, ...],
    rocm: tuple[str, ...],
    output_dir: Path,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Make wheels with final versions of pre-releases: of WHEELs that belong together, or of a set.

    Every wheel is rewritten, or named with --keep: version, file name, folders, RECORD, pins between the
    wheels, and the versions that its Python files state. Everything else is copied unchanged. The new wheels
    have no evidence: stage them as a new set, and test it.

    \b
    Examples:
      rocm-wheels wheel finalize dist/*.whl --rocm 7.1.0 --output-dir final
      rocm-wheels wheel finalize --store s3://wheels --set 2.9.1-93bf --rocm 7.1.0 --output-dir final
    """
    from rocm_wheels.package import finalize

    if bool(wheels) == bool(store):
        raise errors.UsageError(
            "wheels are named one way: as files, or by --store and --set",
            tip="for example: rocm-wheels wheel finalize dist/*.whl --output-dir final",
        )
    with ExitStack() as stack:
        document, texts = None, dict[Path, str]()
        if store and set_id:
            from rocm_wheels.release import next_step, wheel_set
            from rocm_wheels.sources.lock import format_lock

            opened, document = evidence.open_set(store, set_id)
            for entry in document.locks:
                prefix = f"{entry.digest[:12]}." if len(document.locks) > 1 else ""
                lock = wheel_set.read_set_lock(opened, document, entry)
                texts[output_dir / f"{prefix}sources.lock.json"] = format_lock(lock)
            wheels = stack.enter_context(_open_wheels(opened, document))
        candidates = finalize.read_candidates(wheels)
        planned = finalize.plan_final_wheels(
            candidates, finalize.FinalVersions.parse(candidates, to, keep, rocm)
        )
        if not dry_run:
            finalize.write_final_wheels(planned, output_dir)
            for path, text in texts.items():
                files.write_atomically(path, text)
    lines = []
    for wheel in planned:
        lines.append(f"{wheel.old.path.name} {'stays' if wheel.stays else f'-> {wheel.name}'}")
        lines += [f"  requires {old} -> {new}" for old, new in wheel.requires]
        lines += [f"  {name}" for name in wheel.members]
    stage_command = None
    if store and document and not dry_run:
        words = [word for path in texts for word in ("--lock", str(path))]
        words += ["--family", document.family, "--layout", document.layout]
        line = next_step.CommandWords(store).format_line("set stage", "", *words)
        stage_command = f"{line} {shlex.quote(str(output_dir))}/*.whl"
        lines.append(f"stage them: {stage_command}")
    if dry_run:
        lines.append("dry run: nothing was written")
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
    output.print_result({"wheels": rows, "stage": stage_command}, lines, as_json=as_json)


@contextmanager
def _open_wheels(store: Store, document: wheel_set.SetDocument) -> Iterator[tuple[Path, ...]]:
    """Give the wheels of a set, with their statements, as they lie in its store, or in a copy of it.

    Raises ReleaseError for bytes that are not those of the set.
    """
    from rocm_wheels.release import set_copy, set_statements
    from rocm_wheels.release.store_paths import FamilyPaths
    from rocm_wheels.wheels import statement

    paths = FamilyPaths(document.family)
    with set_copy.open_copy(store, document) as root:
        wheels = []
        for file in document.files:
            path = paths.pool_file(file.sha256, file.name)
            if not (root / path).is_file() or files.hash_file(root / path) != file.sha256:
                raise errors.ReleaseError(f"{store.url_of(path)} is not what was staged", tip=_PUT_BACK_TIP)
            try:
                origin = set_statements.read_stored_origin(store, paths, file)
            except errors.DataError as fault:
                raise errors.ReleaseError(str(fault), tip=_PUT_BACK_TIP) from fault
            if origin is not None and root != store.folder:
                statement.write_statement(root / path, origin.statement, origin.signature)
            wheels.append(root / path)
        yield tuple(wheels)
