# The image that Linux wheels are built in: manylinux_2_28, so that they load wherever glibc is 2.28 or newer.
#
#   rocm-wheels container run --image build -- true     prints the line that makes it
#
# The base is what AMD builds its own wheels in: compilers (gcc-toolset-13), git, git-lfs, and every CPython of
# manylinux in /opt/python. Nothing is installed from a package list of the system, whose versions would be those of
# the day: what is added is locked by version and hash. CMake, Ninja and Python's build tools of each torch come from
# its build environment.
#
# Digest of the base: .github/workflows/multi_arch_build_portable_linux_pytorch_wheels.yml of ROCm/TheRock at
# 89553ce3746eda74ade42557470d25e37c91b6f0 names it (2026-08-18); data/containers.yaml says so, too.
# ROCm itself comes as Python packages. State of this file: written, never run.
FROM ghcr.io/rocm/therock_build_manylinux_x86_64@sha256:cf4f6d9909056906e4a1c0bc4c245658a0af4c6a6174082a86adfa2d518b7aeb

LABEL org.opencontainers.image.title="rocm-wheels build image" \
      org.opencontainers.image.description="Builds PyTorch wheels for ROCm: manylinux_2_28, x86_64" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.base.name="ghcr.io/rocm/therock_build_manylinux_x86_64" \
      org.opencontainers.image.base.digest="sha256:cf4f6d9909056906e4a1c0bc4c245658a0af4c6a6174082a86adfa2d518b7aeb"

# --no-compile and one mode for all: the same bytes from every build
COPY --chmod=0644 build_tools/requirements.lock dockerfiles/tools.lock /usr/local/lib/rocm-wheels/locks/
RUN /opt/python/cp312-cp312/bin/python3 -m venv /usr/local/lib/rocm-wheels/venv \
    && /usr/local/lib/rocm-wheels/venv/bin/python3 -m pip install --no-cache-dir --no-compile --disable-pip-version-check \
       --only-binary :all: --require-hashes \
       -r /usr/local/lib/rocm-wheels/locks/requirements.lock -r /usr/local/lib/rocm-wheels/locks/tools.lock
COPY --chmod=0755 dockerfiles/rocm-wheels /usr/local/lib/rocm-wheels/venv/bin/rocm-wheels
ENV PATH="/usr/local/lib/rocm-wheels/venv/bin:${PATH}" PYTHONDONTWRITEBYTECODE=1

# containers are started as the user who starts them; who starts this image by hand is not root either
RUN useradd --no-log-init --create-home --uid 1001 builder
USER 1001:1001
WORKDIR /home/builder
CMD ["/bin/bash"]
