"""Make one index of several: a page for each name, whose files stay where its owner has them.

Who owns which name, and where from, says the file of ``index.owners``. No byte of a package is copied: pages
link to the files, relative to themselves within one store or disk, else by whole URLs, with all that their
own page says of them. Of a name only the page of its owner is read. Others who offer it are told of.

``federation.json`` beside the pages is what the index knows: of each name the source, and what the server
called its page (ETag), so that a refresh asks only whether that changed; and the tags that our own pages have
in the store, so that one that somebody edited is made again. A page that was there before and is gone at its
source, or a file that has other bytes than before, ends the refresh with everything as it was.

All is read and settled before anything is written. Then a run writes its mark into ``federation.json``, on
condition that it is as it was read: of two runs at a time one begins again. Pages follow, dependencies first,
each on condition that the mark is still this run's; root pages; what is dropped; the document without a mark;
at last the manifest, where the index is signed. After a kill the same command carries on.

No page of the store is signed that was not signed before: one that its source calls unchanged stays as the
manifest states it, where that states ``federation.json`` as well; otherwise all sources are read again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import posixpath
import re
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from html import unescape
from itertools import product
from typing import Literal
from urllib.parse import quote, unquote, urljoin, urlsplit

from packaging.utils import canonicalize_name
from pydantic import Field, ValidationError

from rocm_wheels import __version__
from rocm_wheels.core import errors, parallel, records, shell
from rocm_wheels.index import (
    folder,
    manifest,
    owners,
    pages,
    reader,
    signed_index,
    signing,
    wheel_file,
)
from rocm_wheels.index.folder import HTML_PAGE, JSON_PAGE, METADATA_SUFFIX, VARIANTS_SUFFIX, IndexEntry
from rocm_wheels.stores import store as stores
from rocm_wheels.stores.store import Store

STATE_FILE = "federation.json"
_MOST_NAMES = 10_000  # of all that a source lists: PyPI has 700,000
_JOBS = 16  # they wait for servers
_MOST_SHOWN = 5
_GONE_STATUSES = (404, 410)
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,200}[A-Za-z0-9])?")  # that a folder may have, too
_SLASH = re.compile("/|%2f", re.IGNORECASE)
_TRACKS = re.compile(rf'<meta name="{pages.TRACKS}" content="([^"]*)"')
_DROP_TIP = "correct the owners, wait until they are back, or leave such names out with --drop-missing"


class _ListedName(records.Record):
    """A name that the index has. ``page`` is that of its owner, "" on a disk; ``etag`` is its server's.

    ``tags`` are those of our pages in the store, by their paths; ``files`` how many they list.
    """

    source: str
    page: str
    etag: str
    files: int
    tags: dict[str, str] = Field(default_factory=dict)


class _State(records.Record):
    """``federation.json``. ``made_of`` is the digest of the owners, and of who wrote the pages.

    ``target`` is the target whose index it is, in a folder of its name: "" for one for everybody.
    """

    schema_version: Literal[1] = Field(default=1, alias="schema")
    made_of: str = ""
    target: str = ""
    mark: str = ""
    names: dict[str, _ListedName] = Field(default_factory=dict)

    def to_json(self) -> bytes:
        """Return its file."""
        return (self.model_dump_json(by_alias=True, indent=1) + "\n").encode()


@dataclass(frozen=True)
class Federated:
    """What became of an index: how much it lists, and the names whose pages were written or removed.

    ``strangers`` are names by the sources that offer them and do not own them; ``ownerless`` names that hold
    code for GPUs which the default offers; ``unmatched`` patterns that no project of their owner has;
    ``left_out`` files that no installer reads, of other projects, or two of a name; ``no_hash`` names of
    files without one; ``not_listed`` what new wheels require, on whatever machine, and the index has not;
    ``strays`` folders with pages that somebody else put there: installers would find them. ``signed``: its
    manifest was written.
    """

    projects: int
    files: int
    written: tuple[str, ...]
    removed: tuple[str, ...]
    strangers: Mapping[str, Sequence[str]]
    ownerless: tuple[str, ...]
    unmatched: tuple[str, ...]
    left_out: tuple[str, ...]
    no_hash: tuple[str, ...]
    not_listed: tuple[str, ...]
    strays: tuple[str, ...]
    signed: bool = False


class _StoreReader(reader.IndexReader):
    """Reads an index in S3 by the store's own requests, as one that a server gives out."""

    def __init__(self, store: Store, base: str) -> None:
        super().__init__()
        self._store, self._base = store, base

    def get(self, url: str, *, accept: str = "*/*", etag: str = "") -> reader.IndexAnswer:
        """Return a file, or the page of a folder, of this store; of any other server as ever."""
        if not url.startswith(self._base):
            return super().get(url, accept=accept, etag=etag)
        path = unquote(url.removeprefix(self._base))
        path += HTML_PAGE if path.endswith("/") or not path else ""
        info = self._store.head(path) if stores.is_store_path(path) else None
        if info is None or info.tag == etag:
            return reader.IndexAnswer(404 if info is None else 304, "", b"", url, etag)
        stored = self._store.read(path)
        kind = pages.JSON_TYPE if path.endswith(".json") else "text/html" if path.endswith(".html") else ""
        return reader.IndexAnswer(200, kind, stored.content, url, stored.tag)


