"""CI: which wheels a run builds and tests, and containers.

A ``MatrixSelection`` and the table ``data/ci.yaml`` give a ``Matrix`` of cells (family, Python, torch line,
platform), built or left out with a reason; rows hand them to the workflows of ``.github/workflows``, each
with a limit of time (``matrix --rows``).
``Container`` becomes the command line of docker or podman (``container``).
"""
