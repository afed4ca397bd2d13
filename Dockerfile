# The relay as a plain worker, for an outbox in SQL: docs/sql.md#in-containers. The function app is deployed as files
# and does not use this image.
#
#   docker build --tag outbox-relay .
#   docker run --rm --env-file relay.env outbox-relay
# Dependabot updates the digest; by hand: docker buildx imagetools inspect python:3.13-slim
FROM python:3.13-slim@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b

# What mssql-python needs of the system: https://github.com/microsoft/mssql-python#installation
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates libgssapi-krb5-2 libkrb5-3 libltdl7 \
    && rm -rf /var/lib/apt/lists/*

# SSL_CERT_FILE: sslrootcert=system of a PostgreSQL URL. The wheel of psycopg has an OpenSSL of its own, which would
# look for the certificates where they were on the machine that built it.
ENV PYTHONUNBUFFERED=1 \
    SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt

WORKDIR /app

COPY packages/operator/requirements.lock ./
RUN python -m pip install --no-cache-dir --disable-pip-version-check --root-user-action=ignore \
        --require-hashes --only-binary=:all: -r requirements.lock

COPY outbox_relay/ outbox_relay/
COPY relay/ relay/
COPY packages/command_line/src/outbox_relay/command_line/ outbox_relay/command_line/
COPY packages/operator/src/outbox_relay/operator/ outbox_relay/operator/
# relay.toml only if there is one: a COPY needs a file that exists.
COPY packages/operator/requirements.lock relay.tom[l] ./
# The user below cannot write here, so every start would compile the modules anew.
RUN python -m compileall -q outbox_relay relay

# A number, as Kubernetes cannot tell of a name whether it is root's (runAsNonRoot).
USER 10001:10001

# The process has the signal itself, without a shell between: it finishes the pages under way, and releases its shards.
STOPSIGNAL SIGTERM
CMD ["python", "-m", "relay", "run"]
