#!/usr/bin/env bash
# Runs three nodes of Toolcrib on one PostgreSQL database behind HAProxy, all on loopback addresses, until Ctrl-C or
# SIGTERM. See README.md.

set -euo pipefail

usage="\
usage: examples/cluster/run.sh [--port PORT] [--state DIR] [--store URL]

  --port PORT   port of the balancer on 127.0.0.1; 0 selects a free one (default: 7450)
  --state DIR   keep database, node directories and logs in DIR (default: a temporary directory, removed at the end)
  --store URL   use this store, instead of a PostgreSQL that is started and ended with the nodes

environment:
  TOOLCRIB               the program (default: \`toolcrib\` in PATH)
  TOOLCRIB_ADMIN_TOKEN   token of the administrator on all nodes (default: a random one, kept in DIR/admin.token)"

example_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
port=7450
state_dir=
store=
# Secrets are in the environment of those processes alone that need them.
admin_token=${TOOLCRIB_ADMIN_TOKEN:-}
database_password=${PGPASSWORD:-}
unset TOOLCRIB_ADMIN_TOKEN PGPASSWORD
postgres_pid=
haproxy_pid=
is_interrupted=
declare -A node_pids=()

main() {
    parse_arguments "$@"
    # Variables for another database, such as `PGSSLMODE`, would apply to the one that is started here, too.
    [[ $store ]] || unset "${!PG@}"
    find_programs
    ((port == 0)) || check_port
    # Before anything is created.
    trap 'is_interrupted=true; exit 130' INT
    trap 'is_interrupted=true; exit 143' TERM
    trap 'is_interrupted=true; exit 129' HUP
    trap stop_all EXIT
    create_state_dir
    choose_admin_token
    [[ $store ]] || start_postgres
    for name in a b c; do
        start_node "$name"
    done
    for name in a b c; do
        wait_for_node "$name"
    done
    start_haproxy
    echo "balancer on http://127.0.0.1:$port (MCP clients connect to /mcp, people to /)"
    echo "admin token in $token_location"
    echo "logs in $state_dir; Ctrl-C ends everything"
    watch_processes
}

fail() {
    echo "error: $1" >&2
    exit 1
}

parse_arguments() {
    while (($#)); do
        case $1 in
            --port | --state | --store)
                (($# > 1)) || fail "\`$1\` needs a value"
                case $1 in
                    --port) port=$2 ;;
                    --state) state_dir=$2 ;;
                    --store) store=$2 ;;
                esac
                shift 2
                ;;
            -h | --help)
                echo "$usage"
                exit 0
                ;;
            *)
                echo "$usage" >&2
                fail "unknown argument \`$1\`"
                ;;
        esac
    done
    [[ $port =~ ^[0-9]{1,5}$ ]] && ((10#$port <= 65535)) || fail "\`$port\` is not a port"
    # Without leading zeros, which would make it an octal number.
    port=$((10#$port))
}

find_programs() {
    # Debian installs HAProxy where only root's PATH leads.
    PATH=$PATH:/usr/local/sbin:/usr/sbin
    toolcrib=$(type -P "${TOOLCRIB:-toolcrib}") || fail "\`${TOOLCRIB:-toolcrib}\` is missing; set TOOLCRIB to its path"
    toolcrib=$(realpath "$toolcrib")
    for program in setsid setpriv flock; do
        [[ $(type -P $program) ]] || fail "\`$program\` is missing; on Debian: apt-get install util-linux"
    done
    [[ $(type -P haproxy) ]] || fail "\`haproxy\` is missing; on Debian: apt-get install haproxy"
    [[ $store ]] && return
    local initdb
    initdb=$(compgen -G '/usr/lib/postgresql/*/bin/initdb' | sort -V | tail -n 1 || true)
    [[ $initdb ]] || initdb=$(type -P initdb) || fail "PostgreSQL is missing; on Debian: apt-get install postgresql"
    postgres_bin=$(dirname "$(readlink -f "$initdb")")
    # PostgreSQL refuses to run as root. Debian's package creates a user for it.
    postgres_user=()
    if ((EUID == 0)); then
        id -u postgres >/dev/null 2>&1 || fail "PostgreSQL does not run as root, and there is no user \`postgres\`"
        postgres_user=(--reuid=postgres --regid=postgres --init-groups)
    fi
}

create_state_dir() {
    local is_new=true
    if [[ $state_dir ]]; then
        is_temporary=
        [[ ! -e $state_dir ]] || is_new=
        mkdir -p "$state_dir"
        state_dir=$(cd "$state_dir" && pwd)
    else
        is_temporary=true
        state_dir=$(mktemp -d "${TMPDIR:-/tmp}/toolcrib-cluster-XXXXXX")
    fi
    # Inherited by all processes, so that the directory is in use until the last one has ended.
    exec {lock}>"$state_dir/lock"
    flock --nonblock "$lock" || fail "\`$state_dir\` is in use by another run"
    # The user `postgres` has to pass through it; the directories in it are private. The mode of a directory that was there
    # before belongs to its owner.
    if [[ $is_new ]] && ((EUID == 0)); then
        chmod 711 "$state_dir"
    fi
}

choose_admin_token() {
    token_location="the variable TOOLCRIB_ADMIN_TOKEN"
    if [[ ! $admin_token ]]; then
        token_location=$state_dir/admin.token
        if [[ ! -f $token_location ]]; then
            (umask 077 && random_hex >"$token_location.new")
            mv "$token_location.new" "$token_location"
        fi
        admin_token=$(<"$token_location")
    fi
}

random_hex() {
    od -An -N 24 -t x1 /dev/urandom | tr -d ' \n'
    echo
}

# A random port below those that the system gives to clients. The caller tries another one if it is in use.
random_port() {
    echo $((20000 + RANDOM % 12000))
}

start_postgres() {
    local directory=$state_dir/postgres
    [[ -d $directory ]] || create_postgres_directory "$directory"
    # The nodes have it from here.
    database_password=$(<"$directory/password")
    # A directory that the user who runs PostgreSQL can access.
    cd "$directory" || fail "\`$directory\` cannot be accessed"
    local attempt database_port
    for attempt in {1..10}; do
        database_port=$(random_port)
        # If this script is killed, PostgreSQL gets the signal by which the script ends it.
        setpriv "${postgres_user[@]}" --pdeathsig INT setsid "$postgres_bin/postgres" -D "$directory/data" \
            -c listen_addresses=127.0.0.1 -c port="$database_port" -c unix_socket_directories= -c max_connections=200 \
            </dev/null >"$state_dir/postgres.log" 2>&1 &
        postgres_pid=$!
        if wait_for "PostgreSQL" "$postgres_pid" "$state_dir/postgres.log" is_database_ready; then
            create_database
            cd "$example_dir"
            store=postgres://toolcrib@127.0.0.1:$database_port/toolcrib
            return
        fi
        grep -q 'could not create any TCP/IP sockets' "$state_dir/postgres.log" || break
    done
    postgres_pid=
    fail "PostgreSQL does not start; see $state_dir/postgres.log"
}

# Creates the directory under another name, so that it is complete whenever this script ends.
create_postgres_directory() {
    local new=$1.new
    rm -rf "$new"
    mkdir -m 700 "$new"
    (umask 077 && random_hex >"$new/password")
    if ((EUID == 0)); then
        chown -R postgres: "$new"
    fi
    cd "$new" || fail "\`$new\` cannot be accessed"
    setpriv "${postgres_user[@]}" test -x "$new" ||
        fail "the user \`postgres\` cannot access \`$new\`; choose another directory with \`--state\`"
    setpriv "${postgres_user[@]}" "$postgres_bin/initdb" --pgdata "$new/data" --username=toolcrib \
        --pwfile="$new/password" --auth=scram-sha-256 --encoding=UTF8 --locale=C.UTF-8 >"$state_dir/initdb.log" 2>&1 ||
        fail "\`initdb\` failed; see $state_dir/initdb.log"
    cd "$state_dir"
    mv "$new" "$1"
}

# Whether this PostgreSQL accepts connections, as it reports in a file: its process id is in line 1, its state in line 8.
# Whatever answers at the port may be another server.
is_database_ready() {
    local lines=()
    { mapfile -t lines <"$state_dir/postgres/data/postmaster.pid"; } 2>/dev/null || return 1
    [[ ${lines[0]:-} == "$postgres_pid" && ${lines[7]:-} == ready* ]]
}

create_database() {
    local psql=("$postgres_bin/psql" --no-psqlrc --quiet --host=127.0.0.1 --port="$database_port" --username=toolcrib)
    local found
    found=$(PGPASSWORD=$database_password "${psql[@]}" --tuples-only \
        --command "SELECT 'found' FROM pg_database WHERE datname = 'toolcrib'" postgres)
    [[ $found ]] || PGPASSWORD=$database_password "${psql[@]}" --command 'CREATE DATABASE toolcrib' postgres
}

start_node() {
    # The secrets are outside the command line, where other users could read them. The balancer is a process of this machine,
    # like those that need no token: all clients need one.
    (
        export TOOLCRIB_ADMIN_TOKEN=$admin_token
        [[ ! $database_password ]] || export PGPASSWORD=$database_password
        exec setpriv --pdeathsig TERM setsid "$toolcrib" serve --config "$example_dir/cluster.yaml" --store "$store" \
            --node "$1" --data "$state_dir/node-$1" --listen 127.0.0.1:0 --require-token \
            </dev/null >"$state_dir/node-$1.out" 2>"$state_dir/node-$1.log"
    ) &
    node_pids[$1]=$!
}

wait_for_node() {
    local name=$1
    wait_for "node $name" "${node_pids[$name]}" "$state_dir/node-$name.log" node_listens ||
        fail "node $name does not start; see $state_dir/node-$name.log"
    local address
    address=$(sed -n 's|^listening on http://||p' "$state_dir/node-$name.out")
    declare -gx "NODE_${name^^}=$address"
    echo "node $name on http://$address (process ${node_pids[$name]})"
}

node_listens() {
    grep -q '^listening on ' "$state_dir/node-$name.out"
}

start_haproxy() {
    local attempt wanted_port=$port
    for attempt in {1..10}; do
        ((wanted_port != 0)) || port=$(random_port)
        if ((wanted_port != 0)); then
            check_port
        elif is_port_used; then
            continue
        fi
        export BALANCER_LISTEN=127.0.0.1:$port
        setpriv --pdeathsig USR1 setsid haproxy -db -f "$example_dir/haproxy.cfg" </dev/null >"$state_dir/haproxy.log" 2>&1 &
        haproxy_pid=$!
        if wait_for "HAProxy" "$haproxy_pid" "$state_dir/haproxy.log" cluster_is_ready; then
            return
        fi
        haproxy_pid=
        # Another program may have taken a random port in the meantime.
        ((wanted_port == 0)) && grep -qi 'cannot bind' "$state_dir/haproxy.log" || break
    done
    fail "HAProxy does not start; see $state_dir/haproxy.log"
}

check_port() {
    ! is_port_used || fail "port $port is in use; choose another one with \`--port\`"
}

is_port_used() {
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null
}

cluster_is_ready() {
    local status
    # In a subshell, because a refused connection is an error of the redirection.
    status=$( (exec 3<>"/dev/tcp/127.0.0.1/$port" && printf 'GET /readyz HTTP/1.0\r\nHost: localhost\r\n\r\n' >&3 &&
        head -n 1 <&3) 2>/dev/null) || return 1
    [[ $status == *' 200 '* ]]
}

# Waits until a command succeeds: `wait_for NAME PID LOG COMMAND`. Returns 1 if the process has ended, and fails after 60
# seconds.
wait_for() {
    local deadline=$((SECONDS + 60))
    until "$4"; do
        kill -0 "$2" 2>/dev/null || return 1
        ((SECONDS < deadline)) || fail "$1 is not ready after 60 s; see $3"
        sleep 0.05
    done
    # The command may have succeeded because of another program.
    kill -0 "$2" 2>/dev/null
}

# Runs until a process ends without which the cluster is of no use.
watch_processes() {
    local name
    while true; do
        # Returns early for a signal, whose trap then runs.
        wait -n || true
        kill -0 "$haproxy_pid" 2>/dev/null || fail "HAProxy has ended; see $state_dir/haproxy.log"
        [[ ! $postgres_pid ]] || kill -0 "$postgres_pid" 2>/dev/null ||
            fail "PostgreSQL has ended; see $state_dir/postgres.log"
        for name in "${!node_pids[@]}"; do
            if ! kill -0 "${node_pids[$name]}" 2>/dev/null; then
                echo "node $name has ended; the balancer uses the others"
                unset "node_pids[$name]"
            fi
        done
        ((${#node_pids[@]} > 0)) || fail "all nodes have ended; see $state_dir/node-*.log"
    done
}

# Ends everything. The balancer accepts no more connections, but passes on the responses of the nodes, which finish their
# calls. The database is last.
stop_all() {
    local status=$?
    trap '' INT TERM HUP
    set +e
    signal_processes USR1 "$haproxy_pid"
    signal_processes TERM "${node_pids[@]}"
    wait_for_end 20 "${node_pids[@]}"
    # Now it passes on the last bytes. It would still wait for clients that keep idle connections open.
    wait_for_end 2 "$haproxy_pid"
    # SIGINT: a database that disconnects its clients.
    signal_processes INT "$postgres_pid"
    wait_for_end 20 "$postgres_pid"
    if [[ ${is_temporary:-} && $state_dir ]]; then
        if [[ $is_interrupted ]]; then
            rm -rf "$state_dir"
        else
            echo "logs are kept in $state_dir" >&2
        fi
    fi
    exit "$status"
}

# Sends a signal to processes: `signal_processes SIGNAL PID…`. An empty id is none.
signal_processes() {
    local signal=$1 pid
    shift
    for pid in "$@"; do
        [[ ! $pid ]] || kill -s "$signal" "$pid" 2>/dev/null
    done
}

# Waits until processes have ended, and kills those that still run after some seconds: `wait_for_end SECONDS PID…`.
wait_for_end() {
    local deadline=$((SECONDS + $1)) pid
    shift
    for pid in "$@"; do
        [[ $pid ]] || continue
        while kill -0 "$pid" 2>/dev/null; do
            ((SECONDS < deadline)) || kill -s KILL "$pid" 2>/dev/null
            sleep 0.05
        done
        # Its status is of no interest, and bash would report it.
        wait "$pid" 2>/dev/null
    done
}

main "$@"
