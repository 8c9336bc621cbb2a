"""Tell others of failures: an issue of a GitHub repository for each, or a message to a webhook.

A failure is closed when a run of its kind came to its end without it, on one of its Pythons on each of its
GPUs; a set that nobody tested closes nothing.

An issue names its failure in a marker, so that the next run finds it; one that somebody closed as not planned
is not opened again for a month after it was last touched. An issue is opened by one request, which is never
repeated: whether it came through, the next run sees. Runs at the same time are to be kept apart (as by the
``concurrency`` of a workflow): GitHub has no issue that is opened only once.

What a webhook was told is kept in the store (``notified.json``), which is replaced by tag alone: of runs at
the same time one tells it. A message is claimed, sent, and noted as sent; one that was claimed by a run that
was killed is sent again later.

Source: GitHub's REST API, version 2022-11-28: docs.github.com/en/rest/issues.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, Protocol
from urllib.parse import urlsplit

from pydantic import Field, ValidationError

from rocm_wheels.core import (
    NotInStoreError,
    Record,
    ReleaseError,
    RetryPolicy,
    Store,
    UsageError,
    change_documents,
)
from rocm_wheels.release.dashboard import Dashboard, NightFailure, find_torch_line
from rocm_wheels.release.layout import StoreLayout

if TYPE_CHECKING:
    import requests

ISSUE_LABEL = "rocm-wheels-failure"
_MARKER = re.compile(r"<!-- rocm-wheels failure (\{.*?\}) -->")
_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9._-]+")
_NOTIFIED_DOCUMENT = "notified.json"
_API_VERSION = "2022-11-28"
_TIMEOUT = 60
_CLAIM_TIME = timedelta(minutes=10)  # a run that has not sent its message by then was killed
_DISMISSED_TIME = timedelta(days=30)
_LOCAL_HOSTS = ("127.0.0.1", "::1", "localhost")
NoticeAction = Literal["open", "update", "close"]


class ReportedFailure(Record):
    """A failure that others were told of."""

    key: str
    title: str
    family: str
    os: str
    line: str
    kind: str
    name: str
    set: str
    gfx: tuple[str, ...]
    pythons: tuple[str, ...]
    detail: str = ""
    log: str = ""


@dataclass(frozen=True)
class Notice:
    """What others are to be told: that something fails, fails elsewhere too, or does not fail any more."""

    action: NoticeAction
    failure: ReportedFailure

    def __str__(self) -> str:
        """Return it in a line."""
        words = {"open": "fails", "update": "fails elsewhere, too", "close": "does not fail any more"}
        return f"{self.failure.title}: {words[self.action]}, {self.failure.set}"


class Notifier(Protocol):
    """A place that is told."""

    title: str

    def read_open(self) -> Mapping[str, ReportedFailure]:
        """Return what is open there, by key."""

    def send(self, notices: Sequence[Notice]) -> int:
        """Tell it; return how many notices were new to it."""


def plan_notices(dashboard: Dashboard, reported: Mapping[str, ReportedFailure]) -> list[Notice]:
    """Return what is to be told, where this is ``reported`` already."""
    failures = {failure.key: _make_report(failure) for failure in dashboard.failures}
    notices = []
    for key, failure in failures.items():
        before = reported.get(key)
        if before is None:
            notices.append(Notice("open", failure))
        elif set(failure.gfx) - set(before.gfx) or set(failure.pythons) - set(before.pythons):
            joined = {
                "gfx": tuple(sorted({*failure.gfx, *before.gfx})),
                "pythons": tuple(dict.fromkeys((*before.pythons, *failure.pythons))),
            }
            notices.append(Notice("update", failure.model_copy(update=joined)))
    installed = {
        (check.family, find_torch_line(check.version), check.name)
        for check in dashboard.installs
        if check.passed
    }
    rows = {(row.family, str(row.os), row.line): row for row in dashboard.rows}
    for key, failure in reported.items():
        if failure.kind == "install":
            if key not in failures and (failure.family, failure.line, failure.name) in installed:
                notices.append(Notice("close", failure))
            continue
        row = rows.get((failure.family, failure.os, failure.line))
        if key in failures or row is None or not row.set:
            continue
        covered = {(kind, gfx) for kind, gfx, python in row.covered if python in failure.pythons}
        if all((failure.kind, gfx) in covered for gfx in failure.gfx or ("",)):
            notices.append(Notice("close", failure.model_copy(update={"set": row.set})))
    return notices


def open_notifier(
    target: str, store: Store, layout: StoreLayout, now: datetime, env: Mapping[str, str]
) -> Notifier:
    """Return who is told: ``github:OWNER/REPO``, or the URL of a webhook. UsageError for anything else."""
    if target.startswith("github:"):
        repository = target.removeprefix("github:")
        if not _REPOSITORY.fullmatch(repository):
            raise UsageError(f"{target} names no repository", tip="github:OWNER/REPO")
        token = env.get("GITHUB_TOKEN") or env.get("GH_TOKEN") or ""
        if not token:
            raise UsageError(
                f"there is no token for {repository}",
                tip="GITHUB_TOKEN; it may write issues and nothing else",
            )
        api = env.get("GITHUB_API_URL") or "https://api.github.com"
        _require_private(api, "GITHUB_API_URL")
        return GithubIssues(repository, api.rstrip("/"), token, now)
    _require_private(target, "a webhook")
    return Webhook(target, store, f"{layout.release}/{_NOTIFIED_DOCUMENT}", now)


def _require_private(url: str, noun: str) -> None:
    """Raise UsageError for an address that a secret would be sent to in the open."""
    parts = urlsplit(url)
    if not parts.hostname or not (
        parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOCAL_HOSTS)
    ):
        raise UsageError(f"{noun} needs an address with https://", tip="github:OWNER/REPO, or https://…")


@dataclass
class GithubIssues:
    """The issues of a repository: one for each failure, with a label of our own."""

    repository: str
    api: str
    token: str
    now: datetime

    def __post_init__(self) -> None:
        """Know no issue yet."""
        self.title = f"issues of {self.repository}"
        self._numbers: dict[str, int] = {}  # of those that are open

    def read_open(self) -> Mapping[str, ReportedFailure]:
        """Return the failures that have an open issue, or one that somebody closed as not planned.

        Of two for one failure the older counts.
        """
        failures: dict[str, ReportedFailure] = {}
        for issue, failure in self._list_issues({"state": "open"}):
            if failures.setdefault(failure.key, failure) is failure:
                self._numbers[failure.key] = int(issue["number"])
        since = f"{self.now - _DISMISSED_TIME:%Y-%m-%dT%H:%M:%SZ}"
        for issue, failure in self._list_issues({"state": "closed", "since": since}):
            if issue.get("state_reason") == "not_planned":
                failures.setdefault(failure.key, failure)
        return failures

    def send(self, notices: Sequence[Notice]) -> int:
        """Open, change and close issues. Raises ReleaseError at the first that GitHub refuses."""
        if any(notice.action == "open" for notice in notices):
            self._require_label()
        count = 0
        for notice in notices:
            if notice.action == "open":
                self._open(notice.failure)
            elif notice.failure.key not in self._numbers:
                continue  # somebody has closed it
            elif notice.action == "update":
                self._say(notice.failure, f"It fails elsewhere, too: {_describe_places(notice.failure)}.")
            else:
                comment = f"It does not fail any more: {notice.failure.set}."
                self._say(notice.failure, comment, state="closed", state_reason="completed")
            count += 1
        return count

    def _list_issues(self, query: Mapping[str, str]) -> Iterator[tuple[dict[str, Any], ReportedFailure]]:
        """Yield the issues that have our label and a marker, the oldest first."""
        address: str | None = f"{self._address}/issues"
        order = {"per_page": "100", "sort": "created", "direction": "asc"}
        words: Mapping[str, str] = {"labels": ISSUE_LABEL, **order, **query}
        while address:
            answer = self._request("GET", address, params=words)
            for issue in _read_json(answer, list):
                if isinstance(issue, dict) and "pull_request" not in issue:
                    failure = parse_marker(str(issue.get("body") or ""))
                    if failure is not None:
                        yield issue, failure
            address, words = answer.links.get("next", {}).get("url"), {}

    @property
    def _address(self) -> str:
        return f"{self.api}/repos/{self.repository}"

    def _require_label(self) -> None:
        """Make the label where there is none: GitHub drops labels of those who may not set them."""
        answer = self._request("GET", f"{self._address}/labels/{ISSUE_LABEL}", allowed=(404,))
        if answer.status_code == 404:
            label = {
                "name": ISSUE_LABEL,
                "color": "b60205",
                "description": "A failure that rocm-wheels reports",
            }
            self._request(
                "POST", f"{self._address}/labels", body=label, allowed=(422,)
            )  # 422: it is there now

    def _open(self, failure: ReportedFailure) -> None:
        body = {"title": failure.title, "body": format_issue(failure), "labels": [ISSUE_LABEL]}
        issue = _read_json(self._request("POST", f"{self._address}/issues", body=body), dict)
        labels = [label.get("name") for label in issue.get("labels", ()) if isinstance(label, dict)]
        if ISSUE_LABEL not in labels:
            raise ReleaseError(
                f"#{issue.get('number')} of {self.repository} was opened without its label: it is not found",
                tip=f"label it {ISSUE_LABEL}; the token must be of somebody who may label issues",
            )

    def _say(self, failure: ReportedFailure, comment: str, **changes: str) -> None:
        number = self._numbers[failure.key]
        address = f"{self._address}/issues/{number}"
        self._request("POST", f"{address}/comments", body={"body": comment})
        self._request("PATCH", address, body={"body": format_issue(failure), **changes})

    def _request(
        self,
        method: str,
        address: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        allowed: tuple[int, ...] = (),
    ) -> requests.Response:
        """Send a request to GitHub alone, wherever a page says that the next one is."""
        if not address.startswith(f"{self.api}/"):
            raise ReleaseError(
                f"GitHub names a page at {urlsplit(address).hostname}, which is not {self.api}"
            )
        headers = {
            "Accept": "application/vnd.github+json",
            "Authorization": f"Bearer {self.token}",
            "X-GitHub-Api-Version": _API_VERSION,
        }
        answer = _send(
            method, address, f"the {self.title}", headers=headers, params=params, json=body,
            retries=5 if method == "GET" else 0,
        )  # fmt: skip
        if answer.status_code in allowed or answer.ok:
            return answer
        raise ReleaseError(
            f"GitHub refuses {method} {urlsplit(address).path}: {answer.status_code} {_read_message(answer)}",
            tip=_GITHUB_TIPS.get(answer.status_code),
        )


_GITHUB_TIPS = {
    401: "GITHUB_TOKEN is no token, or has ended",
    403: "the token needs permission to write issues; or wait: GitHub limits how many are opened",
    404: "is the repository spelled right, and may the token see it?",
    410: "the repository has no issues: turn them on in its settings",
}


class _Delivery(Record):
    """A message of a webhook: what it says, when it was claimed, and whether it was sent."""

    action: NoticeAction
    failure: ReportedFailure
    claimed: str
    sent: bool = False


class _Deliveries(Record):
    """The document: the last message of each key, by receiver: digests of addresses, which are secrets."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    receivers: Mapping[str, Mapping[str, _Delivery]] = {}

    def to_json(self) -> bytes:
        """Return its file."""
        return (self.model_dump_json(by_alias=True, indent=1) + "\n").encode()


