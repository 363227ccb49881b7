#!/bin/sh
# Make a virtual environment with a Python that is new enough: make-venv.sh DIRECTORY
# PYTHON names the interpreter (python3 unless told). An environment that works is kept.
set -eu

venv=$1
python=${PYTHON:-python3}

fail() {
    printf '%s\n' "$@" >&2
    exit 1
}

new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

as_root=
[ "$(id -u)" = 0 ] || as_root='sudo '

if new_enough "$venv/bin/python" && "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    exit 0
fi

# Where python3 is an old one, a newer may be there under its full name.
if [ "$python" = python3 ] && ! new_enough python3; then
    for other in python3.13 python3.12 python3.11; do
        if new_enough "$other"; then
            python=$other
            break
        fi
    done
fi

if ! new_enough "$python"; then
    if command -v "$python" >/dev/null; then
        found="'$python' is $("$python" --version 2>&1)"
    else
        found="there is no '$python'"
    fi
    fail "Python 3.11 or newer is needed; $found. On Debian 12 or newer:" \
        "    ${as_root}apt-get install -y python3 python3-venv && make setup PYTHON=/usr/bin/python3" \
        "Or name one that is there already: make setup PYTHON=/path/to/python3"
fi

version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
# Debian leaves ensurepip, which venv needs, out of its python3 package.
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    fail "'$python' (Python $version) lacks the venv module. On Debian:" \
        "    ${as_root}apt-get install -y python$version-venv"
fi

echo "Making $venv with Python $version"
"$python" -m venv --clear "$venv"
