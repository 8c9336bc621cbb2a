"""Write the statement of a built wheel, which says from what, with what and by whom it was made.

What stands in it names no path, user, machine or secret: people publish it beside the wheel. Of the
environment only those variables count that say what is compiled, and of them those whose values name no
place and no secret; of the others the names alone. What is not known is left out. All that a build was asked
for is in it, so that ``set reproduce`` can ask for the same again (``release/rebuild.py``).

Source of the fields: SLSA v1.1, provenance; ``buildType`` is described in docs/pages/how-to/provenance.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocm_wheels import __version__
from rocm_wheels.compile import build_trees, variables
from rocm_wheels.core import files, installation, records, shell
from rocm_wheels.models import project_names
from rocm_wheels.sdk import resolve_packages
from rocm_wheels.wheels import sbom, statement

if TYPE_CHECKING:
    from rocm_wheels.pipeline import planner
    from rocm_wheels.pipeline.step_run import StepRun

_BUILD_PACKAGE = "build package "  # begins the inputs of a build that are packages
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLACE = re.compile(r"[/\\~@]")  # a path, a URL, an address
# what options of ``build`` decide, and what stands in the statement by itself
_DECIDED = ("PYTORCH_ROCM_ARCH", "ROCM_HOME", "ROCM_PATH")
_IMAGE = re.compile(r"(?:.*/)?(?P<name>[^/@]+)(?:@sha256:(?P<sha256>[0-9a-f]{64}))?")


@dataclass(frozen=True)
class BuildMoment:
    """When a wheel was built (UTC, ISO 8601), by which run.

    ``hits`` of ``cacheable`` compiles were answered by a compiler cache; 0 of 0: there was none.
    """

    run: str = ""
    started: str = ""
    finished: str = ""
    hits: int = 0
    cacheable: int = 0


def format_moment() -> str:
    """Return the time of day as statements have it."""
    return records.format_moment(datetime.now(timezone.utc))


def describe_build(
    step_run: StepRun, planned: planner.PlannedBuild, parts: sbom.WheelParts, moment: BuildMoment
) -> dict[str, Any]:
    """Return what the statement of a wheel says of its build; its sources and its lock come to it later."""
    request, build = step_run.facts.request, planned.request
    parameters = {
        "command": "rocm-wheels build",
        "project": build.project.name,
        "platform": build.platform,
        "python": step_run.ready.python_tag,
        "targets": list(parts.targets),
        "rocm": parts.rocm,
        "packaging": request.packaging,
        "release-type": request.release_type,
        "build-number": build.build_number,
        "version-suffix": build.suffix,
        "asked-suffix": request.version_suffix,
        "unlisted-targets": request.unlisted_targets or None,
        "flash-attention": build.flash_attention,
        "installed-rocm": build.sdk.content,
        "recipe": {"sha256": files.hash_file(project_names.find_recipes()[build.project.name].path)},
    }
    definition = {
        "buildType": statement.BUILD_TYPE,
        "externalParameters": _drop_unknown(parameters),
        "internalParameters": _select_variables(planned),
        "resolvedDependencies": list(_list_dependencies(step_run, planned, parts)),
    }
    return {"buildDefinition": definition, "runDetails": _describe_run(step_run.facts.env, moment)}


def write_build_statement(
    wheel: Path,
    sha256: str,
    predicate: Mapping[str, Any],
    sources: Sequence[sbom.SourcePart],
    **options: object,
) -> None:
    """Write the statement of a finished wheel beside it.

    ``predicate``: what ``describe_build`` said; ``options``: what was asked for besides.
    """
    definition = predicate["buildDefinition"]
    dependencies = [*map(_describe_source, sources), *definition["resolvedDependencies"]]
    parameters = {**definition["externalParameters"], **_drop_unknown(options)}
    definition = {
        **definition,
        "externalParameters": parameters,
        "resolvedDependencies": dependencies,
    }
    content = statement.format_statement(wheel.name, sha256, {**predicate, "buildDefinition": definition})
    statement.write_statement(wheel, content)


def _drop_unknown(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values without those that say nothing: None, and what is empty."""
    return {name: value for name, value in values.items() if value not in (None, "", [], {})}


def _select_variables(planned: planner.PlannedBuild) -> dict[str, Any]:
    """Return the variables that reached the compilers, and the names of those whose values stay here.

    A variable that somebody set for this build alone counts where it is one that builds are known to read.
    ``shell`` and ``set-env``: those that the user had set for all, and for this project, as they were before
    the build added anything; ``withheld-set``: names of such whose values nobody can set again.
    """
    environment, withheld = dict[str, str](), list[str]()
    asked: dict[str, dict[str, str]] = {"shell": {}, "set-env": {}}
    withheld_set = list[str]()
    own, recipe = planned.request.set_env, planned.request.recipe_variables
    for name in sorted(planned.inputs):
        if (text := planned.environment.get(name)) is None or not _VARIABLE_NAME.fullmatch(name):
            continue
        value = text.replace(f"={planned.request.source}=", "=SOURCE=")  # of -ffile-prefix-map
        is_own = name in own and name not in recipe
        is_unknown = is_own and not variables.is_configuration_variable(name, value)
        if is_unknown or not _is_public(name, value):
            withheld.append(name)
        else:
            environment[name] = value
        given = own.get(name, planned.base.get(name, ""))
        if not given or name in _DECIDED or not value.endswith(given) or (name in recipe and name not in own):
            continue  # what was in the shell and went no further counts for nothing
        if is_unknown or not _is_public(name, given):
            withheld_set.append(name)
        else:
            asked["set-env" if name in own else "shell"][name] = given
    told = {"environment": environment, **asked, "withheld": withheld, "withheld-set": withheld_set}
    return _drop_unknown(told)


