"""What choosing comes to: every wheel with its rank or the reason why it is out, and what is taken."""

from __future__ import annotations

from dataclasses import dataclass

from rocm_wheels.gpus.gpu import Gpu
from rocm_wheels.variants.document import Properties


@dataclass(frozen=True)
class ChoiceCandidate:
    """A wheel of an index: ``rank`` is 1 for the best, None for one that this machine cannot use.

    ``sha256`` (hex) and ``size`` (bytes) are None where the index does not say. ``label`` is None for a
    wheel that is no variant. ``reason`` says why it stands where it does, or why it is out. ``yanked`` is
    the reason why it was withdrawn ("" when none is given), None when it was not.
    """

    name: str
    url: str
    sha256: str | None
    size: int | None
    version: str
    label: str | None
    properties: Properties
    rank: int | None
    reason: str
    requires_python: str
    yanked: str | None


@dataclass(frozen=True)
class KnownFeature:
    """What the machine supports of a feature, best first, and who says so; no values: why there are none."""

    namespace: str
    feature: str
    values: tuple[str, ...]
    source: str


@dataclass(frozen=True)
class WheelChoice:
    """What a requirement gets. ``candidates`` are in the order of their ranks, then those that are out.

    ``index`` is the URL of the index, ``layout`` how it serves GPUs: ``variants``, ``multi-arch`` (kernels
    in wheels of their own), ``per-family`` or ``plain``. ``requires`` are the requirements to install with it
    (``torch[device-gfx942]==2.9.1+rocm7.2``). ``served`` tells of every GPU of the machine whether the picked
    wheel has kernels for it (empty: nothing says); when some have none ``make_visible_line`` hides these
    (``HIP_VISIBLE_DEVICES=0``). ``known`` is what the variants were compared with.
    """

    requirement: str
    project: str
    extras: tuple[str, ...]
    index: str
    layout: str
    picked: ChoiceCandidate | None
    candidates: tuple[ChoiceCandidate, ...]
    requires: tuple[str, ...]
    notes: tuple[str, ...]
    served: tuple[tuple[Gpu, bool], ...]
    visible_line: str | None
    known: tuple[KnownFeature, ...] = ()
