"""``set key``: a key that signs results, and its name in a policy."""

from __future__ import annotations

import codecs
import shlex
from pathlib import Path

import click

from rocm_wheels.cli import boundary, catalogue, command
from rocm_wheels.core import errors

_ANY_KEY = f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{'B' * 43}"  # in their form, and nobody's


@command.command("set key")
@click.argument("name", metavar="NAME")
@catalogue.POLICY.but(required=True, help="The policy to add it to; a copy of ours if it is missing.")
def key_command(name: str, policy: Path) -> None:
    """Make a key and name it as a signer in a policy, so that what it signs counts as tested.

    The private half is the file NAME in the folder of the policy, readable only by you; an existing one is
    used. It belongs on the machine that tests. The public half goes into the policy; keep that where changes
    are reviewed. The rest of the policy stays, comments included.

    \b
    Examples:
      rocm-wheels set key gpu-lab --policy release-policy.yaml
    """
    from rocm_wheels.core import files, ssh_signature
    from rocm_wheels.release import policy as policies

    env, private = boundary.read_environment(), policy.parent / name
    rules = policies.load_policy(policy if policy.exists() else None)
    text = policies.read_policy_text(policy if policy.exists() else None)
    has_mark = policy.exists() and policy.read_bytes().startswith(codecs.BOM_UTF8)
    if name in rules.signers:
        raise errors.UsageError(f"{policy} names a signer {name} already", tip="choose another name")
    # before a key is made: in a policy that cannot be added to, nobody could name it
    policies.add_signer(text, name, _ANY_KEY, where=str(policy))
    is_new = not private.exists()
    if is_new:
        ssh_signature.make_key(private, name, env)
    try:
        public = " ".join(ssh_signature.read_public_key(private, env).split()[:2])
        named = policies.add_signer(text, name, public, where=str(policy))
        mark = codecs.BOM_UTF8 if has_mark else b""
        files.write_atomically(policy.resolve(), mark + named.encode())
    except BaseException:
        if is_new:  # a key that no policy names is of no use
            private.unlink(missing_ok=True)
            private.with_name(f"{private.name}.pub").unlink(missing_ok=True)
        raise
    if is_new:
        click.echo(f"{private}: the private key, to sign with on the machine that tests")
    words = ["rocm-wheels", "set", "check", "STORE", "--set", "ID", "--sign-with", str(private)]
    click.echo(f"{policy}: names {name} under `signers`\nnext: {shlex.join(words)}")
