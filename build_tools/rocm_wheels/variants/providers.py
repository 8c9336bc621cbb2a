"""Providers that a stamp can name (PEP 850): who reports what a machine supports, and when each may be named.

The one that everybody can have is AMD's rocm-bootstrap: it is on PyPI and theirs. A name that nobody
has registered is never written by default: whoever registers it runs code on every user's machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from rocm_wheels.core import UsageError
from rocm_wheels.gpus import ROCM_VERSIONS
from rocm_wheels.variants.document import GFX_ARCH, ROCM_VERSION, Provider

PROVIDER_NAMES = ("rocm-bootstrap", "own", "static")
ROCM_PROPERTIES = ("bundled", "host")
OWN_PROVIDER_NAME = "rocm-variant-provider"
ROCM_BOOTSTRAP_PROVIDER = Provider(
    requires=("rocm-bootstrap>=0.3,<1",), plugin_api="rocm_bootstrap.variant_provider:AMDVariantPlugin"
)
OWN_PROVIDER = Provider(requires=(f"{OWN_PROVIDER_NAME}>=0.1,<1",), plugin_api="rocm_variant_provider")
UNREGISTERED_PROVIDERS = ("amd-variant-provider",)  # never registered on PyPI (looked up in November 2026)


@dataclass(frozen=True)
class ProviderChoice:
    """What was asked for: ``--provider``, ``--rocm-property`` and the lists that static providers need.

    ``static_targets`` and ``rocm_versions`` are best first, for the whole release; without the latter
    every version that may come is ranked.
    """

    provider: str = "rocm-bootstrap"
    rocm_property: str = "bundled"
    owns_the_name: bool = False
    static_targets: tuple[str, ...] = ()
    rocm_versions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.rocm_property == "host" and self.provider != "own":
            raise UsageError(
                f"--rocm-property host: {self.provider} does not report the ROCm version of a machine",
                tip="--provider own does; a wheel that brings its ROCm wants --rocm-property bundled",
            )
        if self.provider == "own" and not self.owns_the_name:
            raise UsageError(
                f"--provider own names {OWN_PROVIDER_NAME}, which users' installers will download and run",
                tip="publish build_tools/rocm_variant_provider to your index, see to it that nobody else can "
                f"register {OWN_PROVIDER_NAME} where your users look, then say --i-own-the-name",
            )
        if self.provider != "static" and self.static_targets:
            raise UsageError("--static-targets goes with --provider static only")

    @property
    def reports_generics(self) -> bool:
        """Whether ``gfx11_generic`` is a value that this provider knows."""
        return self.provider != "rocm-bootstrap"

    def make_amd_provider(self, targets: Iterable[str]) -> Provider:
        """Return the provider of namespace ``amd``; ``targets`` are those of the wheels of this call."""
        if self.provider == "static":
            values = self.static_targets or tuple(dict.fromkeys(targets))
            if not values:
                raise UsageError(
                    "--provider static lists the targets of the release, and none is known here",
                    tip="say --static-targets gfx942,gfx1100, or --join a wheel that is stamped already",
                )
            return Provider(static_properties={GFX_ARCH: values})
        return OWN_PROVIDER if self.provider == "own" else ROCM_BOOTSTRAP_PROVIDER

    def make_rocm_provider(self) -> Provider:
        """Return the provider of namespace ``rocm``: versions, newest first."""
        # All wheels of a release must list the same versions, and published wheels never change: a list of
        # those there are would shut out next month's wheel. So the default ranks those that may come, too.
        return Provider(static_properties={ROCM_VERSION: self.rocm_versions or ROCM_VERSIONS})


def sort_newest_first(versions: Iterable[str]) -> tuple[str, ...]:
    """Return versions (``7.2``) once each, newest first."""
    return tuple(sorted(set(versions), key=Version, reverse=True))


def parse_minor_version(text: str, *, input_name: str) -> str:
    """Return major.minor of a version; UsageError (``input_name`` names the input) when it has none."""
    try:
        release = Version(text).release
    except InvalidVersion:
        release = ()
    if len(release) < 2:
        raise UsageError(f"{input_name}: {text!r} is not a version like 7.2")
    return f"{release[0]}.{release[1]}"


def parse_versions(text: str, *, input_name: str) -> tuple[str, ...]:
    """Read a list of ROCm versions, newest first; UsageError when one is wrong or there is none."""
    versions = [
        parse_minor_version(word, input_name=input_name) for word in re.split(r"[,;\s]+", text) if word
    ]
    if not versions:
        raise UsageError(f"{input_name} names no version", tip=f"for example: {input_name} 7.2,7.1")
    return sort_newest_first(versions)


def is_unregistered(requirements: Sequence[str]) -> bool:
    """Tell whether a provider's requirements name a project that nobody owns."""
    return any(canonicalize_name(Requirement(text).name) in UNREGISTERED_PROVIDERS for text in requirements)
