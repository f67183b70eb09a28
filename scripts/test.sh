#!/usr/bin/env bash
# Every check of this repository, in one command.
#
#   scripts/test.sh              all steps; `servers` runs beside clippy, `features`, `quickstart` and `deny` beside those that
#                                mostly wait; stops at the first that fails
#   scripts/test.sh STEP...      only these
#   scripts/test.sh --list       their names
#
# Needs bash 4, rustup (or a toolchain with rustfmt and clippy), git and a C compiler. Installs what else it needs: rustfmt and
# clippy through rustup, cargo-deny with `cargo install` into the cargo home, where it stays.
#
# The tests of the console run in Chromium: as root it is installed with apt-get where it is missing, and npm fetches axe-core.
# etcd and ZooKeeper are installed in the same way.
#
# Everything is built with the dev profile, for compile time. Benches are compiled as far as clippy does. All builds but that of
# the quickstart are of the whole workspace: what a part of it depends on would have other features and be compiled once more.
#
# The tests of the store, and the runs that kill processes, go against a PostgreSQL, a Redis, an etcd, a ZooKeeper and a server of S3's
# protocol of their own, in temporary folders (scripts/postgres.sh, redis.sh, etcd.sh, zookeeper.sh, s3.sh), unless IC_TEST_POSTGRES,
# IC_TEST_REDIS, IC_TEST_ETCD, IC_TEST_ZOOKEEPER and IC_TEST_S3 name some. The tests of message brokers do the same with RabbitMQ, NATS
# and a server of SQS's protocol (scripts/rabbitmq.sh, nats.sh, sqs.sh; IC_TEST_RABBITMQ, IC_TEST_NATS, IC_TEST_SQS). The servers of S3's and SQS's protocols come
# from PyPI.
#
# The tests empty database 9 of the Redis.
#
# What cannot be installed is left out by the value `off`: IC_TEST_BROWSER=off, IC_TEST_ETCD=off,
# IC_TEST_ZOOKEEPER=off, IC_TEST_S3=off, IC_TEST_SQS=off.
#
# ADVISORIES=required makes an advisory database that can neither be fetched nor found on disk a failure. Without it
# that is said at the end, and the other checks of dependencies still count. REGISTRIES=required does the same for npm and
# PyPI, from which the SDKs of other languages, the server of SQS and axe-core come.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly FIRST=(toolchain lockfile format clippy package servers test doctest doc build)
# It mostly waits for what it fetches, so it runs beside clippy, which builds.
readonly BEFORE_TESTS=(servers)
# All of these but the last mostly wait, so those of BESIDE run meanwhile, at low priority: they build.
readonly WAITING=(examples sdks crash simulate)
readonly BESIDE=(features quickstart deny)
readonly STEPS=("${FIRST[@]}" "${WAITING[@]}" "${BESIDE[@]}")
readonly DENY_VERSION=0.20.2
readonly AXE_VERSION=4.14.1
readonly AXE_SHA256=e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745
readonly EXAMPLE_SECONDS=180

# Holds what was left out, to be said again at the end, and what the steps of BESIDE print. Files, because steps run in shells of
# their own.
FOLDER=$(mktemp -d)
NOTES=$FOLDER/notes
readonly FOLDER NOTES
: >"$NOTES"
# The processes of steps that run beside others, by the step's name.
declare -A RUNNING=()
trap 'end_background_steps; rm -rf "$FOLDER"' EXIT

die() {
    echo "scripts/test.sh: $*" >&2
    exit 1
}

note() {
    echo "note: $*" | tee -a "$NOTES"
}

have() {
    command -v "$1" >/dev/null 2>&1
}

# limited SECONDS COMMAND...: a hang is a failure, where the system has `timeout`. In the foreground, so that Ctrl-C reaches it.
limited() {
    local seconds=$1
    shift
    if have timeout; then
        timeout --foreground "$seconds" "$@"
    else
        "$@"
    fi
}

metadata() {
    cargo metadata --locked --no-deps --format-version 1
}

# The features of the library; those of other packages are named where they are checked. Finding none is a failure, by grep's status.
feature_names() {
    sed -n '/^\[features\]/,/^\[dep/p' Cargo.toml | grep -o '^[a-z][a-z-]* =' | tr -d ' =' | grep -vx default
}

