"""Write the statement of a built wheel, which says from what, with what and by whom it was made.

What stands in it names no path, user, machine or secret: people publish it beside the wheel. Of the
environment only those variables count that say what is compiled, and of them those whose values name no
place and no secret; of the others the names alone. What is not known is left out.

Source of the fields: SLSA v1.1, provenance; ``buildType`` is described in docs/pages/how-to/provenance.md.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocm_wheels import __version__
from rocm_wheels.compile import build_trees, variables
from rocm_wheels.core import machine, shell
from rocm_wheels.sdk import resolve_packages

if TYPE_CHECKING:
    from rocm_wheels.pipeline import planner
    from rocm_wheels.pipeline.step_run import StepRun
    from rocm_wheels.wheels import sbom

_BUILD_PACKAGE = "build package "  # begins the inputs of a build that are packages
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLACE = re.compile(r"[/\\~@]")  # a path, a URL, an address
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

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> BuildMoment:
        """Return what the stamp of a build has of it."""
        return cls(**facts["built"])


def format_moment() -> str:
    """Return the time of day as statements have it."""
    return f"{datetime.now(timezone.utc):%Y-%m-%dT%H:%M:%SZ}"


def write_build_statement(
    step_run: StepRun,
    planned: planner.PlannedBuild,
    wheel: Path,
    sha256: str,
    *,
    parts: sbom.WheelParts,
    moment: BuildMoment,
) -> dict[str, Any]:
    """Write the statement of a finished wheel beside it, and return what it says."""
    from rocm_wheels.package.sbom import LOCK_MEMBER
    from rocm_wheels.wheels import rewrite, statement

    lock = rewrite.read_dist_info_files(wheel).get(LOCK_MEMBER)
    lock_digest = "" if lock is None else hashlib.sha256(lock).hexdigest()
    predicate = {
        "buildDefinition": _define_build(step_run, planned, parts, lock_digest),
        "runDetails": _describe_run(step_run.facts.env, moment),
    }
    statement.write_statement(wheel, statement.format_statement(wheel.name, sha256, predicate))
    return predicate


def restore_build_statement(wheel: Path, sha256: str, predicate: Mapping[str, Any]) -> None:
    """Write the statement of a wheel beside it as it was when it was built."""
    from rocm_wheels.wheels import statement

    statement.write_statement(wheel, statement.format_statement(wheel.name, sha256, predicate))


def _define_build(
    step_run: StepRun, planned: planner.PlannedBuild, parts: sbom.WheelParts, lock_digest: str
) -> dict[str, Any]:
    from rocm_wheels.wheels import statement

    request, build = step_run.facts.request, planned.request
    options = {
        "project": build.project.name,
        "platform": build.platform,
        "python": step_run.ready.python_tag,
        "targets": list(parts.targets),
        "rocm": parts.rocm,
        "packaging": request.packaging,
        "release-type": request.release_type,
        "build-number": build.build_number,
        "version-suffix": build.suffix,
        "flash-attention": build.flash_attention,
        "verify": request.verify,
        "lock": {"sha256": lock_digest} if lock_digest else None,
        "installed-rocm": build.sdk.content,
    }
    environment, withheld = select_variables(planned)
    rocm = (
        resolve_packages.read_installed(step_run.ready.environment.prefix / resolve_packages.PACKAGES_NOTE)
        or {}
    )
    return {
        "buildType": statement.BUILD_TYPE,
        "externalParameters": {"command": "rocm-wheels build", **drop_unknown(options)},
        "internalParameters": drop_unknown({"environment": environment, "withheld": withheld}),
        "resolvedDependencies": [
            *map(_describe_source, parts.sources),
            *(
                _add_file_digest(statement.describe_package_dependency(part), rocm.get(part.name))
                for part in parts.packages
            ),
            *_describe_build_packages(planned.inputs, planned.tools),
            *({"name": name, "digest": {"sha256": d}} for name, d in _list_compilers(planned).items()),
            *_describe_image(step_run.facts.env),
        ],
    }


def select_variables(planned: planner.PlannedBuild) -> tuple[dict[str, str], list[str]]:
    """Return the variables that reached the compilers, and the names of those whose values stay here.

    A variable that somebody set for this build alone counts where it is one that builds are known to read.
    """
    environment, withheld = dict[str, str](), list[str]()
    for name in sorted(planned.inputs):
        value = planned.environment.get(name)
        if value is None or not _VARIABLE_NAME.fullmatch(name):
            continue
        chosen = name in planned.request.set_env and name not in planned.request.recipe_variables
        if (chosen and not variables.is_configuration_variable(name, value)) or _is_private(name, value):
            withheld.append(name)
        else:
            environment[name] = value
    return environment, withheld


def drop_unknown(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values without those that say nothing: None, and what is empty."""
    return {name: value for name, value in values.items() if value not in (None, "", [], {})}


