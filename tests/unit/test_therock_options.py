"""Every option of TheRock's scripts is one of the script of that name here, but for those that
docs/pages/reference/therock.md names with another way.
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import click
import pytest

pytestmark = pytest.mark.contract

CLONE = Path(__file__).resolve().parents[2]
# ROCm/TheRock@89553ce3746eda74ade42557470d25e37c91b6f0, and --target of an older fetch_artifacts.py; of the
# three last, which make ROCm itself, those that say which ROCm and to where
OPTIONS = {
    "build_prod_wheels.py": """
        --apex-dir --[no-]build-apex --[no-]build-pytorch-audio --[no-]build-pytorch-vision
        --[no-]build-triton --[no-]clean --[no-]enable-pytorch-flash-attention --find-links
        --index-url --[no-]install-rocm --output-dir --[no-]pre --pytorch-audio-dir
        --pytorch-build-number --pytorch-dir --pytorch-rocm-arch --pytorch-vision-dir --release-type
        --rocm-extras --rocm-sdk-version --root-checkout-dir --triton-dir
        --use-ccache --use-sccache --version-suffix
    """,
    "run_pytorch_smoke_tests.py": """
        --amdgpu-family
    """,
    "run_pytorch_tests.py": """
        --[no-]allow-version-mismatch --amdgpu-family --gpu-policy --pytorch-dir -k
    """,
    "run_pytorch_tests_full.py": """
        --[no-]allow-version-mismatch --amdgpu-family --dry-run --exclude --gpu-policy --include
        --num-shards --pytorch-dir --shard --test-config -k
    """,
    "checkout_from_manifest.py": """
        --checkout-root --expected-pytorch-git-ref --manifest --manifest-url --no-hipify --projects
    """,
    "sanity_check_wheel.py": "",
    "summarize_test_results.py": """
        --amdgpu-family --combined-dir --package-index-url --python-version --pytorch-git-ref
        --reports-dir --test-config --torch-version
    """,
    "windows_patch_fat_wheel.py": """
        --output-path
    """,
    "pytorch_torch_repo.py": """
        --checkout-dir --[no-]commit-hipify --depth --gitrepo-origin --[no-]hipify --jobs
        --repo-hashtag --repo-name --[no-]submodules
    """,
    "pytorch_audio_repo.py": """
        --checkout-dir --[no-]commit-hipify --depth --gitrepo-origin --[no-]hipify --jobs
        --repo-hashtag --repo-name --[no-]require-related-commit --[no-]submodules --torch-dir
    """,
    "pytorch_vision_repo.py": """
        --checkout-dir --[no-]commit-hipify --depth --gitrepo-origin --[no-]hipify --jobs
        --repo-hashtag --repo-name --[no-]require-related-commit --[no-]submodules --torch-dir
    """,
    "pytorch_apex_repo.py": """
        --checkout-dir --[no-]commit-hipify --depth --gitrepo-origin --[no-]hipify --jobs
        --repo-hashtag --repo-name --[no-]require-related-commit --[no-]submodules --torch-dir
    """,
    "pytorch_triton_repo.py": """
        --checkout-dir --[no-]commit-hipify --depth --gitrepo-origin --[no-]hipify --jobs
        --[no-]release --repo-hashtag --repo-name --[no-]submodules --torch-dir
    """,
    "generate_pytorch_source_manifest.py": """
        --manifest-dir --output --platform --projects --pytorch-git-refs --rocm-version
        --therock-branch --therock-commit --therock-repo --version-suffix
    """,
    "fetch_artifacts.py": """
        --amdgpu-targets --artifact-group --[no-]dry-run --exclude --output-dir --platform --run-id --target
    """,
    "install_rocm_from_artifacts.py": """
        --amdgpu-family --amdgpu-targets --artifact-group --base-only --dry-run --latest-release --output-dir
        --release --run-id --[no-]tests
    """,
    "build_python_packages.py": """
        --artifact-dir --dest-dir --linux-amdgpu-families --version --windows-amdgpu-families
    """,
}
FOLDERS = ("build_tools", "repos")
# scripts with commands: those that the options are of
COMMANDS = {"build_prod_wheels.py": ("build", "install-rocm")} | {
    f"pytorch_{name}_repo.py": ("checkout",) for name in ("torch", "audio", "vision", "apex", "triton")
}
OF_ONE = {"install-rocm": "--find-links --index-url --[no-]pre --rocm-extras --rocm-sdk-version"}


# which docs/pages/reference/therock.md names as not read
WITHDRAWN = """
    --cache --debug --device-query --exclude-distributed --exclude-jit-executor --exclude-quantization
    --pip-cache-dir --pytorch-version --sccache-no-wrap
