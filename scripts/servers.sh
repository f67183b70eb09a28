# shellcheck shell=bash
# Shared by the scripts that start servers for tests.

free_port() {
    local port
    for _ in {1..50}; do
        # Below the ports that the system gives to connections.
        port=$((20000 + RANDOM % 12000))
        if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
            echo "$port"
            return
        fi
    done
    die "no free port was found"
}

# moto, which speaks the protocols of SQS and S3, of the versions in scripts/moto/requirements.lock: prints the folder of the virtual
# environment. It is installed once into target/, with the lock file's hash in its name. To change a version, change requirements.txt,
# and then, in that folder:
#
#   uv pip compile --universal --generate-hashes --no-annotate --no-header --python-version 3.10 requirements.txt -o requirements.lock
#
# Needs python3 with venv, and once a connection to PyPI or to a mirror (PIP_INDEX_URL).
installed_moto() {
    local root lock venv
    root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
    lock=$root/scripts/moto/requirements.lock
    venv=$root/target/moto-$(sha256sum "$lock" | head -c 12)
    if [[ ! -e $venv/complete ]]; then
        rm -rf "$venv"
        mkdir -p "$root/target"
        python3 -m venv "$venv" >&2 || die "python3 has no venv (on Debian: apt-get install python3-venv)"
        "$venv/bin/pip" install -q --disable-pip-version-check --require-hashes -r "$lock" >&2 ||
            die "moto could not be fetched from PyPI; see above. This needs a connection to it, or to a mirror (PIP_INDEX_URL)"
        touch "$venv/complete"
    fi
    echo "$venv"
}

# end_process FILE: kills the process whose id the file holds, and waits until it is gone. Fails where there is no such file.
end_process() {
    local pid
    pid=$(cat "$1" 2>/dev/null) || return
    builtin kill -KILL "$pid" 2>/dev/null || true
    while builtin kill -0 "$pid" 2>/dev/null; do
        sleep 0.01
    done
}

# remove_server DIR: kills the server whose folder this is, and removes the folder. Does nothing where there is none.
remove_server() {
    if [[ -n $1 && -d $1 ]]; then
        end_process "$1/pid" || true
        rm -rf "$1"
    fi
}
