# Installing a Debian package where we may; to be read by other scripts: . "${0%/*}/debian.sh"

say() {
    printf '%s\n' "$@" >&2
}

# Whether we may install; as_root then has what makes us root.
may_install() {
    as_root=
    [ "$(id -u)" = 0 ] && return
    as_root='sudo'
    sudo -n true 2>/dev/null
}

# Quiet unless it fails. Through env, as sudo does not pass variables on.
apt_get() {
    output=$($as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq "$@" 2>&1) || {
        say "$output"
        return 1
    }
}

update_packages() {
    say "Updating the list of Debian packages"
    # Another repository's failing must not stop us: whether ours answers shows below.
    apt_get update || say "apt-get update failed; trying with the list as it is."
}

install_package() {
    say "Installing $1"
    apt_get install --yes --no-install-recommends "$1" || {
        say "That failed. See above, then try again:" \
            "    ${as_root:+sudo }apt-get install -y $1"
        return 1
    }
}