def _is_public(name: str, value: str) -> bool:
    """Tell whether a variable names no secret and no place."""
    return shell.hide_variable_value(name, value) == value and not _PLACE.search(value)


def _list_dependencies(
    step_run: StepRun, planned: planner.PlannedBuild, parts: sbom.WheelParts
) -> Iterator[dict[str, Any]]:
    """Yield what went in beside sources: packages of ROCm and of the build, compilers, the image."""
    note = step_run.ready.environment.prefix / resolve_packages.PACKAGES_NOTE
    rocm = resolve_packages.read_installed(note) or {}
    for part in parts.packages:
        yield _describe_package(part, rocm, "rocm")
    named = {part.name for part in parts.packages}
    for name, around in rocm.items():  # of a wheel for all families, too: its build had them around it
        if name not in named and around.version:
            yield _describe_package(sbom.PackagePart(name, around.version), rocm, "rocm")
    # the inputs of a build have of a package its version and how its record's digest begins; the tools are
    # all that are installed, and from which files
    built_with = set()
    for name, identity in planned.inputs.items():
        if name.startswith(_BUILD_PACKAGE):
            version, _, record = identity.partition(" ")
            package = sbom.PackagePart(name.removeprefix(_BUILD_PACKAGE), version)
            described = _describe_package(package, planned.tools, "tools")
            known = {**described.get("annotations", {}), "record-sha256-begins": record}
            yield _drop_unknown({**described, "annotations": _drop_unknown(known)})
            built_with.add(package.name)
    for name, tool in planned.tools.items():
        if name not in built_with and tool.version:
            yield _describe_package(sbom.PackagePart(name, tool.version), planned.tools, "tools")
    version = step_run.facts.python.version
    yield {"name": "python", "uri": f"pkg:generic/python@{version}"}
    for name, sha256 in build_trees.hash_compilers(planned.environment).items():
        yield {"name": name, "digest": {"sha256": sha256}}
    # of the image of a container, the registry may be somebody's own
    if image := _IMAGE.fullmatch(step_run.facts.env.get(installation.IMAGE_VARIABLE, "")):
        digests = _drop_unknown({"sha256": image["sha256"]})
        yield _drop_unknown({"name": image["name"], "uri": f"docker:{image['name']}", "digest": digests})


def _describe_source(source: sbom.SourcePart) -> dict[str, Any]:
    """Return a repository, with its address only where that is a public one, which its purl tells."""
    notes = {"path": source.path, "patches-sha256": source.patches, "changed-tree": source.tree}
    address, digest = sbom.make_repository_url(source), {"gitCommit": source.commit}
    fields = {"name": source.name, "uri": address, "digest": digest, "annotations": _drop_unknown(notes)}
    return _drop_unknown(fields)


def _describe_package(
    part: sbom.PackagePart, installed: Mapping[str, resolve_packages.InstalledPackage], role: str
) -> dict[str, Any]:
    """Return a package as a dependency, with the file that it was installed from and its digest, if known.

    ``role``: what it was installed with, ROCm's packages (``rocm``) or the ``tools`` of the project.
    """
    dependency, file = statement.describe_package_dependency(part), installed.get(part.name)
    if file is None or not file.sha256:
        return dependency
    digest = {**dependency.get("digest", {}), "sha256": file.sha256}
    return {**dependency, "digest": digest, "annotations": {"file": file.file, "installed-with": role}}


def _describe_run(env: Mapping[str, str], moment: BuildMoment) -> dict[str, Any]:
    """Return who built: the workflow on GitHub, elsewhere the tool, of which nobody can say whose it was."""
    builder, invocation = statement.TOOL_URN, moment.run
    if env.get("GITHUB_ACTIONS") == "true" and env.get("GITHUB_WORKFLOW_REF"):
        server = env.get("GITHUB_SERVER_URL", "https://github.com")
        builder = f"{server}/{env['GITHUB_WORKFLOW_REF']}"
        run, attempt = env.get("GITHUB_RUN_ID", ""), env.get("GITHUB_RUN_ATTEMPT", "1")
        invocation = f"{server}/{env.get('GITHUB_REPOSITORY', '')}/actions/runs/{run}/attempts/{attempt}"
    metadata = {"invocationId": invocation, "startedOn": moment.started, "finishedOn": moment.finished}
    counts = {"hits": moment.hits, "cacheable": moment.cacheable}
    byproducts = [{"name": "compiler-cache", "annotations": counts}] if moment.cacheable else []
    tool = {"id": builder, "version": {"rocm-wheels": __version__}}
    return _drop_unknown({"builder": tool, "metadata": _drop_unknown(metadata), "byproducts": byproducts})
