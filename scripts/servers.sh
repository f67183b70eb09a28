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

# end_process FILE: kills the process whose id the file holds, and waits until it is gone. Fails where there is no such file.
end_process() {
    local pid
    pid=$(cat "$1" 2>/dev/null) || return
    builtin kill -KILL "$pid" 2>/dev/null || true
    while builtin kill -0 "$pid" 2>/dev/null; do
        sleep 0.01
    done
}