def _is_private(name: str, value: str) -> bool:
    return shell.hide_variable_value(name, value) != value or _PLACE.search(value) is not None


def _describe_source(part: sbom.SourcePart) -> dict[str, Any]:
    """Return a repository; its address only where that is a public one, which its purl tells."""
    from rocm_wheels.wheels import sbom

    notes = {"path": part.path, "patches-sha256": part.patches, "changed-tree": part.tree}
    return drop_unknown(
        {
            "name": part.name,
            "uri": sbom.make_repository_url(part),
            "digest": {"gitCommit": part.commit},
            "annotations": drop_unknown(notes),
        }
    )


def _add_file_digest(
    dependency: dict[str, Any], package: resolve_packages.InstalledPackage | None
) -> dict[str, Any]:
    """Return a package as a dependency, with the digest of the file that it was installed from, if known."""
    if package is None or not package.sha256:
        return dependency
    return {**dependency, "digest": {**dependency.get("digest", {}), "sha256": package.sha256}}


def _describe_build_packages(
    inputs: Mapping[str, str], tools: Mapping[str, resolve_packages.InstalledPackage]
) -> list[dict[str, Any]]:
    """Return the packages that the build ran with: their inputs are a version, and how a digest begins.

    ``tools`` are all that are installed, and from which files.
    """
    from rocm_wheels.wheels import sbom, statement

    dependencies = []
    for name, identity in inputs.items():
        if name.startswith(_BUILD_PACKAGE):
            version, _, digest = identity.partition(" ")
            part = sbom.PackagePart(name.removeprefix(_BUILD_PACKAGE), version)
            notes = drop_unknown({"record-sha256-begins": digest})
            dependency = drop_unknown({**statement.describe_package_dependency(part), "annotations": notes})
            dependencies.append(_add_file_digest(dependency, tools.get(part.name)))
    named = {dependency["name"] for dependency in dependencies}
    for name, tool in tools.items():
        if name not in named and tool.version:
            dependency = statement.describe_package_dependency(sbom.PackagePart(name, tool.version))
            dependencies.append(_add_file_digest(dependency, tool))
    return dependencies


def _list_compilers(planned: planner.PlannedBuild) -> Mapping[str, str]:
    return build_trees.hash_compilers(planned.environment)


def _describe_image(env: Mapping[str, str]) -> Sequence[dict[str, Any]]:
    """Return the image of the container that the build is in; the registry may be somebody's own."""
    match = _IMAGE.fullmatch(env.get(machine.IMAGE_VARIABLE, ""))
    if match is None:
        return []
    name = match["name"]
    digest = {"sha256": match["sha256"]} if match["sha256"] else {}
    return [drop_unknown({"name": name, "uri": f"docker:{name}", "digest": digest})]


def _describe_run(env: Mapping[str, str], moment: BuildMoment) -> dict[str, Any]:
    """Return who built: the workflow on GitHub, elsewhere the tool, of which nobody can say whose it was."""
    from rocm_wheels.wheels import statement

    builder, invocation = statement.TOOL_URN, moment.run
    if env.get("GITHUB_ACTIONS") == "true" and env.get("GITHUB_WORKFLOW_REF"):
        server = env.get("GITHUB_SERVER_URL", "https://github.com")
        builder = f"{server}/{env['GITHUB_WORKFLOW_REF']}"
        run, attempt = env.get("GITHUB_RUN_ID", ""), env.get("GITHUB_RUN_ATTEMPT", "1")
        invocation = f"{server}/{env.get('GITHUB_REPOSITORY', '')}/actions/runs/{run}/attempts/{attempt}"
    metadata = {
        "invocationId": invocation,
        "startedOn": moment.started,
        "finishedOn": moment.finished,
    }
    counts = {"hits": moment.hits, "cacheable": moment.cacheable}
    byproducts = [{"name": "compiler-cache", "annotations": counts}] if moment.cacheable else []
    details = {
        "builder": {"id": builder, "version": {"rocm-wheels": __version__}},
        "metadata": drop_unknown(metadata),
    }
    return details | drop_unknown({"byproducts": byproducts})
