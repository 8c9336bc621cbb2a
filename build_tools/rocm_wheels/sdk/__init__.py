"""The ROCm packages: made from artifacts, installed into build environments, asked.

``build_packages`` makes wheels from an artifacts tree, ``install`` puts them into an
isolated environment, ``ask`` reads what an installed SDK says about itself.
"""
