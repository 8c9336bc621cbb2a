"""What ``.gitmodules`` says, by git's own rules."""

from __future__ import annotations

import pytest

from rocm_wheels.core import errors
from rocm_wheels.sources import submodules


def listed(*pairs: str) -> str:
    """What ``git config -z --list`` prints."""
    return "".join(f"{pair.replace('=', chr(10), 1)}\0" for pair in pairs)


def test_what_is_said_of_submodules() -> None:
    first, second = "submodule.third_party/a", 'submodule.odd "n\u00e4me".v2'
    pairs = ["core.bare=false", f"{first}.path=third_party/a", f"{first}.url=https://h/a"]
    pairs += [f"{first}.url=https://h/second", f"{first}.shallow=true", f"{second}.path=odd dir/"]
    pairs += [f"{second}.update=none", "submodule.nowhere.url=x", "submodule.old"]
    found = submodules.parse_gitmodules(listed(*pairs), name="f")
    assert found == {
        "third_party/a": submodules.Submodule("third_party/a", "third_party/a", "https://h/a", shallow=True),
        "odd dir": submodules.Submodule('odd "n\u00e4me".v2', "odd dir", None, enabled=False),
    }
    assert submodules.parse_gitmodules("", name="f") == {}


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (["submodule.a.path=../a"], "f: the path of a submodule, '../a', does not stay in the tree"),
        (["submodule.a.path=/a"], "the path of a submodule, '/a'"),
        (["submodule.a.path=x/.GIT/hooks"], "does not stay in the tree"),
        (["submodule.../a.path=a"], "the name of a submodule, '../a'"),
        (["submodule.a.path=a", "submodule.a.url=--upload-pack=x"], "'--upload-pack=x' is not a repository"),
        (["submodule.a.path=a", "submodule.a.url=x\ny"], "is not a repository"),
        (["submodule.a.path=p", "submodule.b.path=p"], "f: p is the path of a and of b"),
    ],
)
def test_what_git_refuses_as_well(pairs: list[str], message: str) -> None:
    with pytest.raises(errors.SourceError, match=message):
        submodules.parse_gitmodules(listed(*pairs), name="f")


@pytest.mark.parametrize(
    ("parent", "url", "whole"),
    [
        ("https://h/a/b.git", "../c.git", "https://h/a/c.git"),
        ("https://h/a/b.git/", "../../c/d/", "https://h/c/d"),
        ("https://h/a/b", "./c", "https://h/a/b/c"),
        ("https://h/a/b", "https://other/c", "https://other/c"),
        ("file:///x/root", "../middle", "file:///x/middle"),
        ("file:///root", "../middle", "file:///middle"),
        ("/x/root", "../../m", "/m"),
        ("git@h:a/b.git", "../c", "git@h:a/c"),
        ("git@h:a/b.git", "../../c", "git@h:c"),
        ("ssh://git@h:22/a/b", "../c", "ssh://git@h:22/a/c"),
        ("https://h/a", ".../c", ".../c"),
    ],
)
def test_relative_urls(parent: str, url: str, whole: str) -> None:
    assert submodules.resolve_submodule_url(parent, url) == whole


@pytest.mark.parametrize(
    ("parent", "url"),
    [
        ("https://h/a", "../../c"),
        ("git@h:a/b", "../../../c"),
        ("/a", "../../c"),
        ("https://u:secret@h/a", "../../../c"),
    ],
)
def test_too_far_up(parent: str, url: str) -> None:
    with pytest.raises(errors.SourceError, match="goes further up than") as refused:
        submodules.resolve_submodule_url(parent, url)
    assert "secret" not in str(refused.value)
