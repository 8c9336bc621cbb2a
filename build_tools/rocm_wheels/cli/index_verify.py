"""``rocm-wheels index verify|serve``: look at an index from outside."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rocm_wheels import log
from rocm_wheels.errors import AuditError, UsageError
from rocm_wheels.shell import hide_credentials

if TYPE_CHECKING:
    from rocm_wheels.index.verify import Verified


@click.command("verify")
@click.argument("index", required=False, metavar="DIR|URL")
@click.option("--full", is_flag=True, help="Hash every file: each is read, or downloaded, whole.")
@click.option("--jobs", type=click.IntRange(1, 64), default=8, show_default=True, help="Files at a time.")
@click.option("--retries", type=click.IntRange(0, 20), default=4, show_default=True, help="For servers.")
@click.option(
    "--timeout", type=click.IntRange(1), default=60, show_default=True, metavar="SECONDS", help="For servers."
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option("--list-faults", is_flag=True, help="List what can be found, and leave.")
def verify(  # noqa: PLR0917 - click passes them by name
    index: str | None, full: bool, jobs: int, retries: int, timeout: int, as_json: bool, list_faults: bool
) -> None:
    """Read an index as pip and uv do, and list what is wrong; the exit code is 14 then.

    Every page, link, METADATA and variants.json is looked at; METADATA is compared with that in the wheels
    (on a server by asking for ranges). Files are hashed with --full; in a folder also those that changed
    since they were hashed. Of a folder, the indexes of its families are read too, and every page is compared
    with what would be written.
    """
    from rocm_wheels.index.faults import FAULTS
    from rocm_wheels.index.verify import verify_index

    if list_faults:
        for name, what in FAULTS.items():
            click.echo(f"{name:18} {what}")
        return
    if index is None:
        raise UsageError("no index is named", tip="for example: rocm-wheels index verify DIR")
    found = verify_index(index, full=full, jobs=jobs, retries=retries, timeout=timeout)
    if as_json:
        click.echo(hide_credentials(json.dumps(_as_json(index, found), indent=1)))
    else:
        for one in found.findings:
            click.echo(hide_credentials(f"{one.severity}: {one.fault}: {one.where}: {one.said}"))
        click.echo(hide_credentials(f"{index}: {found.files} files of {found.projects} projects"))
    if found.errors:
        raise AuditError(f"{len(found.errors)} faults in {index}")


def _as_json(index: str, found: Verified) -> dict[str, object]:
    return {
        "index": index,
        "projects": found.projects,
        "files": found.files,
        "passed": not found.errors,
        "findings": [
            {"fault": one.fault, "severity": one.severity, "where": one.where, "what": one.said}
            for one in found.findings
        ],
    }


@click.command("serve")
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    help="Port to listen on; 0: any that is free.",
)
def serve(folder: Path, host: str, port: int) -> None:
    """Serve DIR until interrupted. Only for tests: no encryption, no access control, no limits.

    Answers as a server that chooses between HTML and JSON (PEP 691). For users, any static server will do.
    """
    from rocm_wheels.index.changing import require_index
    from rocm_wheels.index.server import IndexServer

    require_index(folder)
    with IndexServer(folder, host, port) as server:
        click.echo(server.url)
        log.note("only for tests; Ctrl-C ends it")
        with contextlib.suppress(KeyboardInterrupt):  # the way to end it, and no failure
            server.serve_forever()
