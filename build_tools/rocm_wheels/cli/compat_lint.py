"""``rocm-wheels compat lint``: do the compatibility tables fit together."""

from __future__ import annotations

import click

from rocm_wheels import log
from rocm_wheels.errors import AuditError


@click.command("lint")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def command(as_json: bool) -> None:
    """Look for contradictions, unknown names, rows that nothing reaches and facts without a source.

    rocm-bootstrap is asked whether it agrees, where it is installed. Errors end with exit code 14.
    """
    from rocm_wheels.model.compat.lint import lint
    from rocm_wheels.model.compat.targets import bootstrap

    found = lint()
    errors = sum(one.level == "error" for one in found)
    asked = bootstrap() is not None
    if as_json:
        import json
        from dataclasses import asdict

        click.echo(
            json.dumps({"findings": [asdict(one) for one in found], "rocm_bootstrap": asked}, indent=1)
        )
    else:
        for one in found:
            click.echo(": ".join(filter(None, (one.level, one.table, one.where, one.message))))
        if not errors:
            click.echo("the tables fit together" + (", and rocm-bootstrap agrees" if asked else ""))
    if not asked:
        log.note("rocm-bootstrap is not installed and was not asked (pip install rocm-bootstrap)")
    if errors:
        raise AuditError(f"{errors} error{'s' if errors > 1 else ''} in the compatibility tables")
