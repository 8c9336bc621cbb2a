"""causal-conv1d: setup.py makes one ``--offload-arch`` of a variable; several targets go there by commas."""

from __future__ import annotations

from rocm_wheels.compile import build_request, hooks


def _name_targets(request: build_request.BuildRequest, env: dict[str, str]) -> None:
    """Set what setup.py compiles for; without it, that is the GPU of the builder (``native``)."""
    env["HIP_ARCHITECTURES"] = ",".join(request.targets)


HOOKS = hooks.Hooks(environment=_name_targets)
