"""What the builds of projects download by themselves, from places that no lock names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from rocm_wheels.model.project import Project
from rocm_wheels.pipeline.preflight.subject import BuildFetch, PreflightFinding, PreflightSubject


def list_fetches(
    project: Project, source: Path, env: Mapping[str, str], *, flash_attention: bool
) -> Iterator[BuildFetch]:
    """Yield what the build of a tree downloads; ``env`` is the environment of the build."""
    for download in project.build.downloads:
        if not (source / download.named_in).is_file() or (download.flash_attention and not flash_attention):
            continue
        folder_text = env.get(download.variable or "")
        folder = Path(folder_text) if folder_text else None
        lacks = tuple(name for name in download.contains if folder and not (folder / name).exists())
        yield BuildFetch(project.name, download, folder, lacks)


def check_downloads(subject: PreflightSubject) -> Iterator[PreflightFinding]:
    """Say what is downloaded from where, and with --offline what must lie where instead."""
    for fetch in subject.fetches:
        download, variable = fetch.download, fetch.download.variable
        content = f" (a folder with {', '.join(download.contains)})" if download.contains else ""
        fetched = f"the build of {fetch.project} downloads {download.what} from {download.origin}"
        if fetch.lacks:
            text = f"{variable} is {fetch.folder}, which lacks {', '.join(fetch.lacks)}"
            yield PreflightFinding("error", text, f"unpack {download.what} there: {download.origin}")
        elif fetch.folder is not None:
            continue
        elif not subject.offline:
            tip = f"{variable}=DIR{content} is used instead" if variable else "--offline does without"
            yield PreflightFinding("warning", fetched, tip)
        elif variable is not None:
            tip = f"unpack it on this machine, and set {variable}=DIR{content}"
            yield PreflightFinding("error", f"--offline, but {fetched}", tip)