@dataclass(frozen=True)
class SourceIndex:
    """A source: its name, what the file states of it, where it is read (a URL), and who reads it.

    ``signed`` decides of its pages where they must be signed.
    """

    name: str
    stated: owners.Source
    base: str
    reach: reader.IndexReader
    signed: signed_index.SignedIndexes | None = None

    @contextlib.contextmanager
    def name_failures(self) -> Iterator[None]:
        """Have what goes wrong with the source be a ReleaseError that names it."""
        try:
            yield
        except (errors.HostError, errors.DataError) as cause:
            tip = "see its manifest, and `signed_by` of the source" if self.signed else cause.tip
            message = f"source {self.name}: {cause.message}; the index stays"
            raise errors.ReleaseError(message, tip=tip) from None

    @cached_property
    def _page_file(self) -> str:
        """``index.json`` where pages lie there, as ours do: they say more than those as HTML."""
        answer = self.reach.get(f"{self.base}{JSON_PAGE}")
        if answer.status >= 500:
            raise reader.make_status_error(self.base, answer.status)
        try:
            return JSON_PAGE if answer.status == 200 and "projects" in json.loads(answer.content) else ""
        except (ValueError, TypeError, RecursionError):
            return ""

    def ask(self, project: str, etag: str = "") -> reader.IndexAnswer:
        """Return the page of a project, or ("") of the index, as it is signed; 404 and 304 are answers."""
        url = f"{self.base}{project}/" if project else self.base
        answer = self.reach.get(f"{url}{self._page_file}", accept=reader.ACCEPT_PAGES, etag=etag)
        if self.signed is not None:
            answer = self.signed.check_page(self.reach, self.base, url, answer)
        if answer.status not in (200, *_GONE_STATUSES) and not (answer.status == 304 and etag):
            raise reader.make_status_error(url, answer.status)
        if self.base.startswith("https:") and not answer.url.startswith("https:"):
            message = f"{shell.hide_credentials(url)} leads to {shell.hide_credentials(answer.url)}"
            raise errors.DataError(message, tip="whoever is between could change that: ask its owner")
        # a static server knows index.json by its suffix alone; another one adds a charset
        is_json = answer.kind.startswith(("application/json", pages.JSON_TYPE))
        kind = pages.JSON_TYPE if is_json else answer.kind
        return replace(answer, kind=kind)

    def list_names(self) -> set[str]:
        """Return the projects that it lists. ReleaseError where there is no index."""
        with self.name_failures():
            answer = self.ask("")
            if answer.status != 200:
                tip = "`rocm-wheels index build DIR` makes one of a folder"
                raise errors.DataError(f"there is no index at {self.base}", tip=tip)
            links = reader.parse_page(answer.content, answer.kind, answer.url)
        paths = [unquote(urlsplit(link.url).path) for link in links]
        names = [(path.rstrip("/").rpartition("/")[2], path.endswith("/")) for path in paths]
        # JSON has names as people write them; a server that lists a folder has files in it
        return {
            canonicalize_name(name)
            for name, is_folder in names
            if _NAME.fullmatch(name) and (is_folder or name == canonicalize_name(name))
        }

    def offers(self, project: str) -> bool:
        """Tell whether it has a page of a project, without reading it. One that refuses has none."""
        with self.name_failures():
            return self.reach.fetch_size(f"{self.base}{project}/")[0] == 200

    def list_requirements(self, metadata: str) -> set[str]:
        """Return the projects that METADATA at a URL require; none where it is not there."""
        with self.name_failures():
            answer = self.reach.get(metadata)
            if answer.status >= 500:
                raise reader.make_status_error(metadata, answer.status)
        return wheel_file.list_required_names(answer.content) if answer.status == 200 else set()

    def locate(self, url: str, page: str) -> str:
        """Return the link to a file for our page at a URL. DataError for none that lasts."""
        target, base, here = urlsplit(url), urlsplit(self.base), urlsplit(page)
        if fault := _find_address_fault(url, base.scheme):
            pass
        elif self.stated.url and (target.scheme, target.netloc) == (base.scheme, base.netloc):
            path, shown = posixpath.relpath(target.path, base.path), urlsplit(self.stated.url).path
            url = urljoin(self.stated.url, path)
            if path.split("/").count("..") >= shown.count("/"):  # urljoin would stop at the server's root
                fault = f"lies above what is seen at {self.stated.url}"
        elif (target.scheme, target.netloc) == (here.scheme, here.netloc):
            url = posixpath.relpath(target.path, here.path)
        elif target.scheme == "file":
            fault = "is on this machine, and the index is not"
        if fault:
            tip = "state where people see the source: `url: https://…`"
            raise errors.DataError(f"{shell.hide_credentials(url)} {fault}", tip=tip)
        return url