@dataclass
class Webhook:
    """An address that takes JSON: ``{"event": "failed|failed elsewhere|passed", "failure": {…}}``."""

    url: str
    store: Store
    path: str
    now: datetime

    def __post_init__(self) -> None:
        """Name it without what may be a secret."""
        self.title = f"webhook at {urlsplit(self.url).hostname}"
        self._receiver = hashlib.sha256(self.url.encode()).hexdigest()[:16]

    def read_open(self) -> Mapping[str, ReportedFailure]:
        """Return what it was told of, or is being told, that is not over."""
        deliveries = self._read()[0].receivers.get(self._receiver, {})
        return {
            key: delivery.failure
            for key, delivery in deliveries.items()
            if delivery.action != "close" and not self._is_stale(delivery)
        }

    def send(self, notices: Sequence[Notice]) -> int:
        """Send what no other run sends. Raises ReleaseError for an answer that is not 2xx."""
        claimed = change_documents(lambda: self._claim(notices), description=self.path)
        for notice in claimed:
            event = {"open": "failed", "update": "failed elsewhere", "close": "passed"}[notice.action]
            content = {"event": event, "failure": notice.failure.model_dump(mode="json")}
            answer = _send("POST", self.url, f"the {self.title}", json=content, retries=0)
            if not answer.ok:
                raise ReleaseError(
                    f"the {self.title} answers {answer.status_code}",
                    tip="it is told again in ten minutes or later",
                )
            change_documents(lambda notice=notice: self._mark_sent(notice), description=self.path)  # type: ignore[misc]
        return len(claimed)

    def _is_stale(self, delivery: _Delivery) -> bool:
        claimed = datetime.fromisoformat(delivery.claimed)
        return not delivery.sent and self.now - claimed > _CLAIM_TIME

    def _claim(self, notices: Sequence[Notice]) -> list[Notice]:
        """Write down that these are being sent, but those that another run has claimed."""
        document, tag = self._read()
        deliveries = dict(document.receivers.get(self._receiver, {}))
        claimed = []
        for notice in notices:
            before = deliveries.get(notice.failure.key)
            if before is not None and not self._is_stale(before):
                same = before.action == notice.action and before.failure == notice.failure
                over = before.action == "close"
                if same or (notice.action == "open" and not over) or (notice.action == "close" and over):
                    continue
            deliveries[notice.failure.key] = _Delivery(
                action=notice.action, failure=notice.failure, claimed=self.now.isoformat()
            )
            claimed.append(notice)
        if claimed:
            self._write(document, deliveries, tag)
        return claimed

    def _mark_sent(self, notice: Notice) -> None:
        document, tag = self._read()
        deliveries = dict(document.receivers.get(self._receiver, {}))
        delivery = deliveries[notice.failure.key]
        deliveries[notice.failure.key] = delivery.model_copy(update={"sent": True})
        self._write(document, deliveries, tag)

    def _read(self) -> tuple[_Deliveries, str | None]:
        try:
            stored = self.store.read(self.path)
        except NotInStoreError:
            return _Deliveries(), None
        try:
            return _Deliveries.model_validate_json(stored.content), stored.tag
        except ValidationError as cause:
            tip = "put it back from a copy of the store, or delete it: then all is told once more"
            raise ReleaseError(f"{self.store.url_of(self.path)} is damaged", tip=tip) from cause

    def _write(self, document: _Deliveries, deliveries: Mapping[str, _Delivery], tag: str | None) -> None:
        receivers = {**document.receivers, self._receiver: dict(sorted(deliveries.items()))}
        changed = document.model_copy(update={"receivers": dict(sorted(receivers.items()))})
        self.store.replace(self.path, changed.to_json(), tag)


