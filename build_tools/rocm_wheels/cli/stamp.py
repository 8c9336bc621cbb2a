"""``wheel stamp``: variant wheels from plain ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels.cli import catalogue, command, options
from rocm_wheels.core import log

if TYPE_CHECKING:
    from rocm_wheels.package import variant_stamp
    from rocm_wheels.variants import document

_PROVIDERS = click.Choice(["rocm-bootstrap", "own", "static"])
_PROPERTIES = click.Choice(["bundled", "host"])

_release_options = catalogue.takes(
    command.option(
        "--i-own-the-name",
        is_flag=True,
        help="With --provider own: nobody else can publish rocm-variant-provider where users look.",
    ),
    command.option(
        "--static-targets",
        metavar="LIST",
        help="With --provider static: all targets of the release, best first; by default of these wheels.",
    ),
    command.option(
        "--rocm-versions",
        metavar="LIST",
        help="All ROCm versions that the release will have wheels for; by default `compat show indexes`.",
    ),
    command.option(
        "--join",
        type=options.wheel_file,
        multiple=True,
        help="A stamped wheel or -variants.json of the release: its namespaces and providers are taken over.",
    ),
)
_truth_options = catalogue.takes(
    command.option(
        "--allow-claim", is_flag=True, help="Let a stamp name targets that the wheel has no code for."
    ),
    command.option(
        "--allow-hide", is_flag=True, help="Let a stamp leave out targets that the wheel has code for."
    ),
)


@command.command("wheel stamp")
@options.wheels_argument
@catalogue.GFX.but(
    default="from-wheel",
    show_default=True,
    metavar="LIST|none|from-wheel",
    help="GPU targets: gfx942,gfx1100, none, or what the wheel has device code for.",
)
@command.option(
    "--label", metavar="L", help="Label instead of one made from the properties, like rocm7.2_gfx942."
)
@catalogue.ROCM.but(name="rocm_version", help="ROCm the wheel was made with; by default its metadata tell.")
@command.option(
    "--rocm-property",
    type=_PROPERTIES,
    default="bundled",
    show_default=True,
    help="bundled: the wheel brings or requires its ROCm. host: it needs that version on the machine.",
)
@command.option(
    "--provider", type=_PROVIDERS, default="rocm-bootstrap", show_default=True, help="Who reports the GPUs."
)
@command.option("--null", is_flag=True, help="Stamp as the variant for every machine, without any property.")
@command.option("--keep-local-version", is_flag=True, help="Keep +rocm7.2 or +cpu in the version.")
@_release_options
@_truth_options
@catalogue.NEW_WHEELS
def stamp(  # noqa: PLR0917 - click passes them by name
    wheels: tuple[Path, ...],
    targets: str,
    label: str | None,
    rocm_version: str | None,
    rocm_property: str,
    provider: str,
    null: bool,
    keep_local_version: bool,
    allow_claim: bool,
    allow_hide: bool,
    replace: bool,
    output_dir: Path | None,
    dry_run: bool,
    as_json: bool,
    **release: Any,
) -> None:
    """Make variant wheels (PEP 825) of plain ones.

    Targets are what the tables of the device code say. The wheels themselves stay; all stamps are decided
    before one is there. +rocm7.2 and +cpu leave the version, and the pins on sibling wheels: all variants of
    a release have one version. --replace gives a variant wheel a new stamp, too.

    \b
    Examples:
      rocm-wheels wheel stamp dist/torch-*.whl --output-dir variants
    """
    from rocm_wheels.package import variant_stamp

    request = variant_stamp.StampRequest(
        targets=targets,
        label="null" if null and label is None else label,
        rocm_version=rocm_version,
        choice=_make_choice(provider, rocm_property, release),
        null=null,
        keep_local=keep_local_version,
        allow_claim=allow_claim,
        allow_hide=allow_hide,
        replace=replace,
        joined=_read_release_documents(release["join"]),
    )
    with options.show_activity("stamping", len(wheels)):
        if dry_run:
            done = [
                stamp.describe(stamp.find_target(output_dir))
                for stamp in variant_stamp.plan_stamps(wheels, request)
            ]
        else:
            done = variant_stamp.stamp_wheels(wheels, request, output_dir, replace=replace)
    _print_stamped(done, as_json=as_json)


def _make_choice(provider: str, rocm_property: str, release: dict[str, Any]) -> document.ProviderChoice:
    from rocm_wheels.variants import document
    from rocm_wheels.variants.targets import parse_target_values

    static, versions = release["static_targets"], release["rocm_versions"]
    return document.ProviderChoice(
        provider=provider,
        rocm_property=rocm_property,
        owns_the_name=release["i_own_the_name"],
        static_targets=parse_target_values(static, input_name="--static-targets")
        if static is not None
        else (),
        rocm_versions=document.parse_versions(versions, input_name="--rocm-versions")
        if versions is not None
        else (),
    )


def _read_release_documents(paths: Sequence[Path]) -> variant_stamp.JoinedDocuments:
    from rocm_wheels.package import variant_stamp

    return [(path.name, variant_stamp.read_joined_document(path)) for path in paths]


def _print_stamped(done: Sequence[variant_stamp.StampedWheel], *, as_json: bool) -> None:
    from rocm_wheels.variants import document

    for stamped in done:
        for note in stamped.notes:
            log.log_note(f"{stamped.source.name}: {note}")
        if not as_json:
            click.echo(f"{stamped.path}  {document.describe_properties(stamped.properties)}")
    if as_json:
        click.echo(json.dumps([_stamped_as_json(stamped) for stamped in done], indent=1))


def _stamped_as_json(stamped: variant_stamp.StampedWheel) -> dict[str, object]:
    return {
        "source": str(stamped.source),
        "path": str(stamped.path),
        "label": stamped.label,
        "properties": {
            ns: {f: list(v) for f, v in features.items()} for ns, features in stamped.properties.items()
        },
        "size": stamped.size,
        "notes": list(stamped.notes),
    }