def open_sources(
    stated: owners.Owners,
    sign: Callable[[Sequence[str]], signed_index.SignedIndexes],
    env: Mapping[str, str],
) -> list[SourceIndex]:
    """Return the sources; ``sign`` makes of files of keys what decides of signed pages.

    Raises UsageError for an address that is none.
    """
    opened = []
    for name, source in stated.sources.items():
        reach = reader.IndexReader()
        if source.index.startswith("s3:"):
            bucket, place = stores.split_bucket_url(source.index)
            store = stores.open_store(f"s3://{bucket}", env)
            root = urljoin(store.url_of(HTML_PAGE), ".")
            base, reach = urljoin(root, quote(f"{place.strip('/')}/".lstrip("/"))), _StoreReader(store, root)
        else:
            base = reader.resolve_index_url(source.index)
        signed = sign(source.signed_by) if source.signed_by else None
        opened.append(SourceIndex(name, source, base, reach, signed))
    return opened


@dataclass(frozen=True)
class _MadePage:
    """The pages of a name by their paths, as they are to be; none where they may stay as they are.

    ``adds``: with files that are new; ``metadata`` is the URL of that of the newest of those, "" without.
    """

    listed: _ListedName
    contents: Mapping[str, bytes] = field(default_factory=dict)
    adds: bool = False
    metadata: str = ""
    left_out: tuple[str, ...] = ()
    no_hash: bool = False


@dataclass(frozen=True)
class _Changes:
    """Pages to write by their paths, the names of these with what their new wheels require, names that go.

    ``required`` follows from the METADATA of the newest wheel of each alone; empty where none is offered.
    ``made`` are all pages that were made, those too that are there already.
    """

    made: Mapping[str, bytes]
    contents: Mapping[str, bytes]
    required: Mapping[str, Collection[str]]
    gone: tuple[str, ...]


