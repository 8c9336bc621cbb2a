"""Name the files of a store. There are five kinds, below a folder for each GPU family (``multi-arch`` too).

| path | what | who changes it |
|---|---|---|
| ``files/<sha256>/NAME`` | wheels, with METADATA and statement beside them; locks | created once |
| ``sets/ID/set.json`` | which files a set has | created once |
| ``evidence/ID/….json`` | results about a set | created once |
| ``channels/NAME.json`` | which sets a channel shows | compare-and-swap |
| ``simple/``, ``by-gfx/``, ``sets/ID/simple/``, ``support.json`` | what follows | written again |
| ``sets/ID/selectors/`` | what follows, and is in lock files | with the set alone |

Beside the families lies a ``support.json`` for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from rocm_wheels.index.manifest import MANIFEST_SUFFIX

LOCK_FILE = "sources.lock.json"
SET_FILE = "set.json"
SUPPORT_FILE = "support.json"


@dataclass(frozen=True)
class FamilyPaths:
    """The paths of one family."""

    family: str

    @property
    def sets_folder(self) -> str:
        """The folder of all sets."""
        return f"{self.family}/sets"

    def set_folder(self, set_id: str) -> str:
        """The folder of a set: its document, and its pages."""
        return f"{self.sets_folder}/{set_id}"

    def set_document(self, set_id: str) -> str:
        """The document of a set: without it there is no set."""
        return f"{self.set_folder(set_id)}/{SET_FILE}"

    def set_index(self, set_id: str) -> str:
        """The index of a set alone, which never changes."""
        return f"{self.set_folder(set_id)}/simple"

    def selectors_folder(self, set_id: str) -> str:
        """The device selectors that views list for wheels of a set: they stay, for lock files name them."""
        return f"{self.set_folder(set_id)}/selectors"

    @property
    def pool(self) -> str:
        """The folder of all files that sets name."""
        return f"{self.family}/files"

    def pool_file(self, sha256: str, name: str) -> str:
        """The place of a wheel (what belongs to it is beside it) or lock, for all sets that have it."""
        return f"{self.pool}/{sha256}/{name}"

    def lock_file(self, digest: str) -> str:
        """The place of a lock."""
        return self.pool_file(digest, LOCK_FILE)

    def evidence_folder(self, set_id: str = "") -> str:
        """The folder of the results about a set, or about all of them."""
        return f"{self.family}/evidence/{set_id}".rstrip("/")

    def channel_document(self, channel: str) -> str:
        """The document that says which sets a channel shows."""
        return f"{self.family}/channels/{channel}.json"

    def channel_pages(self, channel: str) -> str:
        """The index of a channel."""
        return f"{self.family}/simple/{channel}"

    def channel_manifest(self, channel: str) -> str:
        """The signed list of the pages of a channel and of its views."""
        return f"{self.family}/{channel}{MANIFEST_SUFFIX}"

    @property
    def views_folder(self) -> str:
        """The folder of the views, by their names."""
        return f"{self.family}/by-gfx"

    def view_pages(self, view: str, channel: str) -> str:
        """The index of the newest set of a channel, of each platform, that passed on the targets of a view.

        The view is called as its target is, or as the policy calls a list of them.
        """
        return f"{self.views_folder}/{view}/{channel}"

    @property
    def support_document(self) -> str:
        """The document that says for which machines there are wheels, and what is known of sets."""
        return f"{self.family}/{SUPPORT_FILE}"
