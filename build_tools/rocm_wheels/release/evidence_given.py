"""What somebody says beside a result: who, on what machine, about which files. And evidence made of both."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from pydantic import ValidationError

from rocm_wheels.errors import DataError, ReleaseError, UsageError
from rocm_wheels.records import summarize_faults
from rocm_wheels.release.evidence import (
    CLOCK_SKEW,
    OutcomeCounts,
    Evidence,
    EvidenceHost,
    EvidenceKind,
    EvidenceOutcome,
)
from rocm_wheels.release.gate.needed import compute_needs_digest
from rocm_wheels.release.sets import SetDocument

NO_GPU_WORD = "none"
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f]+")
_LONGEST_LINE = 300
_MOST_FAILED_NAMED = 20


@dataclass(frozen=True)
class EvidenceSubmission:
    """What is said beside a result. ``wheels`` are the sha256 of files that were hashed here, by name.

    What is None or "" is taken from the result (``gfx``: a target, or NO_GPU); ``here`` is this machine's
    name, for results that name none. ``reports`` is how many JUnit reports there must be.
    """

    document: SetDocument
    by: str
    added: datetime
    here: str
    wheels: Mapping[str, str] = field(default_factory=dict)
    gfx: str | None = None
    host: str = ""
    host_kind: str = "any"
    when: datetime | None = None
    log: str = ""
    reports: int | None = None

    def make_evidence(
        self,
        kind: EvidenceKind,
        counts: OutcomeCounts,
        hashes: Iterable[str],
        *,
        source: Path,
        tool: str,
        when: datetime | None = None,
        host: str = "",
        gfx: str | None = None,
        outcome: EvidenceOutcome | None = None,
        detail: str = "",
        failed: Sequence[str] = (),
        selected: str = "",
        digest: str = "",
    ) -> Evidence:
        """Return an evidence. A result that does not say when it was found is as old as its file.

        ``digest`` is the sha256 of a result that does. Raises UsageError where it is said to be younger.
        """
        found_at = self.when or when or datetime.fromtimestamp(source.stat().st_mtime, timezone.utc)
        if when is not None and found_at > when + CLOCK_SKEW:
            raise UsageError(
                f"{source} says that it was found at {when.astimezone(timezone.utc):%Y-%m-%d %H:%M} UTC, "
                f"and --when says later: no result becomes younger",
                tip="run it again where it is too old; with a clock that is right, where that was wrong",
            )
        try:
            return Evidence(
                kind=kind,
                set=self.document.id,
                hashes=tuple(sorted(set(hashes))),
                gfx=gfx,
                outcome=outcome or counts.decide_outcome(),
                counts=counts,
                tool=make_printable_line(tool),
                host=EvidenceHost(
                    name=make_printable_line(self.host or host or self.here),
                    kind=make_printable_line(self.host_kind),
                ),
                by=make_printable_line(self.by),
                when=found_at,
                added=self.added,
                detail=make_printable_line(detail),
                failed=tuple(make_printable_line(name) for name in failed[:_MOST_FAILED_NAMED]),
                log=make_printable_line(self.log),
                source=digest,
                selected=make_printable_line(selected),
                about=compute_needs_digest(self.document),
            )
        except ValidationError as wrong:
            raise DataError(f"{source} makes no evidence: {summarize_faults(wrong, Evidence)}") from None

    def require_set_hashes(self, wheels_by_name: Mapping[str, str], source: Path) -> list[str]:
        """Return the sha256 of wheels by name, all of which must be in the set as they are.

        Raises ReleaseError for a wheel that is not, or that has other bytes there.
        """
        sha256_by_name = {file.name: file.sha256 for file in self.document.files}
        for name, sha256 in wheels_by_name.items():
            if sha256 in self.document.hashes:
                continue
            if name in sha256_by_name:
                raise ReleaseError(
                    f"{source}: {name} has other bytes than in the set: sha256 {sha256[:12]}…, "
                    f"not {sha256_by_name[name][:12]}…",
                    tip="another build was tested; test the wheels of the set",
                )
            raise ReleaseError(
                f"{source}: {name} is not in {self.document.id}", tip="name the set that it is of"
            )
        return sorted(set(wheels_by_name.values()))

    def require_given_hashes(self, source: Path, result_kind: str) -> list[str]:
        """Return the sha256 of the wheels that were given, for a result that names none.

        Raises UsageError when none were given.
        """
        if not self.wheels:
            raise UsageError(
                f"{source} is {result_kind}, which does not say by hash which wheels it is about",
                tip="name the wheels that were tested: --wheels DIR",
            )
        return self.require_set_hashes(self.wheels, source)


def make_printable_line(text: str) -> str:
    """Return text as one line that can be printed, cut where it is long."""
    line = _CONTROL_CHARACTERS.sub(" ", text).strip()
    return line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE - 1]}…"