def format_issue(failure: ReportedFailure) -> str:
    """Return the body of an issue, with the marker that it is found by."""
    lines = [
        f"`{failure.name.replace('`', chr(39))}` fails ({failure.kind}) on {_describe_places(failure)}.",
        "",
        f"- set: `{failure.set}`, torch {failure.line}, {failure.family}, {failure.os}",
    ]
    lines += [f"- {failure.detail}"] if failure.detail else []
    lines += [f"- log: {failure.log}"] if failure.log else []
    marker = json.dumps(failure.model_dump(mode="json")).replace(">", "\\u003e").replace("<", "\\u003c")
    return "\n".join(
        [*lines, "", "It is closed by itself when it passes.", f"<!-- rocm-wheels failure {marker} -->"]
    )


def parse_marker(body: str) -> ReportedFailure | None:
    """Return the failure that the body of an issue is about; None where it has no marker that holds."""
    match = _MARKER.search(body)
    if match is None:
        return None
    try:
        return ReportedFailure.model_validate_json(match[1])
    except ValidationError:
        return None


def limit_notices(notices: Iterable[Notice], most: int) -> tuple[list[Notice], int]:
    """Return notices with at most so many that open something, and how many were left out."""
    kept, left = list[Notice](), 0
    for notice in notices:
        if notice.action == "open" and most == 0:
            left += 1
            continue
        most -= notice.action == "open"
        kept.append(notice)
    return kept, left


