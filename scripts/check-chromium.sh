#!/bin/sh
# See that there is a Chromium for the tests of the live map; where there is none and we may,
# install Debian's. Without one those tests are skipped, except on CI: there this fails.
# Silent when all is well.
set -eu

. "${0%/*}/debian.sh"

# The names that tests/map/browser.py looks for.
has_chromium() {
    for name in chromium chromium-browser google-chrome; do
        command -v $name >/dev/null && return
    done
    return 1
}

if has_chromium; then
    exit 0
fi

# On CI (where CI is set, as most services do) tests must not be skipped unnoticed.
give_up() {
    say "$@"
    [ -z "${CI:-}" ] || exit 1
    exit 0
}

say "There is no Chromium, which the tests of the live map need."
if ! command -v apt-get >/dev/null; then
    give_up "Those tests are skipped. Install Chromium or Chrome to run them."
fi
if ! may_install; then
    give_up "Those tests are skipped. To run them:" \
        "    sudo apt-get update && sudo apt-get install -y chromium"
fi
update_packages
install_package chromium || give_up "The tests of the live map are skipped."
has_chromium || give_up "chromium is installed, but not on PATH; those tests are skipped."
