"""ROCm for a build: packages of it made, fetched, installed, asked; and the Python interpreters.

``artifact_sources`` finds the archives of a ROCm build, ``fetch_artifacts`` brings them here, or makes one
ROCm tree of them. ``build_packages`` makes wheels from artifacts or from an installed ROCm (``rocm_prefix``).
``build_environment`` installs those wheels into an isolated environment; ``rocm_sdk`` asks what is installed
there. ``interpreters`` finds Pythons and calls uv.
"""