"""


def load_script(name: str) -> click.Command:
    """Return the command of a script, as the script names it."""
    (path,) = (CLONE / folder / name for folder in FOLDERS if (CLONE / folder / name).is_file())
    call = re.search(r"_script\.run\((.+)\)", path.read_text(encoding="utf-8"))
    assert call is not None, path
    target, *arguments = re.findall(r'"([^"]+)"', call[1])
    module, _, attribute = target.partition(":")
    command: click.Command = getattr(import_module(module), attribute)
    return command(*arguments) if arguments else command  # type: ignore[return-value, arg-type]


@pytest.mark.parametrize("script", OPTIONS)
def test_each_option_is_read_by_the_script_of_that_name(script: str) -> None:
    command = load_script(script)
    for word in COMMANDS.get(script, ("",)):
        names = OF_ONE.get(word, OPTIONS[script]).split()
        expected = {name.replace("[no-]", part) for name in names for part in ("", "no-")}
        one = (
            command.get_command(click.Context(command), word) if isinstance(command, click.Group) else command
        )
        assert one is not None
        parser = one.make_parser(click.Context(one))
        assert expected - {*parser._long_opt, *parser._short_opt} == set()


def test_each_option_that_the_page_names_is_read_but_for_those_that_it_says_are_not() -> None:
    commands = [load_script(script) for script in OPTIONS]
    commands += [
        command for group in commands if isinstance(group, click.Group) for command in group.commands.values()
    ]
    read = {name for command in commands for name in command.make_parser(click.Context(command))._long_opt}
    page = (CLONE / "docs/pages/reference/therock.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(--[a-z-]+)[^`]*`", page))
    assert len(named) > 20 and named - read == set(WITHDRAWN.split())


def test_there_are_as_many_as_there_were() -> None:
    words = [word for names in OPTIONS.values() for word in names.split()]
    assert sum(2 if "[no-]" in word else 1 for word in words) == 174


BEFORE = [
    "--index-url U --rocm-extras device-gfx942 install-rocm",
    "--find-links=F --rocm-sdk-version ==7.1 --version-suffix build --no-pre -v build --output-dir d",
    "install-rocm --index-url U",
]


@pytest.mark.parametrize("line", BEFORE)
def test_options_of_a_build_may_stand_before_its_command(line: str) -> None:
    """They are the options of the command: what it refuses behind its name, it refuses before it."""
    group = load_script("build_prod_wheels.py")
    assert isinstance(group, click.Group)
    context = group.make_context("build_prod_wheels.py", line.split())
    name, command, words = group.resolve_command(context, [*context._protected_args, *context.args])
    assert name is not None and command is not None and name in line
    params = command.make_context(name, words, context).params
    if "--index-url" in line:
        assert params["index_url"] == "U"
        assert params["rocm_extras"] == ("device-gfx942" if "--rocm-extras" in line else "")
    else:
        values = (
            params["find_links"],
            params["rocm_sdk_version"],
            params["version_suffix"],
            params["pre"],
        )
        assert values == ("F", "==7.1", "build", False)
    with pytest.raises(click.UsageError):
        refused = group.make_context("build_prod_wheels.py", ["--nonsense", "3", *line.split()])
        group.invoke(refused)


@pytest.mark.parametrize("word", ["build", "install-rocm"])
def test_each_option_of_a_command_may_stand_before_it_with_its_value_or_without(word: str) -> None:
    """Other spellings and flags that are not shown included: all that the command's own parser has."""
    group = load_script("build_prod_wheels.py")
    assert isinstance(group, click.Group)
    command = group.commands[word]
    parser = command.make_parser(click.Context(command))
    options = {**parser._long_opt, **parser._short_opt}
    assert word == "install-rocm" or {"--use-ccache", "--plan", "--no-clean", "--help"} <= options.keys()
    for name, option in options.items():
        words = [name, *(["value"] if option.takes_value else [])]
        context = group.make_context("build_prod_wheels.py", [*words, word, "last"])
        found, _, rest = group.resolve_command(context, [*context._protected_args, *context.args])
        assert (found, rest) == (word, [*words, "last"])
