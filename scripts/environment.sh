# shellcheck shell=bash
# Sourced by ./quickstart, ./test and ./bench: makes .venv in the checkout, or finds it ready. Modules may be kept
# compiled there, also where PYTHONDONTWRITEBYTECODE is set: else each process compiles all of them, for seconds.
#
#   prepare_environment GROUP...     sets PYTHON to the interpreter of .venv
#
# PILOTAGE_PYTHON names the Python to use. Nothing outside of the checkout is changed, but for the package
# python3-venv of Debian and Ubuntu, if it is missing and we are root.

say() { printf '%s\n' "$*" >&2; }
die() {
    say "$*"
    exit 1
}

prepare_environment() {
    root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
    venv=$root/.venv
    unset PYTHONDONTWRITEBYTECODE
    PYTHON=$venv/bin/python
    local wanted
    wanted=$(fingerprint "$@")
    if [ -x "$PYTHON" ] && ready "$wanted"; then return 0; fi
    if command -v flock >/dev/null 2>&1; then
        exec 9<"$root/scripts/environment.sh" # not .venv/.lock, which is uv's own
        flock -n 9 || {
            say "waiting for another start that prepares .venv ..."
            flock 9 || true
        }
        if [ -x "$PYTHON" ] && ready "$wanted"; then
            exec 9>&-
            return 0
        fi
    fi
    say "preparing .venv (once; later starts skip this) ..."
    install_groups "$@"
    stamp "$wanted"
    if command -v flock >/dev/null 2>&1; then exec 9>&-; fi
}

# What .venv must hold: the project's files and the groups. One line for each group, so that sets can grow.
fingerprint() {
    local sum
    sum=$(cat "$root/pyproject.toml" "$root/uv.lock" | sha256sum | cut -c1-32)
    for group in "$@"; do printf '%s %s %s\n' "$sum" "$root" "$group"; done
}

ready() {
    local line
    [ -f "$venv/.ready" ] || return 1
    while IFS= read -r line; do
        grep -Fxq -- "$line" "$venv/.ready" || return 1
    done <<<"$1"
}

# Lines of older project files go; those of the same files stay, as groups are added and never taken away.
stamp() {
    local sum=${1%% *}
    {
        if [ -f "$venv/.ready" ]; then grep -F -- "$sum " "$venv/.ready" || true; fi
        printf '%s\n' "$1"
    } | sort -u >"$venv/.ready.new"
    mv "$venv/.ready.new" "$venv/.ready"
}

find_python() {
    local candidate path
    local candidates=(python3.13 python3.12 python3.11 python3 python3.14 python)
    if [ -n "${PILOTAGE_PYTHON:-}" ]; then candidates=("$PILOTAGE_PYTHON"); fi
    for candidate in "${candidates[@]}"; do
        path=$(command -v "$candidate" 2>/dev/null) || continue
        if "$path" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            printf '%s\n' "$path"
            return 0
        fi
    done
    return 1
}

install_groups() {
    local python uv arguments=()
    for group in "$@"; do arguments+=(--group "$group"); done
    if [ -x "$PYTHON" ] && ! "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        say ".venv has a Python that does not work or is too old; it is made anew"
        rm -rf "$venv"
    fi
    if [ ! -x "$PYTHON" ]; then
        python=$(find_python) || die "Pilotage needs Python 3.11 or newer; PILOTAGE_PYTHON=/path/to/python names one."
    else
        python=$PYTHON
    fi
    uv=$(working_uv || true)
    if [ -z "$uv" ]; then
        make_venv "$python"
        "$PYTHON" -m pip install --quiet --disable-pip-version-check uv >&2 || true
        uv=$(working_uv || true)
    fi
    if [ -n "$uv" ] && sync_with "$uv" "$python" "${arguments[@]}"; then return 0; fi
    say "uv could not install the locked versions; trying pip with the versions it finds ..."
    install_by_pip "$python" "$@"
}

working_uv() {
    local candidate
    for candidate in "$venv/bin/uv" "$(command -v uv 2>/dev/null || true)" "$HOME/.local/bin/uv"; do
        if [ -n "$candidate" ] && [ -x "$candidate" ] && "$candidate" --version >/dev/null 2>&1; then
            printf '%s\n' "$candidate"
            return 0
        fi
    done
    return 1
}

make_venv() {
    [ -x "$PYTHON" ] && "$PYTHON" -m pip --version >/dev/null 2>&1 && return 0
    if ! "$1" -c 'import venv, ensurepip' 2>/dev/null; then
        [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 ||
            die "$1 cannot make virtual environments; install it: sudo apt-get install python3-venv (or install uv)"
        say "installing python3-venv ..."
        { apt-get install -y -qq python3-venv || { apt-get update -qq && apt-get install -y -qq python3-venv; }; } \
            </dev/null >&2 || die "could not install python3-venv; please do, and start again"
    fi
    "$1" -m venv "$venv" >&2
}

sync_with() {
    local uv=$1 python=$2
    shift 2
    pip_settings_for_uv "$python"
    (
        cd "$root"
        export UV_PROJECT_ENVIRONMENT=$venv UV_PYTHON_DOWNLOADS=never UV_NO_PROGRESS=1
        unset VIRTUAL_ENV
        # --inexact: groups of other scripts, and uv itself, stay in .venv
        "$uv" sync --frozen --inexact --quiet --python "$python" "$@" >&2
    )
}

# uv does not read pip's settings. Where pip has been told of a mirror, its certificates or a proxy, uv is told too.
pip_settings_for_uv() {
    local index cert
    index=${PIP_INDEX_URL:-$(pip_setting global.index-url "$1")}
    cert=${PIP_CERT:-$(pip_setting global.cert "$1")}
    export UV_SYSTEM_CERTS=${UV_SYSTEM_CERTS:-true} # pip trusts the system's certificates too
    if [ -n "$index" ] && [ -z "${UV_DEFAULT_INDEX:-}${UV_INDEX_URL:-}" ]; then export UV_DEFAULT_INDEX=$index; fi
    if [ -n "$cert" ] && [ -f "$cert" ] && [ -z "${SSL_CERT_FILE:-}" ]; then export SSL_CERT_FILE=$cert; fi
    export UV_HTTP_TIMEOUT=${UV_HTTP_TIMEOUT:-120}
}

pip_setting() {
    local python
    for python in "$PYTHON" "$2"; do
        if [ -x "$python" ] && "$python" -m pip config get "$1" 2>/dev/null; then return 0; fi
    done
}

install_by_pip() {
    local python=$1 requirements
    shift
    make_venv "$python"
    requirements=$("$PYTHON" - "$root/pyproject.toml" "$@" <<'PYTHON'
import sys, tomllib
groups = tomllib.load(open(sys.argv[1], "rb"))["dependency-groups"]
def walk(name):
    for entry in groups[name]:
        if isinstance(entry, str): print(entry)
        else: walk(entry["include-group"])
for name in sys.argv[2:]: walk(name)
PYTHON
    )
    (
        cd "$root"
        # shellcheck disable=SC2046
        printf '%s\n' "$requirements" >"$venv/.requirements"
        "$PYTHON" -m pip install --quiet --disable-pip-version-check -e . -r "$venv/.requirements" >&2
    ) || die "the dependencies could not be installed: is the package index (pip config list) reachable?"
}
