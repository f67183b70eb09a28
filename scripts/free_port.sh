# shellcheck shell=bash
# Shared by the scripts that start servers for tests.

free_port() {
    local port
    for _ in {1..50}; do
        port=$((20000 + RANDOM % 20000))
        if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
            echo "$port"
            return
        fi
    done
    die "no free port was found"
}
