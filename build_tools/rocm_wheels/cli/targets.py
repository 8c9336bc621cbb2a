"""``rocm-wheels targets``: which GPUs the device code inside files is for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rocm_wheels.wheels.device_code import CodeObject

Found = dict[Path, "dict[str, list[CodeObject]]"]  # file → member ("" when the file itself) → code objects


@click.command("targets")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@click.option(
    "--json", "as_json", is_flag=True, help="Print the result as JSON, every code object on its own."
)
def command(files: tuple[Path, ...], as_json: bool) -> None:
    """List the gfx targets of the device code in FILES.

    A FILE is a wheel, a shared or static library (Linux or Windows), an object file, an
    offload bundle or a code object (.hsaco). A damaged file ends the command with exit
    code 2 and a message that names the place.
    """
    found = read_targets(files)
    if as_json:
        import json

        click.echo(json.dumps(targets_as_json(found), indent=1))
    else:
        click.echo(targets_as_table(found))


def read_targets(files: tuple[Path, ...]) -> Found:
    """Read each file; DataError for the first that is not there, is a folder or is damaged."""
    from rocm_wheels.wheels.device_code import read_any

    return {path: read_any(path) for path in files}


def targets_as_json(found: Found) -> dict[str, Any]:
    """Return what ``--json`` prints. Keys are added in later versions, never renamed.

    ``{"files": [{"file", "targets", "code": [{"member", "targets", "code_objects": [{"target",
    "processor", "features", "kind", "form", "machine", "section", "bundle", "packing", "offset",
    "size"}]}]}], "total": {"targets", "code_objects", "bytes"}}``. ``member`` is null when the file
    is no archive; ``features`` is like ``{"xnack": "-"}``; sizes are bytes of plain code.
    """
    from rocm_wheels.wheels.device_code import targets_of

    files = []
    for path, members in found.items():
        code = [
            {
                "member": member or None,
                "targets": targets_of(objects),
                "code_objects": [_object_as_json(item) for item in objects],
            }
            for member, objects in members.items()
            if objects
        ]
        files.append({"file": str(path), "targets": targets_of(_all(members)), "code": code})
    everything = [item for members in found.values() for item in _all(members)]
    total = {
        "targets": targets_of(everything),
        "code_objects": len(everything),
        "bytes": sum(item.size for item in everything),
    }
    return {"files": files, "total": total}


def targets_as_table(found: Found) -> str:
    """Return a line a library, grouped by file, and a line with the totals."""
    from rocm_wheels.wheels.device_code import targets_of

    rows = []
    for path, members in found.items():
        if not _all(members):
            rows.append((str(path), "no device code", "", "", ""))
        elif "" in members:
            rows.append((str(path), *_cells(members[""])))
        else:
            rows.append((f"{path}:", "", "", "", ""))
            rows += [(f"  {member}", *_cells(objects)) for member, objects in members.items()]
    everything = [item for members in found.values() for item in _all(members)]
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


def _cells(objects: list[CodeObject]) -> tuple[str, str, str, str]:
    from rocm_wheels.wheels.device_code import targets_of

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


def _all(members: dict[str, list[CodeObject]]) -> list[CodeObject]:
    return [item for objects in members.values() for item in objects]
