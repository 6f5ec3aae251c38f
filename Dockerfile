# `make container`: the command `verus`. `docker build --target endpoint .`: the endpoint alone, without Python.
FROM rust:1.95-slim-trixie AS build
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --no-install-recommends --yes build-essential python3 python3-pip \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY . .
RUN python3 -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM debian:trixie-slim AS endpoint
COPY --from=build /source/target/release/verus-endpoint /usr/local/bin/
USER 65534
ENTRYPOINT ["verus-endpoint"]

FROM python:3.13-slim-trixie
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir /wheels/*.whl && rm -r /wheels && useradd --create-home --uid 1000 verus
USER 1000
WORKDIR /home/verus
ENTRYPOINT ["verus"]
