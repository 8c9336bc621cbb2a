"""Name the paths of a store: areas and folders, which a configuration can change.

Owns ``data/release_layout.yaml``. What installers and people have seen once stays where it is: a store
keeps one layout for good.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from pydantic import field_validator, model_validator
from pydantic_core import PydanticCustomError

from rocm_wheels.core import records
from rocm_wheels.index import snapshot
from rocm_wheels.models import project_names
from rocm_wheels.wheels import statement

LOCK_FILE = "sources.lock.json"
SET_FILE = "set.json"
Area = Literal["staging", "release"]
SUPPORT_SNAPSHOT = f"support{snapshot.SNAPSHOT_SUFFIX}"
_SUMMARY_FILE = "sets.json"
_STATEMENTS = "provenance"
_NAMES_IN_FAMILY = (
    *("sets", "files", "evidence", "pages", "channels", "views", "support", "public", "log", "pruned"),
)
_PATH_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]*")


class StoreLayout(records.Record):
    """The names: ``staging`` and ``release`` are areas, the others folders of a family.

    ``support`` is a document of a family and one of the whole area, beside which ``public`` lies. Names that
    came later have defaults: a layout that does not know them stays one.
    """

    staging: str
    release: str
    sets: str
    files: str
    evidence: str
    pages: str
    channels: str
    views: str = "by-gfx"
    support: str = "support.json"
    public: str = "public.json"
    log: str = "log"
    pruned: str = "pruned"

    @field_validator("*")
    @classmethod
    def _check_path(cls, value: str) -> str:
        if not all(_PATH_PART.fullmatch(part) for part in value.split("/")):
            raise ValueError("it must be a relative path of plain names")
        return value

    @model_validator(mode="after")
    def _check_distinct(self) -> StoreLayout:
        """A name that a layout leaves out may be one that it gives to something else."""
        names = {name: getattr(self, name) for name in _NAMES_IN_FAMILY}
        for name, value in names.items():
            for other, taken in {**names, "the listing of sets": _SUMMARY_FILE}.items():
                if name != other and f"{value}/".startswith(f"{taken}/"):
                    raise PydanticCustomError(
                        "layout", "{said}", {"said": f"{name} ({value}) is in {other} ({taken}): rename one"}
                    )
        return self


@dataclass(frozen=True)
class FamilyPaths:
    """The paths of one family in one area."""

    layout: StoreLayout
    family: str
    area: Area = "staging"

    @property
    def family_folder(self) -> str:
        """The family's folder in its area."""
        return f"{self.layout.staging if self.area == 'staging' else self.layout.release}/{self.family}"

    @property
    def sets_folder(self) -> str:
        """The folder of all sets."""
        return f"{self.family_folder}/{self.layout.sets}"

    def set_folder(self, set_id: str) -> str:
        """The folder of a set."""
        return f"{self.sets_folder}/{set_id}"

    def set_document(self, set_id: str) -> str:
        """The document of a set, its last file: without it there is no set."""
        return f"{self.set_folder(set_id)}/{SET_FILE}"

    def set_lock(self, set_id: str) -> str:
        """The lock of a set."""
        return f"{self.set_folder(set_id)}/{LOCK_FILE}"

    def set_statement(self, set_id: str, file_name: str) -> str:
        """The statement of a wheel of a set: other sets may have the same wheel with another one."""
        return f"{self.set_folder(set_id)}/{_STATEMENTS}/{file_name}{statement.STATEMENT_SUFFIX}"

    def set_statement_signature(self, set_id: str, file_name: str) -> str:
        """The signature of the statement of a wheel."""
        return f"{self.set_folder(set_id)}/{_STATEMENTS}/{file_name}{statement.STATEMENT_SIGNATURE_SUFFIX}"

    def set_index(self, set_id: str) -> str:
        """The index of a set, which never changes."""
        return f"{self.set_folder(set_id)}/{self.layout.pages}"

    def wheel_file(self, sha256: str, name: str) -> str:
        """The bytes of a wheel, for all sets that hold it."""
        return f"{self.family_folder}/{self.layout.files}/{sha256[:2]}/{sha256}/{name}"

    def offered_statement(self, sha256: str, name: str) -> str:
        """A statement beside a wheel, for installers: that of the first set that has the wheel."""
        return self.wheel_file(sha256, name) + statement.STATEMENT_SUFFIX

    def offered_statement_signature(self, sha256: str, name: str) -> str:
        """The signature of that statement."""
        return self.wheel_file(sha256, name) + statement.STATEMENT_SIGNATURE_SUFFIX

    @property
    def name_claims(self) -> str:
        """The folder that says for each file name which bytes it belongs to."""
        return f"{self.family_folder}/{self.layout.files}/names"

    def name_claim(self, file_name: str) -> str:
        """The document that says which bytes a file name belongs to."""
        return f"{self.name_claims}/{file_name}.sha256"

    def evidence_folder(self, set_id: str) -> str:
        """The folder of what is known of a set: results, one file each."""
        return f"{self.family_folder}/{self.layout.evidence}/{set_id}"

    @property
    def logs_folder(self) -> str:
        """The folder of the logs of all sets."""
        return f"{self.family_folder}/{self.layout.log}"

    def log_folder(self, set_id: str) -> str:
        """The folder of the log of a set: its document and its results, an entry each."""
        return f"{self.logs_folder}/{set_id}"

    def log_entry(self, set_id: str, number: int) -> str:
        """An entry of the log of a set, which names the one before."""
        return f"{self.log_folder(set_id)}/{number:06}.json"

    @property
    def pruned_folder(self) -> str:
        """The folder of the records of sets that were pruned."""
        return f"{self.family_folder}/{self.layout.pruned}"

    def pruned_record(self, set_id: str) -> str:
        """The record of a set that was pruned."""
        return f"{self.pruned_folder}/{set_id}.json"

    @property
    def prune_claim(self) -> str:
        """The document of who prunes the family, while somebody does."""
        return f"{self.pruned_folder}/running.json"

    def channel_pages(self, channel: str) -> str:
        """The index of a channel."""
        return f"{self.family_folder}/{self.layout.pages}/{channel}"

    def channel_document(self, channel: str) -> str:
        """The document that says which set a channel is at."""
        return f"{self.family_folder}/{self.layout.channels}/{channel}.json"

    def build_folder(self, name: str) -> str:
        """The folder in which the pages of an index are built, where all of them change at once."""
        return f"{self.family_folder}/{self.layout.channels}/{name}.pages"

    def view_pages(self, gfx: str, channel: str) -> str:
        """The index of the newest set of a channel that passed on a GPU target, of each platform."""
        return f"{self.family_folder}/{self.layout.views}/{gfx}/{channel}"

    def channel_status(self, channel: str) -> str:
        """The document of what is known of the sets of a channel, and which of them its views show."""
        return f"{self.family_folder}/{self.layout.views}/{channel}.json"

    @property
    def support_document(self) -> str:
        """The document that says for which machines there are wheels."""
        return f"{self.family_folder}/{self.layout.support}"

    def channel_snapshot(self, channel: str) -> str:
        """The signed snapshot of a channel: digests of its pages and documents, a version, and an end."""
        return f"{self.family_folder}/{channel}{snapshot.SNAPSHOT_SUFFIX}"

    @property
    def support_snapshot(self) -> str:
        """The signed snapshot of the document that says for which machines there are wheels."""
        return f"{self.family_folder}/{SUPPORT_SNAPSHOT}"

    @property
    def set_listing(self) -> str:
        """A short listing of all sets, which can be made again at any time."""
        return f"{self.family_folder}/{_SUMMARY_FILE}"


def load_layout(path: Path | None = None) -> StoreLayout:
    """Read a layout (a YAML file), by default our own. Raises DataError with the place of a mistake."""
    return records.load_record(path, StoreLayout) if path is not None else _load_default_layout()


@lru_cache
def _load_default_layout() -> StoreLayout:
    return records.load_record(project_names.get_data_folder() / "release_layout.yaml", StoreLayout)
