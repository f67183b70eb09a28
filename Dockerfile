# The gateway as a container: `integration-client serve`, and everything else the program does.
#
#   docker build -t integration-client .
#   docker run --rm -p 127.0.0.1:8099:8099 -v ./examples/gateway.toml:/etc/integration-client/vendors.toml:ro \
#       -e IC_BILLING_TOKEN=… -e ACME_STRIPE_KEY=… integration-client
#
# The configuration must state [[callers]]: inside a container the gateway listens on all addresses, and refuses to begin
# without them.
#
# This file was written where no container engine runs: neither `docker build` nor the image was tried. What the image does is
# tested (`copied_program_needs_its_environment_alone`): the program, copied into a folder that it cannot write, is run from there by
# a user without rights, with all settings from the environment.

FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
# SQLite and TLS are compiled in; nothing but libc is needed at run time.
RUN cargo build --locked --release -p integration-client-cli

FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /src/target/release/integration-client /usr/local/bin/integration-client
ENV INTEGRATION_CLIENT_LISTEN=0.0.0.0:8099 \
    INTEGRATION_CLIENT_VENDORS=/etc/integration-client/vendors.toml
EXPOSE 8099
HEALTHCHECK --interval=10s --timeout=5s CMD ["integration-client", "health"]
ENTRYPOINT ["integration-client"]
CMD ["serve", "--drain-delay", "5s"]
