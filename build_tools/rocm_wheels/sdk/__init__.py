"""The ROCm packages: made from artifacts, installed into build environments, asked.

``fetch_archives`` brings artifacts of a build here, ``install_from_artifacts`` makes one ROCm tree of them,
``build_rocm_packages`` makes wheels from an artifacts tree, ``install`` puts them into an
isolated environment, ``ask`` reads what an installed SDK says about itself.
"""
