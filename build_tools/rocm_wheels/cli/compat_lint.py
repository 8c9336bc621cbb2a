"""``rocm-wheels compat lint``: do the compatibility tables fit together."""

from __future__ import annotations

import click

from rocm_wheels import log
from rocm_wheels.errors import AuditError


@click.command("lint")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def lint_command(as_json: bool) -> None:
    """Look for contradictions, unknown names, rows that nothing reaches and facts without a source.

    rocm-bootstrap is asked whether it agrees, where it is installed. Errors end with exit code 14.
    """
    from rocm_wheels.model.compat.lint import lint_tables
    from rocm_wheels.model.compat.targets import import_bootstrap

    findings = lint_tables()
    errors = sum(finding.level == "error" for finding in findings)
    bootstrap_asked = import_bootstrap() is not None
    if as_json:
        import json
        from dataclasses import asdict

        click.echo(
            json.dumps(
                {"findings": [asdict(finding) for finding in findings], "rocm_bootstrap": bootstrap_asked},
                indent=1,
            )
        )
    else:
        for finding in findings:
            click.echo(
                ": ".join(filter(None, (finding.level, finding.table, finding.where, finding.message)))
            )
        if not errors:
            click.echo("the tables fit together" + (", and rocm-bootstrap agrees" if bootstrap_asked else ""))
    if not bootstrap_asked:
        log.log_note("rocm-bootstrap is not installed and was not asked (pip install rocm-bootstrap)")
    if errors:
        raise AuditError(f"{errors} error{'s' if errors > 1 else ''} in the compatibility tables")
