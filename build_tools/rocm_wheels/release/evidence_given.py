"""What somebody says beside a result: who, on what machine, about which files. And evidence made of both."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from pydantic import ValidationError

from rocm_wheels.errors import DataError, ReleaseError, UsageError
from rocm_wheels.records import say
from rocm_wheels.release.evidence import SKEW, Counts, Evidence, Host, Kind, Outcome
from rocm_wheels.release.gate.needed import digest_of_needs
from rocm_wheels.release.sets import SetDocument

NO_GPU = "none"
_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")
_LINE = 300
_NAMED = 20


@dataclass(frozen=True)
class Given:
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

    def make(
        self,
        kind: Kind,
        counts: Counts,
        hashes: Iterable[str],
        *,
        source: Path,
        tool: str,
        when: datetime | None = None,
        host: str = "",
        gfx: str | None = None,
        outcome: Outcome | None = None,
        detail: str = "",
        failed: Sequence[str] = (),
        selected: str = "",
        digest: str = "",
    ) -> Evidence:
        """Return an evidence. A result that does not say when it was found is as old as its file.

        ``digest`` is the sha256 of a result that does. Raises UsageError where it is said to be younger.
        """
        found = self.when or when or datetime.fromtimestamp(source.stat().st_mtime, timezone.utc)
        if when is not None and found > when + SKEW:
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
                outcome=outcome or counts.outcome(),
                counts=counts,
                tool=as_line(tool),
                host=Host(name=as_line(self.host or host or self.here), kind=as_line(self.host_kind)),
                by=as_line(self.by),
                when=found,
                added=self.added,
                detail=as_line(detail),
                failed=tuple(as_line(name) for name in failed[:_NAMED]),
                log=as_line(self.log),
                source=digest,
                selected=as_line(selected),
                about=digest_of_needs(self.document),
            )
        except ValidationError as wrong:
            raise DataError(f"{source} makes no evidence: {say(wrong, Evidence)}") from None

    def of_the_set(self, named: Mapping[str, str], source: Path) -> list[str]:
        """Return the sha256 of wheels by name, all of which must be in the set as they are.

        Raises ReleaseError for a wheel that is not, or that has other bytes there.
        """
        own = {file.name: file.sha256 for file in self.document.files}
        for name, sha256 in named.items():
            if sha256 in self.document.hashes:
                continue
            if name in own:
                raise ReleaseError(
                    f"{source}: {name} has other bytes than in the set: sha256 {sha256[:12]}…, "
                    f"not {own[name][:12]}…",
                    tip="another build was tested; test the wheels of the set",
                )
            raise ReleaseError(
                f"{source}: {name} is not in {self.document.id}", tip="name the set that it is of"
            )
        return sorted(set(named.values()))

    def hashed_here(self, source: Path, what: str) -> list[str]:
        """Return the sha256 of the wheels that were given, for a result that names none.

        Raises UsageError when none were given.
        """
        if not self.wheels:
            raise UsageError(
                f"{source} is {what}, which does not say by hash which wheels it is about",
                tip="name the wheels that were tested: --wheels DIR",
            )
        return self.of_the_set(self.wheels, source)


def as_line(text: str) -> str:
    """Return text as one line that can be printed, cut where it is long."""
    line = _CONTROL.sub(" ", text).strip()
    return line if len(line) <= _LINE else f"{line[: _LINE - 1]}…"