class Federation:
    """One refresh of an index in a store, of sources that are open.

    ``keeper`` has its manifest, which names pages by their paths below ``place``: "" where it lies beside
    them, else ``gfx942/``.
    """

    def __init__(
        self,
        stated: owners.Owners,
        sources: Sequence[SourceIndex],
        target: Store,
        keeper: signing.ManifestKeeper,
        place: str = "",
    ) -> None:
        self._stated, self._target, self._keeper, self._place = stated, target, keeper, place
        self._sources = {source.name: source for source in sources}
        self._here = urljoin(target.url_of(HTML_PAGE), ".")
        for source in sources:
            path = reader.path_of_url(source.base)  # of a folder there are several addresses
            is_same = (
                path is not None and target.folder is not None and path.resolve() == target.folder.resolve()
            )
            if source.base == self._here or is_same:
                message = f"source {source.name} is the index that is to be made of it"
                raise errors.UsageError(message, tip="name another folder for the index")
        # links are relative to the place: what was moved has other ones
        made_of = f"{__version__} {self._here} {stated.model_dump_json()}"
        self._made_of = hashlib.sha256(made_of.encode()).hexdigest()

    def refresh(self, *, drop_missing: bool = False, dry_run: bool = False) -> Federated:
        """Read the sources, and write what changed. ReleaseError where the index has to stay as it is."""
        return stores.change_documents(
            lambda: self._refresh(drop_missing, dry_run), description=f"the index at {self._target.url}"
        )

    def _refresh(self, drop_missing: bool, dry_run: bool) -> Federated:
        self._keeper.require_key()
        state, tag = _read_state(self._target, STATE_FILE)
        signed = self._read_signed_digests(state)
        find_owner, find_claims = self._stated.find_owner, self._stated.find_claims
        listings = {
            name: source.list_names()
            for name, source in self._sources.items()
            if name in (*self._stated.patterns.values(), self._stated.default)
            or not source.stated.index.startswith("http")  # it costs little there, and tells of strangers
        }
        named = self._stated.names
        for source, names in listings.items():
            # others may list what they like: of two owners that are one too many an owner has to have it
            claimed = [name for name in names if source in find_claims(name).values()]
            named = named | {name: find_owner(name) for name in claimed}
        if len(named) > _MOST_NAMES:
            tip = "name what you need, as `numpy: pypi`, without a default"
            raise errors.ReleaseError(f"{len(named)} names would be listed: {_MOST_NAMES} at most", tip=tip)
        tags = {file.path: file.tag for file in self._target.listing("")}
        made = self._read_pages(dict(sorted(named.items())), self._list_known(state, tags, signed))
        gone = sorted(state.names.keys() - made.keys())
        # a name that nobody owns any more goes without more words: that is what was asked for; and one that
        # was never here need not be because a source lists it, without a file
        wanted = {*self._stated.names, *filter(find_owner, gone)}
        absent = [f"{name} ({find_owner(name)})" for name in sorted(wanted - made.keys())]
        if absent and not drop_missing:
            listed = ", ".join([*absent[:_MOST_SHOWN], *(["…"] if len(absent) > _MOST_SHOWN else [])])
            raise errors.ReleaseError(f"no files at their owner: {listed}; the index stays", tip=_DROP_TIP)
        changed = self._find_changes({*state.names, JSON_PAGE, HTML_PAGE} if tag else (), made, gone)
        strays = {
            path.partition("/")[0] for path in tags if path.endswith((f"/{HTML_PAGE}", f"/{JSON_PAGE}"))
        }
        described = self._describe(listings, made, changed, sorted(strays - {*made, *gone}))
        if dry_run:
            return described
        return replace(described, signed=self._write(state, tag, made, changed, signed))

    def _read_signed_digests(self, state: _State) -> Mapping[str, str]:
        """Return what is signed of pages, by their paths; {} where this state is not, and without a key."""
        found = self._keeper.read()[0]
        return found.files if found is not None and found.states_document(state.to_json()) else {}

    def _list_known(
        self, state: _State, tags: Mapping[str, str], signed: Mapping[str, str]
    ) -> dict[str, _ListedName]:
        """Return the names whose pages may stay as they are, if their sources did not change.

        ``tags`` are those of the files in the store, ``signed`` what is signed of these, by their paths.
        """
        if state.made_of != self._made_of:  # of other owners, or by another version of us
            return {}
        needs_signature = self._keeper.signer is not None
        return {
            name: listed
            for name, listed in state.names.items()
            if listed.tags and listed.tags.items() <= tags.items()  # or somebody has edited it
            if not needs_signature or {self._place + path for path in listed.tags} <= signed.keys()
        }

    def _read_pages(
        self, named: Mapping[str, str], known_names: Mapping[str, _ListedName]
    ) -> dict[str, _MadePage]:
        """Return the pages of names whose owners have files; of known ones these are asked what changed."""

        def read(item: tuple[str, str]) -> _MadePage | None:
            name, source = item[0], self._sources[item[1]]
            known = known_names.get(name)
            # what is signed is held to its manifest each time
            etag = known.etag if known is not None and source.signed is None else ""
            with source.name_failures():
                answer = source.ask(name, etag)
                if answer.status == 304 and known is not None:
                    return _MadePage(known)
                return self._make_page(name, source, answer) if answer.status == 200 else None

        read_pages = parallel.run_in_parallel(read, named.items(), jobs=_JOBS)
        return {name: page for name, page in zip(named, read_pages, strict=True) if page is not None}

    def _make_page(self, name: str, source: SourceIndex, answer: reader.IndexAnswer) -> _MadePage | None:
        """Return our page of a name; None where its owner lists no file. DataError for a wrong one."""
        parsed = reader.parse_page(answer.content, answer.kind, answer.url, project=name)
        links: dict[str, reader.IndexLink] = {}
        ambiguous = set()  # installers may take either of two files
        for link in parsed:
            file = reader.file_name_of_link(link)
            first = links.setdefault(file, link)
            if (first.sha256 or first.url) != (link.sha256 or link.url):
                ambiguous.add(file)
        entries: dict[str, IndexEntry] = {}
        before = self._read_digests(name)
        variants, left_out = [], []
        for file, link in links.items():
            if file in ambiguous or not is_file_of(file, name):
                # a folder, as that above it where a server lists files, has no name
                left_out += [file if file.isprintable() else ascii(file)] if file else []
                continue
            url = source.locate(link.url, f"{self._here}{name}/")
            sha256, known = reader.require_link_digest(link) or "", before.get(file, "")
            if not sha256 and not source.stated.allow_no_hash:
                tip = "nothing would show an exchanged file: `allow_no_hash: true` of the source takes it"
                raise errors.DataError(f"its page of {name} states no sha256 of {file}", tip=tip)
            if sha256 and known and sha256 != known:
                tip = f"ask its owner; if that is right, remove {name}/{JSON_PAGE} of the index"
                raise errors.DataError(f"{file} had sha256 {known}, and now {sha256}", tip=tip)
            if link.provenance and (fault := _find_address_fault(link.provenance)):
                raise errors.DataError(f"{shell.hide_credentials(link.provenance)} {fault}")
            metadata = reader.require_link_digest(replace(link, sha256=link.metadata or None)) or "true"
            entry = IndexEntry(
                name=file,
                size=-1 if link.size is None else link.size,
                changed=0,
                sha256=sha256 or known,
                uploaded=link.uploaded,
                metadata="" if link.metadata is None else metadata,
                requires_python=link.requires_python,
                yanked=link.yanked,
                place=url.removesuffix(_SLASH.split(url)[-1]),
                provenance=link.provenance,
            )
            if file.endswith(VARIANTS_SUFFIX):
                variants.append(pages.VariantsLink(file, entry.href, entry.sha256, entry.size))
            else:
                entries[file] = entry
        if not entries:
            return None
        listed = folder.sort_entries(entries)
        base = source.stated.url or source.base
        page = "" if base.startswith("file:") else urljoin(base, f"{name}/")
        tracks = _find_tracks(answer) or ([page] if page else [])
        new = [entry for entry in listed if entry.name not in before]
        offered = [links[entry.name].url + METADATA_SUFFIX for entry in new if entry.metadata]
        keys = {"_source": source.name}
        return _MadePage(
            _ListedName(source=source.name, page=page, etag=answer.etag, files=len(listed)),
            {
                f"{name}/{JSON_PAGE}": pages.make_project_json(name, listed, variants, keys, tracks),
                f"{name}/{HTML_PAGE}": pages.make_project_html(name, listed, variants, tracks),
            },
            adds=bool(new),
            metadata=offered[-1] if offered else "",
            left_out=tuple(left_out),
            no_hash=not all(entry.sha256 for entry in listed),
        )

    def _read_digests(self, name: str) -> dict[str, str]:
        """Return the sha256 of the files of a name as our page states them, but for variants, which grow.

        ReleaseError for a damaged page.
        """
        stored = stores.read_or_none(self._target, f"{name}/{JSON_PAGE}")
        if stored is None:
            return {}
        url = f"{self._here}{name}/{JSON_PAGE}"
        try:
            links = reader.parse_page(stored.content, pages.JSON_TYPE, url, project=name)
        except errors.DataError:
            raise errors.ReleaseError(
                f"{name}/{JSON_PAGE} of {self._target.url} is damaged: what bytes its files had is not known",
                tip="put it back from a copy; without it the files of its owner are taken as they are now",
            ) from None
        digests = {reader.file_name_of_link(link): link.sha256 or "" for link in links}
        return {file: sha256 for file, sha256 in digests.items() if not file.endswith(VARIANTS_SUFFIX)}

    def _find_changes(
        self, own: Collection[str], made: Mapping[str, _MadePage], gone: Sequence[str]
    ) -> _Changes:
        """Return what differs in the store from what is to be there; ``own`` are names and pages of ours.

        UsageError for a file of somebody else in the place of a page.
        """
        wanted = {path: content for page in made.values() for path, content in page.contents.items()}
        wanted[JSON_PAGE], wanted[HTML_PAGE] = pages.make_root_json(made), pages.make_root_html(made)
        present = stores.read_files(self._target, wanted)
        contents = {path: content for path, content in wanted.items() if content != present[path]}
        for path in contents:
            if present[path] is not None and path.partition("/")[0] not in own:
                message = f"{self._target.url} has {path} already, and not of an index of several"
                raise errors.UsageError(message, tip="name a folder of its own")
        names = [name for name in made if contents.keys() & {*_pages_of(name)}]

        def list_requirements(name: str) -> set[str]:
            page = made[name]
            source = self._sources[page.listed.source]
            return source.list_requirements(page.metadata) if page.metadata else set()

        required = parallel.run_in_parallel(list_requirements, names, jobs=_JOBS)
        return _Changes(wanted, contents, dict(zip(names, required, strict=True)), tuple(gone))

    def _describe(
        self,
        listings: Mapping[str, Collection[str]],
        made: Mapping[str, _MadePage],
        changed: _Changes,
        strays: Sequence[str],
    ) -> Federated:
        find_owner, find_claims = self._stated.find_owner, self._stated.find_claims
        unlisted = [source for source in self._sources.values() if source.name not in listings]
        asked = [
            (source, name) for source, name in product(unlisted, made) if find_owner(name) != source.name
        ]
        answers = parallel.run_in_parallel(lambda item: item[0].offers(item[1]), asked, jobs=_JOBS)
        found = [
            (source.name, name) for (source, name), has_page in zip(asked, answers, strict=True) if has_page
        ]
        for source, names in listings.items():
            claims = {name: find_claims(name).values() for name in sorted(names)}
            found += [(source, name) for name, owning in claims.items() if owning and source not in owning]
        default = listings.get(self._stated.default, ())
        return Federated(
            projects=len(made),
            files=sum(page.listed.files for page in made.values()),
            written=tuple(changed.required),
            removed=changed.gone,
            strangers={source: [name for other, name in found if other == source] for source in dict(found)},
            ownerless=tuple(sorted(name for name in default if not find_claims(name))),
            unmatched=tuple(
                pattern
                for pattern in self._stated.owners
                if not any(fnmatchcase(name, pattern) for name in made)
            ),
            left_out=tuple(file for page in made.values() for file in page.left_out),
            no_hash=tuple(name for name, page in made.items() if page.no_hash),
            strays=tuple(strays),
            not_listed=tuple(sorted(set().union(*changed.required.values()) - made.keys())),
        )

    def _write(
        self,
        state: _State,
        tag: str | None,
        made: Mapping[str, _MadePage],
        changed: _Changes,
        signed: Mapping[str, str],
    ) -> bool:
        """Exchange what changed, say so, and sign it; tell whether a manifest was written.

        ChangedInStoreError where another run has come between.
        """

        def check() -> None:
            info = self._target.head(STATE_FILE)
            if (info.tag if info is not None else None) != tag:
                raise stores.make_changed_error(STATE_FILE)

        target = self._place.rstrip("/")
        if changed.contents or changed.gone:
            stores.require_conditional_writes(self._target)
            # what new wheels require before them, root pages last
            names = wheel_file.order_by_requirements(changed.required)
            if not any(made[name].adds for name in names):
                names.reverse()
            paths = [*(path for name in names for path in _pages_of(name)), JSON_PAGE, HTML_PAGE]
            listed = {name: made[name].listed for name in changed.required}
            state = _State(target=target, mark=secrets.token_hex(8), names={**state.names, **listed})
            tag = self._target.replace(STATE_FILE, state.to_json(), tag)
            for path in filter(changed.contents.__contains__, paths):
                stores.put_file(self._target, path, changed.contents[path], check)
            for path in [path for name in changed.gone for path in _pages_of(name)]:
                check()
                self._target.remove(path)
        tags = {file.path: file.tag for file in self._target.listing("")}
        settled_names = {}
        for name, page in made.items():
            own_tags = {path: tags[path] for path in _pages_of(name) if path in tags}
            settled_names[name] = page.listed.model_copy(update={"tags": own_tags})
        settled = _State(made_of=self._made_of, target=target, names=settled_names)
        if settled != state:
            tag = self._target.replace(STATE_FILE, settled.to_json(), tag)
        paths_of_names = {self._place + path for name in made for path in _pages_of(name)}
        files = {path: digest for path, digest in signed.items() if path in paths_of_names}
        files |= manifest.digest_pages({self._place + path: text for path, text in changed.made.items()})
        if is_signed := self._keeper.write(settled.to_json(), files):
            check()  # a run that came between may have signed other pages before us
        return is_signed


