"""Resolve the whole set with uv, against an index that is served on this machine and has only the offers.

uv resolves, also where pip installs: it never downloads a wheel to read its METADATA, its answers are the
same whichever pip an environment has, and both then install exactly the files that it named. Each project
is served from the place that it may come from, one file of a version, without variant labels, with
METADATA to read. Large files are never asked for: what is resolved is downloaded later. What cannot be
looked up is an error (400: no installer asks again), not a project without files.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from rocm_wheels.core import errors, extras, process
from rocm_wheels.index import reader
from rocm_wheels.models.project import is_closed_project
from rocm_wheels.sdk import interpreters
from rocm_wheels.user import installation
from rocm_wheels.user.package_offers import PackageOffer, PackageOffers, explain_refusal, is_rocm_project


@contextmanager
def serve_offers(offers: PackageOffers) -> Iterator[str]:
    """Serve offers while the block runs; gives the URL of the index."""

    class Handler(_OfferHandler):
        package_offers = offers

    with _OfferServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/simple/"
        finally:
            server.shutdown()
            thread.join()


class _OfferServer(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep quiet of an installer that leaves before the end: it has seen enough, or was interrupted."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _OfferHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # headers and body are two writes: the second would wait for an ACK
    package_offers: PackageOffers

    def _handle_get(self) -> None:
        words = [unquote(word) for word in self.path.partition("?")[0].split("/") if word]
        try:
            status, kind, content = self._find_response(words)
        except (errors.RocmWheelsError, OSError, ValueError) as cause:
            self.package_offers.faults.append((words[1] if len(words) > 1 else "", cause))
            status, kind, content = 400, "text/plain", str(cause).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_HEAD = _handle_get  # the names that http.server looks for

    def log_message(self, *_arguments: object) -> None:
        """Keep quiet."""

    def _find_response(self, words: list[str]) -> tuple[int, str, bytes]:
        if len(words) == 2 and words[0] == "simple":
            offers = self.package_offers.list_offers(canonicalize_name(words[1]))
            return (200, "text/html", _render_page(offers)) if offers else (404, "text/plain", b"not offered")
        if len(words) == 3 and words[0] == "files":
            name = words[2].removesuffix(".metadata")
            offer = self.package_offers.find_by_installer_name(words[1], name)
            if offer is not None and words[2].endswith(".metadata"):
                return 200, "text/plain", self.package_offers.read_metadata(offer)
            if offer is not None and offer.source != "installed":
                return 200, "application/octet-stream", self.package_offers.read_content(offer)
        return 404, "text/plain", b"not here"


def _render_page(offers: tuple[PackageOffer, ...]) -> bytes:
    lines = ["<!DOCTYPE html><html><body>"]
    for offer in offers:
        attributes = "" if offer.is_sdist else ' data-core-metadata="true"'
        if offer.requires_python:
            attributes += f' data-requires-python="{escape(offer.requires_python)}"'
        if offer.yanked is not None:
            attributes += f' data-yanked="{escape(offer.yanked)}"'
        url = f"/files/{offer.project}/{quote(offer.installer_name)}"
        lines.append(f'<a href="{url}"{attributes}>{escape(offer.installer_name)}</a><br>')
    return "\n".join([*lines, "</body></html>"]).encode()


_SERVED_URL = re.compile(r"http://127\.0\.0\.1:\d+/\S*")


@dataclass(frozen=True)
class Resolver:
    """Resolves for one environment against the offers that are served at ``url``."""

    offers: PackageOffers
    url: str
    target: installation.InstallTarget
    env: Mapping[str, str]

    def resolve_set(self, requirements: Sequence[str]) -> list[PackageOffer]:
        """Return one file of every project of the set, in the order in which they are installed.

        HostError with the resolver's own reasons when nothing fits together, with what an index failed of, or
        with the project that may not come from where it is.
        """
        resolved = []
        for name, version in self._compile_pins(requirements):
            offer = self.offers.find_version(name, version)
            if offer is None:
                raise errors.HostError(f"the resolver took {name} {version}, which was not offered")
            if offer.source == "dependencies" and (
                why := explain_refusal(offer.installer_name, self.offers.list_requirements(offer))
            ):
                raise errors.HostError(
                    f"{name} {version} of the index of dependencies is refused: {why}",
                    tip="build it against this torch, or name an index that has it with --index",
                )
            resolved.append(offer)
        return _sort_by_requirements(resolved, self.offers, self.target)

    def _compile_pins(self, requirements: Sequence[str]) -> list[tuple[str, str]]:
        with tempfile.TemporaryDirectory(prefix="rocm-wheels-") as folder:
            pins = Path(folder) / "pins.txt"
            pins.write_text(_format_preferred(self.offers), encoding="utf-8")
            words = [str(extras.find_uv()), "pip", "compile", "-", "--output-file", str(pins), "--no-config"]
            words += ["--no-header", "--no-annotate", "--no-cache", "--quiet", "--prerelease", "allow"]
            words += ["--python", str(self.target.runnable_python), "--default-index", self.url]
            if self.target.stated:
                words += ["--python-version", str(self.target.version)]
            try:
                process.capture_output(
                    words,
                    env=make_installer_environment(self.env),
                    cwd=Path(folder),
                    stdin="".join(f"{requirement}\n" for requirement in requirements).encode(),
                    timeout=1800,
                    check=errors.HostError,
                    description="resolving",
                )
            except errors.HostError as cause:
                raise explain_failure(cause, self.offers) from None
            lines = [line.partition("==") for line in pins.read_text(encoding="utf-8").splitlines()]
        return [(canonicalize_name(name), version.split()[0]) for name, _, version in lines if version]


def _format_preferred(offers: PackageOffers) -> str:
    """Return what is installed as an earlier answer of the resolver: what fits of it is taken again."""
    return "".join(f"{name}=={version}\n" for name, version in offers.list_preferred())


def make_installer_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Compose the environment of pip and uv: no option and no index of the user's reaches them.

    A ``PIP_EXTRA_INDEX_URL``, or the same in a configuration file, would mix indexes again. What they ask is
    on this machine, which is no matter for a proxy.
    """
    kept_variables = (
        "PIP_CERT",
        "PIP_CLIENT_CERT",
        "PIP_PROXY",
        "UV_CACHE_DIR",
        "UV_LINK_MODE",
        "UV_CONCURRENT_INSTALLS",
    )
    clean = {
        name: value
        for name, value in interpreters.compose_uv_environment(env).items()
        if not name.startswith(("PIP_", "UV_")) or name in kept_variables
    }
    passing = ",".join(filter(None, [env.get("no_proxy") or env.get("NO_PROXY"), "127.0.0.1"]))
    return {
        **clean,
        "NO_PROXY": passing,
        "no_proxy": passing,
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "UV_HTTP_RETRIES": "0",  # all that they ask is on this machine
        "UV_HTTP_TIMEOUT": "900",  # it waits for pages that are read from elsewhere, with limits of their own
        "UV_NO_CONFIG": "1",
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_NO_PROGRESS": "1",
    }


