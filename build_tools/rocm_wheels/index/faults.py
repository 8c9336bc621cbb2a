"""What can be wrong with an index, by name."""

from __future__ import annotations

from dataclasses import dataclass

# name: what it means for those who install
FAULTS = {
    "broken-link": "a link or page leads to nothing",
    "forbidden": "the server says 403 for what is not there: uv ends there instead of looking on",
    "wrong-type": "a page comes with a content type that installers do not read",
    "bad-page": "a page cannot be read, or lacks what its version of the API asks for",
    "not-normalized": "a project is not linked by its normalized name and a slash: it is not found",
    "wrong-page": "a wheel is on the page of another project",
    "bad-name": "a linked file has a name that no installer reads",
    "unescaped-plus": "a link has a bare +, which object stores read as a space",
    "no-hash": "a link has no sha256: nothing shows a damaged or replaced file",
    "wrong-hash": "a file has another sha256 than its link says",
    "wrong-size": "a file has another size than the page says",
    "no-metadata": "no METADATA is offered: resolving downloads the whole wheel",
    "missing-metadata": "METADATA is offered and is not there: pip ends with an error",
    "wrong-metadata": "METADATA is not that of the wheel, or has another sha256 than the link says",
    "requires-python": "the link says nothing or something else about Pythons than the wheel",
    "bad-wheel": "the wheel cannot be read, or is not what its name says",
    "no-ranges": "a wheel cannot be read in parts: resolving without METADATA downloads all of it",
    "missing-variants": "variant wheels without a variants.json on their page: they are never chosen",
    "wrong-variants": "variants.json is not what the wheels say, or has another sha256 than its link",
    "variants-entry": "the entry of a variants.json has keys that are only for wheels (PEP 825)",
    "forms-differ": "the page as HTML and as JSON do not list the same",
    "stale-page": "a page differs from what follows from the known wheels",
    "not-listed": "a project has a page, and the root page does not link it",
}
WARNING_FAULTS = frozenset({"no-metadata", "no-ranges"})


@dataclass(frozen=True, order=True)
class IndexFinding:
    """A fault: its name in ``FAULTS``, the URL or file, and what was seen."""

    where: str
    fault: str
    detail: str

    @property
    def severity(self) -> str:
        """``error``, or ``warning`` for what is slow and not wrong."""
        return "warning" if self.fault in WARNING_FAULTS else "error"
