"""The demonstration: its inputs and the commands that it types.

Small sources as git repositories, a miniature ROCm and PyTorch's hipify are made once, whole or not at all;
``DemoCommand`` is an ordinary command line of the build or of the release part. Only its own command
imports this package.
"""
