"""Make an image of ours: from a Dockerfile whose base is known, and what it copies of the clone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rocm_wheels.ci.containers.engine import Engine
from rocm_wheels.ci.containers.images import ImageRecipe, make_image_recipe, require_resolved_bases
from rocm_wheels.ci.containers.variables import PROXY_VARIABLES
from rocm_wheels.errors import EngineError, UsageError
from rocm_wheels.model.containers import load_container_table
from rocm_wheels.process import run_on_terminal
from rocm_wheels.records import suggest_name
from rocm_wheels.shell import format_command

_IMAGE_DATE = (
    "315532800"  # 1980-01-01, the first that every archive can hold: the date of all files of an image
)


def find_image_recipe(name: str, clone: Path | None, *, allow_unresolved: bool) -> ImageRecipe:
    """Return how an image is made. Raises UsageError for none of ours, DataError for an unknown base."""
    ours = {key: image for key, image in load_container_table().images.items() if image.dockerfile}
    if name not in ours:
        raise UsageError(
            f"{name} is no image of ours{suggest_name(name, ours)}", tip=f"made are: {', '.join(ours)}"
        )
    recipe = make_image_recipe(name, ours[name], clone)
    if not allow_unresolved:
        require_resolved_bases(recipe)
    return recipe


def make_build_argv(engine: Engine, recipe: ImageRecipe, env: Mapping[str, str]) -> list[str]:
    """Return the command. Proxies are named only: their values are in the environment, not in the image."""
    clone = recipe.dockerfile.parent.parent
    proxies = [f"--build-arg={name}" for name in PROXY_VARIABLES if env.get(name)]
    dated = (
        ["--timestamp", _IMAGE_DATE]
        if engine.name == "podman"
        else ["--build-arg", f"SOURCE_DATE_EPOCH={_IMAGE_DATE}"]
    )
    named = ["--file", str(recipe.dockerfile), "--tag", recipe.reference]
    return [engine.program, "build", *named, *dated, *proxies, str(clone)]


def make_image_environment(engine: Engine) -> dict[str, str]:
    """Return the variables of a build: without BuildKit docker knows no ``COPY --chmod``.

    Its default since docker 23; earlier ones must be told, and later ones without the plugin buildx say so.
    """
    return {"DOCKER_BUILDKIT": "1"} if engine.name == "docker" else {}


def format_build_command(engine: Engine, recipe: ImageRecipe, env: Mapping[str, str]) -> str:
    """Return the command for a shell."""
    assignments = [f"{name}={value} " for name, value in make_image_environment(engine).items()]
    return "".join(assignments) + format_command(make_build_argv(engine, recipe, env))


def build_image(engine: Engine, recipe: ImageRecipe, env: Mapping[str, str]) -> None:
    """Build, with the engine's own output. Raises EngineError when it fails."""
    build_env = {**env, **make_image_environment(engine)}
    code = run_on_terminal(
        make_build_argv(engine, recipe, env), env=build_env, stdin=False, error=EngineError
    )
    if code:
        raise EngineError(
            f"{engine.program} could not make {recipe.reference}: exit code {code}",
            tip="what it says is above"
            + ("; without buildx: install docker-buildx" if engine.name == "docker" else ""),
        )
