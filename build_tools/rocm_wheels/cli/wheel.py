"""``targets`` and ``wheel``: finished wheel files listed, retagged and compared."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels.cli import catalogue, command
from rocm_wheels.cli.options import show_activity, wheel_file, wheels_argument
from rocm_wheels.cli.output import format_facts, print_result
from rocm_wheels.core import errors, log, parallel, tables

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rocm_wheels.device_code import code_objects
    from rocm_wheels.wheels import wheel_code
    from rocm_wheels.wheels.edit import WheelEdit

CodeByFile = dict[Path, "wheel_code.FoundDeviceCode"]


@command.command("targets")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@command.option(
    "--details",
    is_flag=True,
    help="Read all code: decompress every bundle, check its hash, compare each code object with the table.",
)
@catalogue.JSON
def targets_command(files: tuple[Path, ...], details: bool, as_json: bool) -> None:
    """List the gfx targets of the device code in FILES.

    A FILE is a wheel, a shared or static library (Linux or Windows), an object file, an offload bundle, a
    code object (.hsaco) or an archive of them (.kpack). A damaged file is reported after the results of the
    others, with the place of the damage; the exit code is 2.

    For compressed bundles it reads their tables, as HIP does; --details and `rocm-wheels audit` read the code
    itself.

    \b
    Examples:
      rocm-wheels targets dist/torch-*.whl
      rocm-wheels targets /opt/rocm/lib/librocblas.so --json --details
    """
    contents, unread = read_targets(files, whole=details)
    if contents:
        document = targets_as_json(contents)
        print_result(document, [] if as_json else [targets_as_table(document)], as_json=as_json)
    if len(unread) == 1:
        raise unread[0]
    if unread:
        for fault in unread:
            log.log_error(errors.explain_error(fault))
        raise errors.DataError(
            f"{len(unread)} of {tables.format_count(len(files), 'file')} could not be read"
        )


def read_targets(
    files: tuple[Path, ...], *, whole: bool = False
) -> tuple[CodeByFile, list[errors.DataError]]:
    """Read each file; return what was found, and why others are not there, are folders or are damaged."""
    from rocm_wheels.wheels import wheel_code

    contents: CodeByFile = {}
    unread: list[errors.DataError] = []
    for path in files:
        try:
            contents[path] = wheel_code.read_device_code(path, whole=whole)
        except errors.DataError as fault:
            unread.append(fault)
    return contents, unread


def targets_as_json(contents: CodeByFile) -> dict[str, Any]:
    """Return what ``--json`` prints. Keys are added in later versions, never renamed.

    ``{"files": [{"file", "targets", "code": [{"member", "targets", "code_objects": [{"target",
    "processor", "features", "kind", "form", "machine", "section", "bundle", "packing", "offset",
    "size"}]}], "elsewhere": [{"member", "archives"}]}], "total": {"targets", "code_objects",
    "bytes"}}``. ``member`` is null when the file is no archive; ``features`` is like ``{"xnack": "-"}``;
    sizes are bytes of plain code; ``archives`` are those of ``FoundDeviceCode.moved_code``. ``form`` and
    ``machine`` are null for what only the table of a compressed bundle was read of.
    """
    from rocm_wheels.device_code import code_objects

    files, everything = [], []
    for path, inside in contents.items():
        items = [item for objects in inside.code.values() for item in objects]
        everything += items
        code = [
            {
                "member": member or None,
                "targets": code_objects.list_code_targets(objects),
                "code_objects": [_object_as_json(item) for item in objects],
            }
            for member, objects in inside.code.items()
            if objects
        ]
        elsewhere = [
            {"member": member or None, "archives": list(archives)}
            for member, archives in inside.moved_code.items()
        ]
        targets = code_objects.list_code_targets(items)
        files.append({"file": str(path), "targets": targets, "code": code, "elsewhere": elsewhere})
    total = {
        "targets": code_objects.list_code_targets(everything),
        "code_objects": len(everything),
        "bytes": sum(item.size for item in everything),
    }
    return {"files": files, "total": total}


def targets_as_table(document: Mapping[str, Any]) -> str:
    """Return what ``targets_as_json`` says: a line a library, grouped by file, and a line with totals."""
    rows = []
    for file in document["files"]:
        cells = {}
        for code in file["code"]:
            objects = code["code_objects"]
            packing = ", ".join(sorted({item["packing"] for item in objects}))
            size = sum(item["size"] for item in objects)
            cells[code["member"] or ""] = (str(len(objects)), packing, f"{size:,}", " ".join(code["targets"]))
        for moved in file["elsewhere"]:
            note = f"device code is in {', '.join(moved['archives'])}"
            cells[moved["member"] or ""] = ("", "", "", note)
        if not cells:
            rows.append((file["file"], "", "", "", "no device code"))
        elif "" in cells:
            rows.append((file["file"], *cells[""]))
        else:
            rows.append((f"{file['file']}:", "", "", "", ""))
            rows += [(f"  {member}", *cells[member]) for member in sorted(cells)]
    head = ("file", "objects", "packing", "bytes", "targets")
    total, targets = document["total"], document["total"]["targets"]
    last = (
        f"total: {tables.format_count(total['code_objects'], 'code object')}, {total['bytes']:,} bytes, "
        f"{tables.format_count(len(targets), 'target')}: {' '.join(targets)}".removesuffix(": ")
    )
    return f"{tables.format_table(head, rows, right=(1, 3), width=tables.get_output_width())}\n{last}"


def _object_as_json(item: code_objects.CodeObject) -> dict[str, Any]:
    target = {"target": str(item.target), "processor": item.target.processor}
    names = ("kind", "form", "machine", "section", "bundle", "packing", "offset", "size")
    features = {"features": dict(item.target.features)}
    return target | features | {name: getattr(item, name) for name in names}


@command.command("wheel show")
@wheels_argument
@catalogue.JSON
def show(wheels: tuple[Path, ...], as_json: bool) -> None:
    """Show name, tags, label, requirements and variant of WHEELs.

    \b
    Examples:
      rocm-wheels wheel show dist/torch-*.whl
    """
    documents = [_wheel_as_json(wheel) for wheel in wheels]
    lines = [line for document in documents for line in format_facts(document)]
    print_result(documents, lines, as_json=as_json)


def _wheel_as_json(wheel: Path) -> dict[str, Any]:
    """Return what ``show`` prints. Keys are added in later versions, never renamed."""
    from rocm_wheels.wheels import dist_info, rewrite

    name = dist_info.parse_wheel_name(wheel.name)
    files = rewrite.read_dist_info_files(wheel)
    metadata = dist_info.parse_metadata(files["METADATA"], name=f"{wheel}: METADATA")
    form = dist_info.parse_wheel_file(files["WHEEL"], name=f"{wheel}: WHEEL")
    variant = files.get("variant.json")
    try:
        document = json.loads(variant) if variant is not None else None
    except (ValueError, RecursionError) as cause:
        raise errors.DataError(f"{wheel}: variant.json is not JSON") from cause
    return {
        "file": str(wheel),
        "name": metadata.name,
        "version": str(metadata.version),
        "build": dist_info.split_wheel_name(wheel.name).build or None,
        "tags": sorted(map(str, name.tags)),
        "label": name.label,
        "size": wheel.stat().st_size,
        "generator": form.generator,
        "requires_python": str(metadata.requires_python),
        "requires": list(metadata.requires_dist),
        "extras": list(metadata.provides_extra),
        "dist_info": sorted(files),
        "variant": document,
    }


@command.command("wheel retag")
@wheels_argument
@catalogue.LOCAL_VERSION.but(
    name="local", metavar="L", help="Local part of the version (rocm7.2.0); '' removes it."
)
@catalogue.BUILD_TAG.but(name="build", help="The build tag, beginning with a digit; '' removes it.")
@command.option("--label", metavar="LABEL", help="The variant label; '' removes it and variant.json.")
@command.option(
    "--add-requirement", "added", multiple=True, metavar="R", help="Add this one, as in Requires-Dist."
)
@command.option(
    "--drop-requirement", "dropped", multiple=True, metavar="NAME", help="Remove all of this project."
)
@catalogue.NEW_WHEELS
def retag(
    wheels: tuple[Path, ...], output_dir: Path | None, dry_run: bool, as_json: bool, **options: Any
) -> None:
    """Rewrite WHEELs under another local version, build tag, label or with other requirements.

    File name, METADATA, WHEEL, folder names and RECORD follow; everything else is copied unchanged. The path
    of each new wheel is printed. `rocm-wheels wheel stamp` makes a variant wheel; --label '' makes it plain
    again, but its pins on sibling wheels stay as the stamp left them: without +rocm7.2.

    \b
    Examples:
      rocm-wheels wheel retag dist/*.whl --local-version rocm7.2.0 --output-dir final
      rocm-wheels wheel retag variants/*.whl --label '' --output-dir plain
    """
    from rocm_wheels.wheels import rewrite, write_together
    from rocm_wheels.wheels.edit import get_edited_name

    edit = _make_edit(**options)
    edits = dict.fromkeys(wheels, edit)
    if edit.label is not None:
        edits = {wheel: _relabel(wheel, edit) for wheel in wheels}
    # what cannot be is told before the first is written
    paths = {wheel: (output_dir or wheel.parent) / get_edited_name(wheel.name, edit) for wheel in wheels}
    rewrite.require_distinct_targets(paths.items())
    for wheel, path in paths.items():
        if path.resolve() == wheel.resolve():
            raise errors.UsageError(f"{wheel} would be replaced", tip="name another folder: --output-dir DIR")

    if not dry_run:
        with write_together.write_together() as batch, show_activity("writing", len(wheels)):

            def write(wheel: Path) -> None:
                rewrite.rewrite_wheel(wheel, batch.find_stage(paths[wheel].parent), edits[wheel])

            parallel.run_in_parallel(write, wheels, jobs=os.cpu_count() or 1)
    print_result({"wheels": list(paths.values())}, paths.values(), as_json=as_json)


def _relabel(wheel: Path, edit: WheelEdit) -> WheelEdit:
    """Return what becomes of a wheel whose label is given or taken away: its variant.json goes with it."""
    from dataclasses import replace

    from rocm_wheels.variants.document import VARIANT_FILE_NAME
    from rocm_wheels.wheels import dist_info, rewrite
    from rocm_wheels.wheels.edit import WheelEdit

    is_stamped = VARIANT_FILE_NAME in rewrite.read_dist_info_files(wheel)
    if not edit.label and not is_stamped and dist_info.parse_wheel_name(wheel.name).label is None:
        raise errors.DataError(f"{wheel} is not a variant wheel: its name has no label")
    if not is_stamped:
        return edit
    if edit.label:
        tip = "`--label ''` takes both away, and `rocm-wheels wheel stamp --label` gives another"
        raise errors.UsageError(f"{wheel}: its {VARIANT_FILE_NAME} names its label, too", tip=tip)
    gives_back = edit == WheelEdit(label="", local=edit.local, step=edit.step)
    return replace(edit, drop=frozenset([VARIANT_FILE_NAME]), undone="stamp" if gives_back else "")


def _make_edit(*, added: tuple[str, ...], dropped: tuple[str, ...], **parts: str | None) -> WheelEdit:
    from dataclasses import replace

    from rocm_wheels.wheels.edit import WheelEdit

    edit = WheelEdit(
        local=parts["local"],
        build=parts["build"],
        label=parts["label"],
        requirements=_make_requirement_change(added, dropped) if added or dropped else None,
    )
    if edit == WheelEdit():
        raise errors.UsageError("nothing is to be changed", tip="for example: --local-version rocm7.2.0")
    return replace(edit, step="retag")


def _make_requirement_change(
    added: tuple[str, ...], dropped: tuple[str, ...]
) -> Callable[[tuple[str, ...]], Sequence[str]]:
    import re

    from packaging.utils import canonicalize_name

    def project(text: str) -> str:  # of any requirement, with markers that packaging cannot read too
        return canonicalize_name(re.match(r"[\w.-]*", text)[0])  # type: ignore[index]

    def change(old: tuple[str, ...]) -> list[str]:
        projects = {text: project(text) for text in old}
        unwanted = {canonicalize_name(name): name for name in dropped}
        if absent := sorted(unwanted.keys() - set(projects.values())):
            has = ", ".join(sorted(set(projects.values()))) or "nothing"
            raise errors.UsageError(
                f"the wheel does not require {', '.join(absent)}", tip=f"it requires {has}"
            )
        remaining = [text for text in old if projects[text] not in unwanted]
        return [*remaining, *(text for text in dict.fromkeys(added) if text not in remaining)]

    return change


@command.command("wheel diff")
@click.argument("old", type=wheel_file)
@click.argument("new", type=wheel_file)
@catalogue.JSON
def diff(old: Path, new: Path, as_json: bool) -> None:
    """Show what differs between two wheels, by sizes and CRCs; only METADATA and RECORD are decompressed.

    For equal wheels nothing is printed, and all lists of --json are empty.

    \b
    Examples:
      rocm-wheels wheel diff old/torch-2.9.whl new/torch-2.9.whl
    """
    from rocm_wheels.wheels.edit import compare_wheels

    difference = compare_wheels(old, new)
    signs = (("-", difference.removed), ("+", difference.added), ("~", difference.changed))
    fields, modes, metadata = difference.fields.items(), difference.modes.items(), difference.metadata.items()
    lines = [f"file name: {name} {before or 'none'} -> {after or 'none'}" for name, (before, after) in fields]
    lines += [f"{sign} {name}" for sign, names in signs for name in names]
    lines += [f"mode: {name} {before} -> {after}" for name, (before, after) in modes]
    for name, (removed, added) in metadata:
        lines += [f"METADATA: -{name}: {value}" for value in removed]
        lines += [f"METADATA: +{name}: {value}" for value in added]
    lines += [f"RECORD: another line for {name}" for name in difference.record]
    lines += ["METADATA: another description"] if difference.description else []
    print_result(difference, lines, as_json=as_json)
    if difference.is_empty and not as_json:
        log.log_note("no difference")
