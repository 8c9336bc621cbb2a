"""Make an image of ours: from a Dockerfile whose base is known, and what it copies of the clone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rocm_wheels.ci.containers.engine import Engine
from rocm_wheels.ci.containers.images import Recipe, recipe_of, require_resolved
from rocm_wheels.ci.containers.variables import PROXIES
from rocm_wheels.errors import EngineError, UsageError
from rocm_wheels.model.containers import container_table
from rocm_wheels.process import attach
from rocm_wheels.records import did_you_mean
from rocm_wheels.shell import shell_line

_DATE = "315532800"  # 1980-01-01, the first that every archive can hold: the date of all files of an image


def named_recipe(name: str, clone: Path | None, *, allow_unresolved: bool) -> Recipe:
    """Return how an image is made. Raises UsageError for none of ours, DataError for an unknown base."""
    ours = {key: one for key, one in container_table().images.items() if one.dockerfile}
    if name not in ours:
        raise UsageError(
            f"{name} is no image of ours{did_you_mean(name, ours)}", tip=f"made are: {', '.join(ours)}"
        )
    recipe = recipe_of(name, ours[name], clone)
    if not allow_unresolved:
        require_resolved(recipe)
    return recipe


def build_argv(engine: Engine, recipe: Recipe, env: Mapping[str, str]) -> list[str]:
    """Return the command. Proxies are named only: their values are in the environment, not in the image."""
    clone = recipe.dockerfile.parent.parent
    proxies = [f"--build-arg={name}" for name in PROXIES if env.get(name)]
    dated = (
        ["--timestamp", _DATE] if engine.name == "podman" else ["--build-arg", f"SOURCE_DATE_EPOCH={_DATE}"]
    )
    named = ["--file", str(recipe.dockerfile), "--tag", recipe.reference]
    return [engine.program, "build", *named, *dated, *proxies, str(clone)]


def build_environment(engine: Engine) -> dict[str, str]:
    """Return the variables of a build: without BuildKit docker knows no ``COPY --chmod``.

    Its default since docker 23; earlier ones must be told, and later ones without the plugin buildx say so.
    """
    return {"DOCKER_BUILDKIT": "1"} if engine.name == "docker" else {}


def build_line(engine: Engine, recipe: Recipe, env: Mapping[str, str]) -> str:
    """Return the command for a shell."""
    said = [f"{name}={value} " for name, value in build_environment(engine).items()]
    return "".join(said) + shell_line(build_argv(engine, recipe, env))


def build_image(engine: Engine, recipe: Recipe, env: Mapping[str, str]) -> None:
    """Build, with the engine's own output. Raises EngineError when it fails."""
    own = {**env, **build_environment(engine)}
    code = attach(build_argv(engine, recipe, env), env=own, stdin=False, error=EngineError)
    if code:
        raise EngineError(
            f"{engine.program} could not make {recipe.reference}: exit code {code}",
            tip="what it says is above"
            + ("; without buildx: install docker-buildx" if engine.name == "docker" else ""),
        )