example_names() {
    metadata | grep -o '"kind":\["example"\],"crate_types":\["bin"\],"name":"[^"]*"' | sed 's/.*"name":"//; s/"$//'
}

# The client library of Kafka is built from C against these.
libraries_ready() {
    pkg-config --exists openssl zlib 2>/dev/null && return
    have apt-get && [[ $(id -u) == 0 ]] ||
        die "OpenSSL and zlib are missing, which the feature kafka needs: install pkg-config, libssl-dev and zlib1g-dev"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends pkg-config libssl-dev zlib1g-dev >/dev/null
}

step_toolchain() {
    have cargo || die "cargo is missing: install Rust with rustup"
    have git || die "git is missing"
    have cc || have gcc || have clang || die "a C compiler is missing (cc, gcc or clang): TLS is built from C"
    libraries_ready
    local component
    for component in rustfmt clippy; do
        if ! cargo "${component/rustfmt/fmt}" --version >/dev/null 2>&1; then
            have rustup || die "$component is missing, and so is rustup, which would add it"
            rustup component add "$component"
        fi
    done
    rustc --version
    cargo fmt --version
    cargo clippy --version
}

step_lockfile() {
    # A lock file that does not fit Cargo.toml is found here, not as a puzzle in a later step.
    cargo fetch --locked
}

step_format() {
    cargo fmt --all --check
}

step_clippy() {
    cargo clippy --locked --workspace --all-features --all-targets -- -D warnings
}

# Each feature must build alone, without the dev-dependencies (which switch `testing` on). clippy has seen all code in its own step;
# here only what the compiler warns of can be new, such as code that nothing uses.
step_features() {
    local feature
    echo "-- no feature"
    compiles_alone -p integration-client --lib
    for feature in $(feature_names); do
        echo "-- $feature"
        compiles_alone -p integration-client --lib --features "$feature"
    done
    echo "-- the command line without PostgreSQL"
    compiles_alone -p integration-client-cli --bin integration-client
    for feature in kafka nats rabbitmq sqs webhook; do
        echo "-- message brokers: $feature"
        compiles_alone -p integration-client-intake --lib --features "$feature"
    done
}

compiles_alone() {
    cargo rustc --locked --profile check --no-default-features "$@" -- -D warnings
}

# What would be published holds all that it needs, and not much more.
step_package() {
    local folder=target/package crate size
    cargo package --locked --no-verify --allow-dirty -p integration-client -p integration-client-engine
    rm -rf "$folder/unpacked"
    mkdir -p "$folder/unpacked"
    for crate in "$folder"/*.crate; do
        tar -xzf "$crate" -C "$folder/unpacked"
        # Without the lock file, which cargo adds and a program that depends on the package does not read.
        size=$(tar -cz --exclude=Cargo.lock -C "$folder/unpacked" "$(basename "$crate" .crate)" | wc -c)
        echo "$crate: $((size / 1000)) kB without its lock file"
        [[ $size -lt 1000000 ]] || die "$crate is larger than 1 MB; see \`include\` in its Cargo.toml"
    done
    # As a program would build it, but for the engine, which is on no registry yet; with the features that include files.
    cargo check --manifest-path "$folder"/unpacked/integration-client-0*/Cargo.toml --lib --features console,testing \
        --target-dir target --config "patch.crates-io.integration-client-engine.path='$(echo "$folder"/unpacked/integration-client-engine-0*)'"
}

# Servers for the tests of the stores, for as long as the step runs.
with_servers() {
    local settings
    # Ends only what is started here: a server of somebody else's has no folder of ours.
    trap 'stop_servers' EXIT
    if [[ -z ${IC_TEST_POSTGRES:-} ]]; then
        settings=$(scripts/postgres.sh start) || die "no PostgreSQL for the tests of the store; see above"
        eval "$settings"
    fi
    if [[ -z ${IC_TEST_REDIS:-} ]]; then
        settings=$(scripts/redis.sh start) || die "no Redis for the tests of shared limits; see above"
        eval "$settings"
    fi
    if [[ -z ${IC_TEST_ETCD:-} ]]; then
        settings=$(scripts/etcd.sh start) || die "no etcd for the tests of shared limits; see above"
        eval "$settings"
    fi
    if [[ -z ${IC_TEST_ZOOKEEPER:-} ]]; then
        settings=$(scripts/zookeeper.sh start) || die "no ZooKeeper for the tests of shared limits; see above, or set IC_TEST_ZOOKEEPER=off"
        eval "$settings"
    fi
    if [[ -z ${IC_TEST_S3:-} ]]; then
        moto_server s3 IC_TEST_S3 "limits shared through an object store"
    fi
    "$@"
}

