# The image that wheels are tested in on machines with GPUs: Ubuntu 24.04 without ROCm, so that what a wheel needs and
# does not bring is missed.
#
#   rocm-wheels container run --image test -- true     prints the line that makes it
#
# Python 3.12 is the system's; uv, which is locked below, brings others. g++ and Python's headers are for what torch
# and triton compile on the user's machine.
#
# Digest of the base: repos/ubuntu/remote/24.04.md of docker-library/repo-info at
# 1c2b9d920fdd20f9cb58fbd6cd771fe434b465d6 has it; data/containers.yaml says so, too.
# Packages are those of the archive at one moment (snapshot.ubuntu.com), that of the base: every build gets the same.
# State of this file: written, never run.
FROM docker.io/library/ubuntu@sha256:69cecf4bbf72d2d44a9eef1b71fb98c7fb973d78af11399deccef19beb008ad9

ARG SNAPSHOT=20260911T120000Z

LABEL org.opencontainers.image.title="rocm-wheels test image" \
      org.opencontainers.image.description="Tests PyTorch wheels for ROCm: Ubuntu 24.04 without ROCm" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.base.name="docker.io/library/ubuntu:24.04" \
      org.opencontainers.image.base.digest="sha256:69cecf4bbf72d2d44a9eef1b71fb98c7fb973d78af11399deccef19beb008ad9"

# The archive's signature is what packages are checked by; only the first of them, which brings the certificates,
# comes without a check of the server's. Logs and caches hold times and numbers of this build, so they go.
# hadolint ignore=DL3008
RUN export DEBIAN_FRONTEND=noninteractive \
    && sed -i "s|^URIs:.*|URIs: https://snapshot.ubuntu.com/ubuntu/${SNAPSHOT}|" /etc/apt/sources.list.d/ubuntu.sources \
    && apt-get -o Acquire::https::Verify-Peer=false update \
    && apt-get -o Acquire::https::Verify-Peer=false install -y --no-install-recommends ca-certificates \
    && apt-get update \
    && apt-get install -y --no-install-recommends \
       g++ git \
       libatomic1 libelf1t64 libgfortran5 libgomp1 libnuma1 libzstd1 zlib1g \
       python3 python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt /var/cache/debconf/*-old /var/cache/ldconfig/aux-cache \
       /var/log/apt /var/log/dpkg.log /var/log/alternatives.log

COPY --chmod=0644 build_tools/requirements.lock /usr/local/lib/rocm-wheels/locks/
RUN python3 -m venv /usr/local/lib/rocm-wheels/venv \
    && /usr/local/lib/rocm-wheels/venv/bin/python3 -m pip install --no-cache-dir --no-compile --disable-pip-version-check \
       --only-binary :all: --require-hashes -r /usr/local/lib/rocm-wheels/locks/requirements.lock
COPY --chmod=0755 dockerfiles/rocm-wheels /usr/local/lib/rocm-wheels/venv/bin/rocm-wheels
ENV PATH="/usr/local/lib/rocm-wheels/venv/bin:${PATH}" PYTHONDONTWRITEBYTECODE=1

# the numbers of these groups differ from machine to machine: `container run --gpu` adds those that own the devices
RUN groupadd --system --force render \
    && useradd --no-log-init --create-home --uid 1001 --groups render,video tester
USER 1001:1001
WORKDIR /home/tester
CMD ["/bin/bash"]