def _read_state(target: Store, path: str) -> tuple[_State, str | None]:
    stored = stores.read_or_none(target, path)
    if stored is None:
        return _State(), None
    try:
        return _State.model_validate_json(stored.content), stored.tag
    except ValidationError as cause:
        raise errors.DataError(
            f"{target.url}/{path} is damaged: {records.summarize_faults(cause, _State)}",
            tip="put it back from a copy, or make the index anew in another folder",
        ) from None


def drop_other_targets(index: Store, targets: Collection[str], *, dry_run: bool = False) -> list[str]:
    """Remove the indexes of targets that are none any more from one with ``targets``; return whose they were.

    As a refresh of a store does with views of which no set passed: nobody would refresh them. One for
    everybody leaves them alone, and pages of somebody else stay.
    """
    dropped = []
    folders = index.folders("") if targets else ()
    for target in (name for name in folders if name.startswith("gfx") and name not in targets):
        state, tag = _read_state(index, f"{target}/{STATE_FILE}")
        if tag is None or state.target != target:
            continue
        dropped.append(target)
        paths = [f"{target}/{path}" for name in state.names for path in _pages_of(name)]
        paths += [f"{target}/{JSON_PAGE}", f"{target}/{HTML_PAGE}", f"{target}{manifest.MANIFEST_SUFFIX}"]
        # what says that it is ours, last: the same command carries on
        for path in [*paths, f"{target}/{STATE_FILE}"] if not dry_run else ():
            index.remove(path)
    return dropped


