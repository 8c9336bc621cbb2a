"""``rocm-wheels targets``: which GPUs the device code inside files is for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels import log
from rocm_wheels.errors import DataError, explain_error

if TYPE_CHECKING:
    from rocm_wheels.wheels.device_code.objects import CodeObject, FoundDeviceCode

CodeByFile = dict[Path, "FoundDeviceCode"]


@click.command("targets")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@click.option(
    "--json", "as_json", is_flag=True, help="Print the result as JSON, every code object on its own."
)
def targets_command(files: tuple[Path, ...], as_json: bool) -> None:
    """List the gfx targets of the device code in FILES.

    A FILE is a wheel, a shared or static library (Linux or Windows), an object file, an
    offload bundle, a code object (.hsaco) or an archive of them (.kpack). A damaged file is reported
    after the result of the others, with the place of the damage; the exit code is 2.
    """
    contents, unread = read_targets(files)
    if as_json and contents:
        import json

        click.echo(json.dumps(targets_as_json(contents), indent=1))
    elif contents:
        click.echo(targets_as_table(contents))
    if len(unread) == 1:
        raise unread[0]
    if unread:
        for fault in unread:
            log.log_error(explain_error(fault))
        raise DataError(f"{len(unread)} of {len(files)} files could not be read")


def read_targets(files: tuple[Path, ...]) -> tuple[CodeByFile, list[DataError]]:
    """Read each file; return what was found, and why others are not there, are folders or are damaged."""
    from rocm_wheels.wheels.device_code.objects import read_device_code

    contents: CodeByFile = {}
    unread: list[DataError] = []
    for path in files:
        try:
            contents[path] = read_device_code(path)
        except DataError as fault:
            unread.append(fault)
    return contents, unread


def targets_as_json(contents: CodeByFile) -> dict[str, Any]:
    """Return what ``--json`` prints. Keys are added in later versions, never renamed.

    ``{"files": [{"file", "targets", "code": [{"member", "targets", "code_objects": [{"target",
    "processor", "features", "kind", "form", "machine", "section", "bundle", "packing", "offset",
    "size"}]}], "elsewhere": [{"member", "archives"}]}], "total": {"targets", "code_objects",
    "bytes"}}``. ``member`` is null when the file is no archive; ``features`` is like ``{"xnack": "-"}``;
    sizes are bytes of plain code; ``archives`` are those of ``FoundDeviceCode.moved_code``.
    """
    from rocm_wheels.wheels.device_code.objects import list_code_targets

    files = []
    for path, inside in contents.items():
        code = [
            {
                "member": member or None,
                "targets": list_code_targets(objects),
                "code_objects": [_object_as_json(item) for item in objects],
            }
            for member, objects in inside.code.items()
            if objects
        ]
        elsewhere = [
            {"member": member or None, "archives": list(archives)}
            for member, archives in inside.moved_code.items()
        ]
        targets = list_code_targets(_list_objects(inside))
        files.append({"file": str(path), "targets": targets, "code": code, "elsewhere": elsewhere})
    everything = [item for inside in contents.values() for item in _list_objects(inside)]
    total = {
        "targets": list_code_targets(everything),
        "code_objects": len(everything),
        "bytes": sum(item.size for item in everything),
    }
    return {"files": files, "total": total}


def targets_as_table(contents: CodeByFile) -> str:
    """Return a line a library, grouped by file, and a line with the totals."""
    from rocm_wheels.wheels.device_code.objects import list_code_targets

    rows = []
    for path, inside in contents.items():
        cells = {member: _summarize_objects(objects) for member, objects in inside.code.items() if objects}
        cells |= {
            member: (_describe_archives(archives), "", "", "")
            for member, archives in inside.moved_code.items()
        }
        if not cells:
            rows.append((str(path), "no device code", "", "", ""))
        elif "" in cells:
            rows.append((str(path), *cells[""]))
        else:
            rows.append((f"{path}:", "", "", "", ""))
            rows += [(f"  {member}", *cells[member]) for member in sorted(cells)]
    everything = [item for inside in contents.values() for item in _list_objects(inside)]
    head = ("file", "objects", "packing", "bytes", "targets")
    widths = [max(len(row[i]) for row in [head, *rows] if i == 0 or row[4]) for i in range(4)]
    lines = [_align_row(row, widths) for row in [head, *rows]]
    targets = list_code_targets(everything)
    lines.append(
        f"total: {len(everything)} code objects, {sum(item.size for item in everything):,} bytes, "
        f"{len(targets)} targets: {' '.join(targets)}".removesuffix(": ")
    )
    return "\n".join(lines)


def _align_row(row: tuple[str, ...], widths: list[int]) -> str:
    name, count, packing, size, targets = row
    cells = [name.ljust(widths[0]), count.rjust(widths[1]), packing.ljust(widths[2]), size.rjust(widths[3])]
    return "  ".join([*cells, targets]).rstrip()


def _describe_archives(archives: tuple[str, ...]) -> str:
    return f"device code is in {', '.join(archives)}"


def _summarize_objects(objects: list[CodeObject]) -> tuple[str, str, str, str]:
    from rocm_wheels.wheels.device_code.objects import list_code_targets

    packing = ", ".join(sorted({item.packing for item in objects}))
    return (
        str(len(objects)),
        packing,
        f"{sum(item.size for item in objects):,}",
        " ".join(list_code_targets(objects)),
    )


def _object_as_json(item: CodeObject) -> dict[str, Any]:
    return {
        "target": str(item.target),
        "processor": item.target.processor,
        "features": dict(item.target.features),
        "kind": item.kind,
        "form": item.form,
        "machine": item.machine,
        "section": item.section,
        "bundle": item.bundle,
        "packing": item.packing,
        "offset": item.offset,
        "size": item.size,
    }


def _list_objects(inside: FoundDeviceCode) -> list[CodeObject]:
    return [item for objects in inside.code.values() for item in objects]
