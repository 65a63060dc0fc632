# kubeleet's image where a registry can be reached: `docker build -t kubeleet .`
# Without one, scripts/images makes the same from a binary built outside.

# Debian's glibc has all of itself as a static library, so the binary needs nothing but a kernel.
FROM rust:1-bookworm AS build
WORKDIR /src
COPY . .
RUN host=$(rustc -vV | sed -n 's/^host: //p') \
 && RUSTFLAGS="-C target-feature=+crt-static" cargo build --release --locked --package kubeleet --target "$host" \
 && install -D "target/$host/release/kubeleet" /rootfs/kubeleet \
 && install -D -m 644 /etc/ssl/certs/ca-certificates.crt /rootfs/etc/ssl/certs/ca-certificates.crt \
 && mkdir -p /state/run/kubeleet /state/var/lib/kubeleet

FROM scratch
COPY --from=build /rootfs/ /
# A new volume that is mounted there belongs to the same user.
COPY --from=build --chown=65532:65532 /state/ /
# Not root. A worker also needs the group of the engine's socket: docs/how-to/operations.md
USER 65532:65532
ENTRYPOINT ["/kubeleet"]