def is_file_of(file_name: str, project: str) -> bool:
    """Tell whether installers of today take a file, by its name, for one of a project.

    A ``-variants.json`` is called as the release that it is of (PEP 825).
    """
    stem = file_name.removesuffix(VARIANTS_SUFFIX)
    try:
        named = file_name if stem == file_name else f"{stem}-py3-none-any.whl"
        return folder.parse_file_name(named)[0] == project
    except errors.DataError:
        return False


def _find_address_fault(url: str, *schemes: str) -> str:
    """Return why pages cannot tell everybody of a URL, which may also be of these schemes; "" if they can."""
    try:
        parts = urlsplit(url)
    except ValueError:  # http://[half
        return "is no address"
    if parts.scheme not in ("http", "https", *schemes):
        return "is no address that others can reach"
    return "holds a password, or was signed for a time" if parts.query or "@" in parts.netloc else ""


def _pages_of(name: str) -> tuple[str, str]:
    return f"{name}/{JSON_PAGE}", f"{name}/{HTML_PAGE}"


def _find_tracks(answer: reader.IndexAnswer) -> list[str]:
    """Return the owners' pages that a page names itself (PEP 708): it is those that are to be named then."""
    if answer.kind == pages.JSON_TYPE:
        urls = json.loads(answer.content)["meta"].get("tracks", [])
    else:
        urls = [unescape(url) for url in _TRACKS.findall(answer.content.decode())]
    is_list = isinstance(urls, list)
    named = [url for url in urls if isinstance(url, str) and url.isprintable()] if is_list else []
    return [url for url in named if not _find_address_fault(url)]
