"""Credentials never reach a log or a screen, and looking for them costs next to nothing."""

from __future__ import annotations

import time

import pytest

from rocm_wheels.core import shell


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://me:secret@host/x", "https://***@host/x"),
        ("https://me:p@ss@host/x", "https://***@host/x"),
        ("--index-url=https://me:secret@host/x", "--index-url=https://***@host/x"),
        ("'git+https://me:secret@host/x@main'", "'git+https://***@host/x@main'"),
        ("file:///home/me@work/x", "file:///home/me@work/x"),
        ("https://host/a@b somebody@example.org", "https://host/a@b somebody@example.org"),
        ("https://host/x?token=abc", "https://host/x?token=***"),
        ("https://host/x?sv=1&sig=a%2Bb&se=2#sha256=9", "https://host/x?sv=1&sig=***&se=2#sha256=9"),
        ("https://b/?X-Amz-Credential=a/b&X-Goog-Signature=c", "https://b/?X-Amz-Credential=***&X-Goog-Signature=***"),
        ("https://me:p@host/x?private_token=abc", "https://***@host/x?private_token=***"),
        ("<a href='https://h/x?a=1&amp;Signature=abc'>", "<a href='https://h/x?a=1&amp;Signature=***'>"),
        ("https://host/x?tokens=3&sigma=2&monkey=1", "https://host/x?tokens=3&sigma=2&monkey=1"),
    ],
)  # fmt: skip
def test_what_is_hidden(text: str, shown: str) -> None:
    assert shell.hide_credentials(text) == shown


def test_one_endless_word_is_no_trap() -> None:
    begin = time.process_time()
    shell.hide_credentials("a" * 200_000 + " " + "://" * 20_000)
    for endless in ("?" * 200_000 + "=", "?a-" * 70_000 + "=", "?token-" * 30_000, "&token=" * 30_000):
        shell.hide_credentials(endless)
    assert time.process_time() - begin < 1


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("AWS_SECRET_ACCESS_KEY", "abc", "***"),
        ("SCCACHE_WEBDAV_TOKEN", "abc", "***"),
        ("SCCACHE_AZURE_CONNECTION_STRING", "AccountName=x;AccountKey=abc", "***"),
        ("GH_PAT", "abc", "***"),
        ("AZURE_STORAGE_KEY", "abc", "***"),
        ("AWS_SECRET_ACCESS_KEY", "", ""),
        ("SCCACHE_REDIS", "redis://:abc@host:6379/0", "redis://***@host:6379/0"),
        ("CCACHE_REMOTE_STORAGE", "http://h/x|bearer-token=abc|layout=bazel", "http://h/x|bearer-token=***|layout=bazel"),
        ("CONTAINER_URL", "https://a.blob/x?sv=1&sig=abc&se=2", "https://a.blob/x?sv=1&sig=***&se=2"),
        ("CMAKE_ARGS", "-DA=1 -DMY_TOKEN=abc;-DKEY_PATH=/x", "-DA=1 -DMY_TOKEN=***;-DKEY_PATH=/x"),
        ("SCCACHE_S3_KEY_PREFIX", "linux/v1", "linux/v1"),
        ("TOKENIZERS_PARALLELISM", "false", "false"),
        ("CACHE_KEY", "v1", "v1"),
    ],
)  # fmt: skip
def test_values_of_variables(name: str, value: str, shown: str) -> None:
    assert shell.hide_variable_value(name, value) == shown
    assert shell.redact_environment({name: value, "GONE_TOKEN": None}) == {name: shown, "GONE_TOKEN": None}


def test_a_command_for_the_shell_tells_no_secrets() -> None:
    line = shell.format_command(
        ["build", "--set-env", "triton:GH_PAT=abc", "-DMY_TOKEN=abc", "A=b c"],
        changes={"SCCACHE_WEBDAV_TOKEN": "abc", "AWS_SESSION_TOKEN": None, "SCCACHE_BUCKET": "b"},
    )
    assert line == (
        "env -u AWS_SESSION_TOKEN SCCACHE_WEBDAV_TOKEN='***' SCCACHE_BUCKET=b"
        " build --set-env 'triton:GH_PAT=***' '-DMY_TOKEN=***' 'A=b c'"
    )


def test_secrets_are_hidden_in_what_programs_print() -> None:
    env = {
        "AWS_SESSION_TOKEN": "longer-secret",
        "GH_PAT": "secret",
        "MY_TOKEN": "short",
        "CCACHE_REMOTE_STORAGE": "http://h|bearer-token=of-the-store",
        "CMAKE_ARGS": "-DA=notsecret -DMY_TOKEN=for-cmake",
    }
    secrets = shell.find_secrets(env)
    assert secrets == ("longer-secret", "of-the-store", "for-cmake", "secret")
    said = "403 for longer-secret, of-the-store, secret and short: https://a:b@host"
    assert shell.hide_secrets(said, secrets) == "403 for ***, ***, *** and short: https://***@host"


def test_looking_for_words_is_no_trap_either() -> None:
    begin = time.process_time()
    for endless in (
        "a" * 200_000,
        "_" * 200_000 + "=",
        "a=" * 100_000,
        "-D" * 100_000,
        "bearer-token" * 20_000,
    ):
        shell.hide_variable_value("X", endless)
    assert time.process_time() - begin < 1