stop_servers() {
    local server
    for server in postgres redis etcd zookeeper s3; do
        "scripts/$server.sh" stop
    done
}

# moto_server NAME VARIABLE WHAT: starts one of the servers that come from PyPI; WHAT is left out where that is not possible.
moto_server() {
    local settings
    if settings=$("scripts/$1.sh" start); then
        eval "$settings"
    elif [[ ${REGISTRIES:-} == required ]] || compgen -G 'target/moto-*/complete' >/dev/null; then
        die "scripts/$1.sh could not start its server; see above"
    else
        note "NOT checked, because its server could not be started: $3"
        export "$2=off"
    fi
}

# The same with message brokers.
with_brokers() {
    local settings
    # In place of the trap of with_servers, which is inside.
    trap 'scripts/sqs.sh stop; scripts/rabbitmq.sh stop; scripts/nats.sh stop; stop_servers' EXIT
    if [[ -z ${IC_TEST_RABBITMQ:-} ]]; then
        settings=$(scripts/rabbitmq.sh start) || die "no RabbitMQ for the tests of message brokers; see above"
        eval "$settings"
    fi
    if [[ -z ${IC_TEST_NATS:-} ]]; then
        settings=$(scripts/nats.sh start) || die "no NATS for the tests of message brokers; see above"
        eval "$settings"
    fi
    if [[ -z ${IC_TEST_SQS:-} ]]; then
        moto_server sqs IC_TEST_SQS "SQS as a source of requests"
    fi
    "$@"
}

# Installs what the tests need, and starts and ends each of their servers once.
step_servers() {
    browser_ready
    etcd_ready
    with_servers with_brokers true
}

