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
    from rocm_wheels.index.verify import VerifiedIndex


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
        for name, description in FAULTS.items():
            click.echo(f"{name:18} {description}")
        return
    if index is None:
        raise UsageError("no index is named", tip="for example: rocm-wheels index verify DIR")
    report = verify_index(index, full=full, jobs=jobs, retries=retries, timeout=timeout)
    if as_json:
        click.echo(hide_credentials(json.dumps(_report_as_json(index, report), indent=1)))
    else:
        for finding in report.findings:
            click.echo(
                hide_credentials(f"{finding.severity}: {finding.fault}: {finding.where}: {finding.detail}")
            )
        click.echo(hide_credentials(f"{index}: {report.files} files of {report.projects} projects"))
    if report.errors:
        raise AuditError(f"{len(report.errors)} faults in {index}")


def _report_as_json(index: str, report: VerifiedIndex) -> dict[str, object]:
    return {
        "index": index,
        "projects": report.projects,
        "files": report.files,
        "passed": not report.errors,
        "findings": [
            {
                "fault": finding.fault,
                "severity": finding.severity,
                "where": finding.where,
                "what": finding.detail,
            }
            for finding in report.findings
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
        log.log_note("only for tests; Ctrl-C ends it")
        with contextlib.suppress(KeyboardInterrupt):  # the way to end it, and no failure
            server.serve_forever()
