"""``rocm-wheels resolve-check``: would pip and uv pick the new build?"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rocm_wheels import log
from rocm_wheels.cli.boundary import read_environment
from rocm_wheels.cli.evidence import describe_origin
from rocm_wheels.errors import AuditError

if TYPE_CHECKING:
    from rocm_wheels.index.expecting import ResolveRequest

_NEW_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
_RESOLVE_HELP = """Find out what pip and uv would pick from INDEX (a folder or URL) and new wheels.

Both run for real, as dry runs, for each requirement and Python. When one does not pick the newest build
the exit code is 14, with the reason. Newest is, of the highest version (local part aside), the build with
the latest date in its version, else the only new one, else what --expect says.

\b
Why this happens (PEP 440): local parts are compared field by field, fields are
split at dots, and a field with a letter in it is text. So rocm7 is above rocm10:
  2.12.0+rocm7.15.0a20260728  is taken before  2.12.0+rocm10.1.0a20260821

\b
Spellings that sort; --version-scheme lists them for the new wheels, and tells
which of them are above all that the index has:
  own-field   +rocm.10.1.0a20260821     in an index that has no +rocm7…
  own-word    +rocmsdk.10.1.0a20260821  above +rocm7… and +rocm10… of before
  date-first  +20260821.rocm10.1.0a…    the latest build, whatever its ROCm
All of them put 10.1.1a… below 10.1.0 (text is below numbers): nightlies and
releases belong in different indexes.
"""


@click.command("resolve-check", help=_RESOLVE_HELP)
@click.argument("index", metavar="INDEX")
@click.argument("new", nargs=-1, required=True, type=_NEW_FILE, metavar="NEW...")
@click.option(
    "--requirement",
    "-r",
    "requirements",
    multiple=True,
    metavar="REQ",
    help="What a user asks for; can be repeated [default: every new distribution, without a version].",
)
@click.option(
    "--python",
    "pythons",
    multiple=True,
    metavar="V",
    help="Python of the user's machine, like 3.12; can be repeated [default: those of the new wheels].",
)
@click.option(
    "--platform",
    type=click.Choice(["linux", "windows"]),
    help="That of the user's machine, x86_64 [default: that of the new wheels].",
)
@click.option("--pre", is_flag=True, help="The user asks for pre-releases too.")
@click.option(
    "--deps", is_flag=True, help="Resolve what the wheels require too, from INDEX and the new wheels alone."
)
@click.option(
    "--expect",
    multiple=True,
    metavar="NAME==VERSION",
    help="What is to be picked of a distribution; can be repeated.",
)
@click.option("--version-scheme", is_flag=True, help="List spellings of the new versions, and which sort.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def resolve_command(  # noqa: PLR0917 - click passes them by name
    index: str,
    new: tuple[Path, ...],
    requirements: tuple[str, ...],
    pythons: tuple[str, ...],
    platform: str | None,
    pre: bool,
    deps: bool,
    expect: tuple[str, ...],
    version_scheme: bool,
    as_json: bool,
) -> None:
    """Ask both, compare, and leave with 14 when the newest build is not what is picked."""
    from rocm_wheels.index.expecting import ResolveRequest, parse_expected_versions
    from rocm_wheels.index.picking import check_picks

    request = ResolveRequest(
        new=new,
        requirements=requirements,
        pythons=pythons,
        platform=platform or "",
        pre=pre,
        deps=deps,
        expect=parse_expected_versions(expect),
    )
    schemes = _list_schemes(index, request) if version_scheme else []
    begun = describe_origin("resolve-check")
    checks = check_picks(index, request, read_environment())
    if as_json:
        document = {"checks": [asdict(check) for check in checks], "schemes": schemes, **begun}
        click.echo(json.dumps(document, indent=1))
    else:
        for check in checks:
            outcome = check.fault or f"takes {check.picked}{check.why and f' ({check.why})'}"
            state = "error: " if check.fault else ""
            click.echo(f"{state}{check.requirement}, Python {check.python}, {check.tool}: {outcome}")
        for row in schemes:
            click.echo(f"{row['scheme']:10} {row['version']}  {row['sorts']}; {row['remark']}")
    for tip in dict.fromkeys(check.tip for check in checks if check.tip):
        log.log_note(f"tip: {tip}")
    failed = sum(bool(check.fault) for check in checks)
    if failed:
        raise AuditError(f"{failed} of {len(checks)} times the newest build was not picked")


def _list_schemes(index: str, request: ResolveRequest) -> list[dict[str, str]]:
    from rocm_wheels.index.entries import parse_file_name
    from rocm_wheels.index.picking import find_candidates
    from rocm_wheels.index.reach import IndexReader, resolve_index_url
    from rocm_wheels.index.spelling import list_spellings

    rows = []
    for name, version in sorted({parse_file_name(path.name)[:2] for path in request.new}):
        others = [
            wheel.version for wheel in find_candidates(resolve_index_url(index), name, (), IndexReader())
        ]
        for spelling in list_spellings(version):
            above = [other for other in others if other.public == version.public and other > spelling.version]
            sorts = f"below {max(above)}" if above else "above all that the index has of this version"
            rows.append(
                {
                    "name": name,
                    "scheme": spelling.scheme,
                    "version": str(spelling.version),
                    "sorts": sorts,
                    "remark": spelling.remark,
                }
            )
    return rows
