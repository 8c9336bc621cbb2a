"""``rocm-wheels index serve``: look at an index from outside."""

from __future__ import annotations

from pathlib import Path

import click

from rocm_wheels import log


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
        server.serve_forever()
