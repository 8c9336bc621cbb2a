"""``rocm-wheels targets``: which GPUs the device code inside files is for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels import log
from rocm_wheels.errors import DataError, explain

if TYPE_CHECKING:
    from rocm_wheels.wheels.device_code.objects import CodeObject, DeviceCode

Found = dict[Path, "DeviceCode"]


@click.command("targets")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@click.option(
    "--json", "as_json", is_flag=True, help="Print the result as JSON, every code object on its own."
)
def command(files: tuple[Path, ...], as_json: bool) -> None:
    """List the gfx targets of the device code in FILES.

    A FILE is a wheel, a shared or static library (Linux or Windows), an object file, an
    offload bundle, a code object (.hsaco) or an archive of them (.kpack). A damaged file is reported
    after the result of the others, with the place of the damage; the exit code is 2.
    """
    found, unread = read_targets(files)
    if as_json and found:
        import json

        click.echo(json.dumps(targets_as_json(found), indent=1))
    elif found:
        click.echo(targets_as_table(found))
    if len(unread) == 1:
        raise unread[0]
    if unread:
        for fault in unread:
            log.error(explain(fault))
        raise DataError(f"{len(unread)} of {len(files)} files could not be read")


def read_targets(files: tuple[Path, ...]) -> tuple[Found, list[DataError]]:
    """Read each file; return what was found, and why others are not there, are folders or are damaged."""
    from rocm_wheels.wheels.device_code.objects import read_any

    found: Found = {}
    unread: list[DataError] = []
    for path in files:
        try:
            found[path] = read_any(path)
        except DataError as fault:
            unread.append(fault)
    return found, unread


def targets_as_json(found: Found) -> dict[str, Any]:
    """Return what ``--json`` prints. Keys are added in later versions, never renamed.

    ``{"files": [{"file", "targets", "code": [{"member", "targets", "code_objects": [{"target",
    "processor", "features", "kind", "form", "machine", "section", "bundle", "packing", "offset",
    "size"}]}], "elsewhere": [{"member", "archives"}]}], "total": {"targets", "code_objects",
    "bytes"}}``. ``member`` is null when the file is no archive; ``features`` is like ``{"xnack": "-"}``;
    sizes are bytes of plain code; ``archives`` are those of ``DeviceCode.elsewhere``.
    """
    from rocm_wheels.wheels.device_code.objects import targets_of

    files = []
    for path, inside in found.items():
        code = [
            {
                "member": member or None,
                "targets": targets_of(objects),
                "code_objects": [_object_as_json(item) for item in objects],
            }
            for member, objects in inside.code.items()
            if objects
        ]
        elsewhere = [
            {"member": member or None, "archives": list(archives)}
            for member, archives in inside.elsewhere.items()
        ]
        targets = targets_of(_all(inside))
        files.append({"file": str(path), "targets": targets, "code": code, "elsewhere": elsewhere})
    everything = [item for inside in found.values() for item in _all(inside)]
    total = {
        "targets": targets_of(everything),
        "code_objects": len(everything),
        "bytes": sum(item.size for item in everything),
    }
    return {"files": files, "total": total}


def targets_as_table(found: Found) -> str:
    """Return a line a library, grouped by file, and a line with the totals."""
    from rocm_wheels.wheels.device_code.objects import targets_of

    rows = []
    for path, inside in found.items():
        cells = {member: _cells(objects) for member, objects in inside.code.items() if objects}
        cells |= {member: (_where(archives), "", "", "") for member, archives in inside.elsewhere.items()}
        if not cells:
            rows.append((str(path), "no device code", "", "", ""))
        elif "" in cells:
            rows.append((str(path), *cells[""]))
        else:
            rows.append((f"{path}:", "", "", "", ""))
            rows += [(f"  {member}", *cells[member]) for member in sorted(cells)]
    everything = [item for inside in found.values() for item in _all(inside)]
    head = ("file", "objects", "packing", "bytes", "targets")
    widths = [max(len(row[i]) for row in [head, *rows] if i == 0 or row[4]) for i in range(4)]
    lines = [_align(row, widths) for row in [head, *rows]]
    targets = targets_of(everything)
    lines.append(
        f"total: {len(everything)} code objects, {sum(item.size for item in everything):,} bytes, "
        f"{len(targets)} targets: {' '.join(targets)}".removesuffix(": ")
    )
    return "\n".join(lines)


def _align(row: tuple[str, ...], widths: list[int]) -> str:
    name, count, packing, size, targets = row
    cells = [name.ljust(widths[0]), count.rjust(widths[1]), packing.ljust(widths[2]), size.rjust(widths[3])]
    return "  ".join([*cells, targets]).rstrip()


def _where(archives: tuple[str, ...]) -> str:
    return f"device code is in {', '.join(archives)}"


def _cells(objects: list[CodeObject]) -> tuple[str, str, str, str]:
    from rocm_wheels.wheels.device_code.objects import targets_of

    packing = ", ".join(sorted({item.packing for item in objects}))
    return (
        str(len(objects)),
        packing,
        f"{sum(item.size for item in objects):,}",
        " ".join(targets_of(objects)),
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


def _all(inside: DeviceCode) -> list[CodeObject]:
    return [item for objects in inside.code.values() for item in objects]