# from_registries WHAT: whether npm and PyPI can be reached, from which WHAT comes. Where not, it is said again at the end.
from_registries() {
    local what=$1 folder
    folder=$(mktemp -d)
    if limited 60 npm view --fetch-retries=1 "axe-core@$AXE_VERSION" version >"$folder/npm.log" 2>&1 &&
        python3 -m venv "$folder/venv" &&
        limited 60 "$folder/venv/bin/pip" download -q --retries 1 --no-deps -d "$folder" idna==3.10 >"$folder/pip.log" 2>&1; then
        rm -rf "$folder"
        return 0
    fi
    cat "$folder"/*.log >&2
    rm -rf "$folder"
    [[ ${REGISTRIES:-} != required ]] || die "npm or PyPI cannot be reached, and REGISTRIES=required: no $what"
    note "NOT checked, because npm or PyPI cannot be reached: $what"
    return 1
}

# Chromium and its driver, and axe-core, which finds what assistive technology cannot read.
browser_ready() {
    local folder=target/axe-$AXE_VERSION
    [[ ${IC_TEST_BROWSER:-} != off ]] || return 0
    if ! have chromedriver; then
        have apt-get && [[ $(id -u) == 0 ]] ||
            die "no browser for the tests of the console: install chromium and chromium-driver, or set IC_TEST_BROWSER=off"
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium chromium-driver >/dev/null
    fi
    if [[ -z ${IC_AXE:-} ]]; then
        if [[ ! -f $folder/package/axe.min.js ]] && ! from_registries "the console in a browser"; then
            export IC_TEST_BROWSER=off
            return 0
        fi
        if [[ ! -f $folder/package/axe.min.js ]]; then
            have npm || die "npm is missing, which fetches axe-core for the tests of the console; or set IC_TEST_BROWSER=off"
            mkdir -p "$folder"
            (cd "$folder" && npm pack --silent "axe-core@$AXE_VERSION" >/dev/null)
            echo "$AXE_SHA256  $folder/axe-core-$AXE_VERSION.tgz" | sha256sum --check --quiet
            tar -xzf "$folder/axe-core-$AXE_VERSION.tgz" -C "$folder" package/axe.min.js
        fi
        export IC_AXE=$PWD/$folder/package/axe.min.js
    fi
}

# etcd, from which a test reads its configuration.
etcd_ready() {
    [[ ${IC_TEST_ETCD:-} != off ]] && ! have etcd || return 0
    have apt-get && [[ $(id -u) == 0 ]] || die "etcd is missing: install etcd-server, or set IC_TEST_ETCD=off"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends etcd-server >/dev/null
}

# The same targets by either runner. nextest adds a time limit for each test; doc tests are a step of their own.
step_test() {
    browser_ready
    etcd_ready
    if cargo nextest --version >/dev/null 2>&1; then
        with_servers with_brokers cargo nextest run --locked --workspace --all-features --lib --bins --tests --profile ci
    else
        echo "cargo-nextest is not installed: the same tests by cargo test"
        with_servers with_brokers cargo test --locked --workspace --all-features --lib --bins --tests --no-fail-fast
    fi
}

step_doctest() {
    cargo test --locked --workspace --all-features --doc
}

step_doc() {
    RUSTDOCFLAGS="-D warnings" cargo doc --locked -p integration-client -p integration-client-engine --all-features --no-deps
}

# run_example NAME COMMAND...: to its end, without input, and its last line is not empty.
run_example() {
    local name=$1 output last
    shift
    output=$(mktemp)
    if ! limited "$EXAMPLE_SECONDS" "$@" </dev/null | tee "$output"; then
        rm -f "$output"
        die "example $name failed, or took longer than $EXAMPLE_SECONDS s"
    fi
    last=$(tail -n 1 "$output")
    rm -f "$output"
    case $name in
        fake_vendor)
            [[ $last =~ ^arrived\ 0\ admitted\ 0\  ]] || die "example $name ended with: $last"
            ;;
        simulate)
            [[ $last =~ ^simulate:\ requests=[1-9][0-9]*\ refused=0\ decisions_per_s=[1-9][0-9]*\ trace=[0-9a-f]{16}$ ]] ||
                die "example $name ended with: $last"
            ;;
        quickstart)
            [[ $last =~ ^quickstart:\ sent=[1-9][0-9]*\ refused=0\ .*\ dead_lettered=1$ ]] || die "example $name ended with: $last"
            ;;
        axum_service)
            [[ $last == "axum_service: last=200 ended_in_order=true refused=0" ]] || die "example $name ended with: $last"
            ;;
        opentelemetry)
            [[ $last =~ ^opentelemetry:\ spans=[1-9][0-9]*\ metrics=[1-9][0-9]*\ propagated=true$ ]] || die "example $name ended with: $last"
            ;;
        *)
            [[ -n $last ]] || die "example $name printed nothing at its end"
            ;;
    esac
}

# Examples and programs together: a build of programs alone would leave out what the dev-dependencies switch on, and compile
# everything once more.
step_build() {
    cargo build --locked --workspace --all-features --examples --bins
}

# For a step that is run alone. While a step of BESIDE runs, all is built, and cargo would wait for that step's build.
build_examples() {
    ((${#RUNNING[@]} > 0)) || step_build
}

step_examples() {
    local name names
    names=$(example_names)
    build_examples
    for name in $names; do
        # Steps of their own, and the soak: the tests run a minute of it.
        if [[ $name != crash_test && $name != sharing && $name != soak ]]; then
            echo "-- $name"
            run_example "$name" "target/debug/examples/$name"
        fi
    done
    # Of the package examples/service; those of examples/sdks are run by the next step.
    for name in axum_service opentelemetry; do
        echo "-- $name"
        run_example "$name" "target/debug/$name"
    done
}

# SDKs of Rust, Python and Node. Their programs are built with the examples.
step_sdks() {
    build_examples
    if from_registries "the SDKs of Python and Node"; then
        limited 300 scripts/sdks.sh
    fi
}

# Ten million requests, a million against vendors of each algorithm; its exit code is 1 when one is refused.
step_simulate() {
    build_examples
    limited 300 target/debug/examples/simulate --requests 1000000 --seed 1 >"$FOLDER/simulated" ||
        { grep -v 'refused=0' "$FOLDER/simulated" || true; die "a vendor refused, or the simulator failed or took longer than 300 s"; }
    grep 'delay=each_way ' "$FOLDER/simulated"
    tail -n 1 "$FOLDER/simulated"
}

# Nothing that was accepted is lost, whatever is killed; the last line of each run is judged by its exit code.
step_crash() {
    build_examples
    export IC_BUILT=1
    with_servers crash_runs
}

# Limits of a minute beside those of a second: they wait nearly all of the time.
sharing_by_the_minute() {
    local minute=(--window-ms 60000 --limit 100 --seconds 150) status=0 etcd
    local fault=store-restart
    [[ -n ${IC_TEST_ETCD_DIR:-} ]] || fault=kill
    { [[ $IC_TEST_ETCD == off ]] ||
        limited 240 target/debug/examples/sharing --store etcd --fault "$fault" "${minute[@]}"; } >"$1" 2>&1 &
    etcd=$!
    if [[ ${IC_TEST_S3:-} != off ]]; then
        limited 240 target/debug/examples/sharing --store s3 --fault kill --lease-ms 30000 "${minute[@]}" >"$2" 2>&1 || status=$?
    fi
    wait "$etcd" || status=$?
    cat "$1" "$2"
    rm -f "$1" "$2"
    return "$status"
}

# Processes that share a limit, while the others crash: they wait most of the time.
sharing_runs() {
    sharing_by_the_minute "$(mktemp)" "$(mktemp)" &
    local minutes=$! status=0
    sharing_by_the_second || status=$?
    wait "$minutes" || status=$?
    return "$status"
}

sharing_by_the_second() {
    limited 120 target/debug/examples/sharing --store sqlite --fault kill --seconds 30 &&
        limited 120 target/debug/examples/sharing --store postgres --fault stop5 --seconds 24 &&
        limited 120 target/debug/examples/sharing --store redis --fault kill --seconds 40 || return
    if [[ -n ${IC_TEST_REDIS_DIR:-} ]]; then
        limited 120 target/debug/examples/sharing --store redis --fault store-promote --seconds 40
    else
        note "Redis was NOT replaced by its replica: IC_TEST_REDIS names a server that is not ours to kill"
    fi
}

crash_runs() {
    local log sharing
    log=$(mktemp)
    sharing_runs >"$log" 2>&1 &
    sharing=$!
    limited 600 scripts/crash-test.sh --kills 200 --store sqlite
    limited 300 scripts/crash-test.sh --kills 50 --store postgres
    limited 200 scripts/crash-test.sh --zombies 9 --store postgres
    wait "$sharing" || { cat "$log"; rm -f "$log"; die "processes that share a limit were refused; see above"; }
    cat "$log"
    rm -f "$log"
    if [[ -n ${IC_TEST_POSTGRES_DIR:-} ]]; then
        limited 300 scripts/crash-test.sh --store-restarts 3 --store postgres
        limited 120 target/debug/examples/sharing --store postgres --fault store-kill --seconds 16
    else
        note "the store was NOT killed and restarted: IC_TEST_POSTGRES names a server that is not ours to kill"
    fi
}

# The first command of the README, as it stands there; built before, so that its time limit is not spent on compiling.
step_quickstart() {
    cargo build --locked -p demo
    run_example quickstart cargo run -p demo
}

step_deny() {
    if ! cargo deny --version >/dev/null 2>&1; then
        # Without optimisation: it runs for a second, and to optimise it takes minutes.
        echo "cargo-deny is not installed: building it, once"
        cargo install --locked --debug "cargo-deny@$DENY_VERSION" ||
            die "cargo-deny cannot be installed. With a connection: cargo install --locked cargo-deny@$DENY_VERSION"
    fi
    local deny=(cargo deny --locked --all-features) database
    "${deny[@]}" check bans licenses sources
    database=$(find "${CARGO_HOME:-$HOME/.cargo}/advisory-dbs" -mindepth 2 -maxdepth 2 -type d -name crates 2>/dev/null || true)
    if limited 120 "${deny[@]}" fetch db; then
        "${deny[@]}" check advisories
        echo "advisories checked against the database as of now"
    elif [[ -n $database ]]; then
        "${deny[@]}" --offline check advisories
        note "advisories checked against the copy on disk, because the database could not be fetched"
    elif [[ ${ADVISORIES:-} == required ]]; then
        die "the advisory database could not be fetched, and ADVISORIES=required"
    else
        note "advisories NOT checked: the database could not be fetched and no copy is on disk"
    fi
}

# begin_step NAME: starts a step beside those that follow, in a group of processes that can be ended. `run_step` waits for it.
begin_step() {
    set -m
    (
        set +e
        # Where it is missing, the step takes its share of the processors like any other.
        renice -n 10 -p "$BASHPID" >/dev/null 2>&1
        began=$SECONDS
        (
            set -e
            "step_$1"
        )
        echo "$? $((SECONDS - began))" >"$FOLDER/$1.end"
    ) </dev/null >"$FOLDER/$1.log" 2>&1 &
    RUNNING[$1]=$!
    set +m
}

begin_steps() {
    local name
    for name in "$@"; do
        begin_step "$name"
    done
}

# Whether the step runs beside others, and has failed.
has_failed() {
    [[ -n ${RUNNING[$1]:-} && -s $FOLDER/$1.end ]] && [[ $(cut -d ' ' -f 1 "$FOLDER/$1.end") != 0 ]]
}

end_background_steps() {
    local name
    for name in "${!RUNNING[@]}"; do
        if [[ $name == servers ]]; then
            # Not ended midway: apt-get would leave packages half configured, and a server that is just starting would stay.
            wait "${RUNNING[$name]}" || true
        else
            kill -- "-${RUNNING[$name]}" 2>/dev/null || true
        fi
    done
}

# Runs one step in a shell of its own, so that `set -e` holds inside it, or waits for one that was begun before; and says how to run
# it alone.
run_step() {
    local name=$1 number=$2 of=$3 began=$SECONDS status=0 seconds
    echo
    echo "=== [$number/$of] $name"
    # Not `|| status=$?` behind the parentheses: that would switch `set -e` off inside them.
    set +e
    if [[ -n ${RUNNING[$name]:-} ]]; then
        wait "${RUNNING[$name]}"
        unset "RUNNING[$name]"
        cat "$FOLDER/$name.log"
        read -r status seconds <"$FOLDER/$name.end" || status=1
    else
        (
            set -e
            "step_$name"
        )
        status=$?
        seconds=$((SECONDS - began))
    fi
    set -e
    if ((status != 0)); then
        echo
        echo "scripts/test.sh: step '$name' FAILED (exit $status) after ${seconds:-?} s" >&2
        echo "scripts/test.sh: to run it alone: scripts/test.sh $name" >&2
        exit 1
    fi
    echo "=== [$number/$of] $name: ok, $seconds s"
    STEP_TIMES+=("$(printf '%-12s %5d s' "$name" "$seconds")")
}

STEP_TIMES=()

main() {
    local steps=("${STEPS[@]}") name beside number=0
    if [[ ${1:-} == --list ]]; then
        printf '%s\n' "${STEPS[@]}"
        return
    fi
    if (($# > 0)); then
        steps=("$@")
    fi
    for name in "${steps[@]}"; do
        [[ $(type -t "step_$name") == function ]] || die "there is no step '$name'; --list shows them"
    done
    for name in "${steps[@]}"; do
        number=$((number + 1))
        if (($# == 0)) && [[ $name == clippy ]]; then
            begin_steps "${BEFORE_TESTS[@]}"
        elif (($# == 0)) && [[ $name == "${WAITING[0]}" ]]; then
            begin_steps "${BESIDE[@]}"
        fi
        run_step "$name" "$number" "${#steps[@]}"
        for beside in "${BEFORE_TESTS[@]}" "${BESIDE[@]}"; do
            ! has_failed "$beside" || run_step "$beside" "$number" "${#steps[@]}"
        done
    done
    echo
    # A step that runs before another, and what it prepares again, say the same.
    awk '!said[$0]++' "$NOTES"
    printf '%s\n' "${STEP_TIMES[@]}"
    echo "scripts/test.sh: all ${#steps[@]} steps passed in $SECONDS s"
}

main "$@"