def _make_report(failure: NightFailure) -> ReportedFailure:
    values = {name: value for name, value in asdict(failure).items() if name in ReportedFailure.model_fields}
    return ReportedFailure(key=failure.key, title=failure.title, **values)


def _describe_places(failure: ReportedFailure) -> str:
    return (
        f"{', '.join(failure.gfx) or 'no GPU'} with Python {', '.join(failure.pythons) or 'of every version'}"
    )


def _send(method: str, address: str, receiver: str, *, retries: int, **options: Any) -> requests.Response:
    """Send a request. Raises ReleaseError, which names no address, where there is no answer."""
    import requests

    from rocm_wheels.core import RetryingSession

    session = RetryingSession(RetryPolicy(retries=retries))
    headers = options.pop("headers", None) or {}
    session.auth = lambda request: request  # else a .netrc would take the place of the token
    try:
        return session.request(
            method, address, headers=headers, timeout=_TIMEOUT, allow_redirects=method == "GET", **options
        )
    except requests.RequestException as failure:
        reason = type(failure).__name__
        raise ReleaseError(
            f"{receiver} cannot be reached: {reason}", tip="run the same command again"
        ) from None


def _read_json(answer: requests.Response, kind: type) -> Any:
    try:
        content = answer.json()
    except ValueError:
        content = None
    if not isinstance(content, kind):
        raise ReleaseError(f"GitHub answers {answer.status_code} without the JSON that its API has")
    return content


def _read_message(answer: requests.Response) -> str:
    """Return what GitHub says, as a line."""
    try:
        message = str(answer.json().get("message", ""))
    except (ValueError, AttributeError):
        message = ""
    return "".join(letter if letter.isprintable() else " " for letter in message)[:200]