def explain_failure(
    cause: errors.RocmWheelsError, offers: PackageOffers
) -> errors.HostError | reader.UnreadablePageError:
    """Say what lies behind a resolver's failure."""
    message = _SERVED_URL.sub("the index", str(cause))
    if offers.faults:
        project, fault = offers.faults[0]
        if isinstance(fault, reader.UnreadablePageError):
            return fault  # another try would not change it
        return errors.HostError(
            f"{project} could not be looked up: {fault}",
            tip="without it nothing is resolved, and nothing was installed; run the same command again later",
        )
    missing = [name for name in offers.list_missing_projects() if _is_missing(name, message)]
    if missing and is_closed_project(missing[0]):
        option = "--rocm-index" if is_rocm_project(missing[0]) else "--index"
        return errors.HostError(
            f"{message}\n{missing[0]} holds code for GPUs and is only taken from the index that was chosen,"
            " which has none for this Python and platform",
            tip=f"name an index that has it with {option}",
        )
    if left_out := [name for name in offers.left_out if re.search(rf"\b{re.escape(name)}\b", message)]:
        return errors.HostError(
            f"{message}\nof {left_out[0]} the chosen index has nothing, and only wheels without compiled code"
            " are taken from the index of dependencies: those with are built for another torch",
            tip="name another version of it, or an index that has it with --index",
        )
    return errors.HostError(
        message, tip="name versions that go together, such as 'torch==2.9.*'; or another --index"
    )


def _is_missing(name: str, message: str) -> bool:
    """Tell whether a resolver found nothing of a project; uv says it in two ways, with extras and without."""
    word = re.escape(name)
    return (
        re.search(rf"(?<![\w.-]){word} was not found|no versions? of {word}(?![\w.-])", message) is not None
    )


def _sort_by_requirements(
    resolved: Sequence[PackageOffer], offers: PackageOffers, target: installation.InstallTarget
) -> list[PackageOffer]:
    """Put what others require before them; of a circle, what comes first by name."""
    by_name = {offer.project: offer for offer in resolved}
    ordered: dict[str, PackageOffer] = {}

    def add_offer(offer: PackageOffer, above: frozenset[str]) -> None:
        if offer.project in ordered or offer.project in above:
            return
        for name in list_required_names(offers.list_requirements(offer), target.markers):
            if name in by_name:
                add_offer(by_name[name], above | {offer.project})
        ordered.setdefault(offer.project, offer)

    for offer in sorted(resolved, key=lambda offer: offer.project):
        add_offer(offer, frozenset())
    return list(ordered.values())


def list_required_names(requires: Sequence[str], markers: Mapping[str, str]) -> list[str]:
    """Return the projects that requirements name on this machine, those of extras included."""
    names: list[str] = []
    for text in requires:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue  # the resolver has read it, or has said why not
        if (
            requirement.marker is None
            or "extra" in str(requirement.marker)
            or requirement.marker.evaluate(dict(markers))
        ):
            names.append(canonicalize_name(requirement.name))
    return names
