"""``rocm-wheels index``: static package indexes, made, changed, checked and served."""

from __future__ import annotations

import click

from rocm_wheels.cli.lazy import LazyGroup

_COMMANDS = {
    "build": ("index_change:build", "Write the pages for the wheels in a folder."),
    "add": ("index_change:add", "Add wheels, all or none."),
    "remove": ("index_change:remove", "Take wheels out."),
    "yank": ("index_change:yank", "Yank wheels, with a reason, or take that back."),
    "verify": ("index_verify:verify", "Read an index as pip and uv do, and list what is wrong."),
    "serve": ("index_verify:serve", "Serve an index on this machine, for tests."),
}
_INDEX_HELP = """Static package indexes: PEP 503, 658, 691, 700, 714, variants (PEP 825).

DIR is what a web server gives out: `pip install --index-url https://host/DIR/ torch`. It holds the wheels
(DIR/<project>/), pages for people and installers, METADATA beside each wheel, a page for --find-links
(links.html), and an index for each GPU family (DIR/<family>/: its own wheels and those of DIR itself;
wheels of families have the same names and other bytes, so they never share a page).

What is known of the wheels lies in DIR/.index and need not be uploaded. One writer at a time changes an
index, others wait; to an object store, upload from one place: files first, then pages, root pages last.
"""


@click.group("index", cls=LazyGroup, lazy=_COMMANDS, help=_INDEX_HELP)
def index_group() -> None:
    """Hold the commands about indexes."""
