# `serve` listens on loopback only, so `--publish` reaches nothing: use `--network host`, where it answers root and its own uid alone
# (`--user "$(id -u)"` with a folder of yours as the volume makes that you), or let an agent start `docker run -i … mcp`.
#
#   cargo xtask dist && docker build --tag waystone .
#   docker run --detach --name waystone --network host --volume waystone:/var/lib/waystone waystone
#   docker run -i --rm --no-healthcheck --volume waystone:/var/lib/waystone waystone mcp
#   docker exec waystone waystone status
#
# Nothing is compiled here. The binary needs the C library of Debian 12 or newer; the health check needs bash.
FROM debian:stable-slim

# Providers of models are reached over https.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/*

# A volume that is made anew takes owner and mode from here; a data directory that others can read is refused.
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin waystone \
    && install --directory --owner=10001 --group=10001 --mode=0700 /var/lib/waystone

# What `cargo xtask dist` has unpacked and run. Where it has made several, name one: `--build-arg DIST=target/dist/waystone-<version>-<target>`.
ARG DIST=target/dist/waystone-*
COPY ${DIST}/LICENSE /usr/share/doc/waystone/LICENSE
COPY ${DIST}/NOTICE /usr/share/doc/waystone/NOTICE
COPY ${DIST}/waystone /usr/local/bin/waystone

ENV WAYSTONE_DATA_DIR=/var/lib/waystone
VOLUME /var/lib/waystone
USER 10001:10001

# No command of ours asks a running server, and there is no curl: bash does. A server whose store cannot be read is not healthy, nor is one
# that serves without its data directory and keeps nothing.
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s CMD ["bash", "-c", "\
    exec 3<>/dev/tcp/127.0.0.1/${WAYSTONE_PORT:-3000} || exit 1; \
    printf 'GET /readyz HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\nConnection: close\\r\\n\\r\\n' >&3; \
    reply=$(cat <&3); echo \"$reply\"; \
    [[ $reply == 'HTTP/1.1 200 '* && $reply != *'nothing is kept'* ]] || exit 1"]

ENTRYPOINT ["waystone"]
CMD ["serve"]
