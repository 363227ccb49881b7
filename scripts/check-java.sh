#!/bin/sh
# See that Spark will find Java 17 or newer; where it will not and we may, install Debian's.
# Silent when all is well.
set -eu

wanted=17

. "${0%/*}/debian.sh"

# The version as java gives it (1.8.0_452, 17.0.15, 25-ea); nothing if there is no working java.
java_version() {
    output=$("$1" -version 2>&1) || return 0
    # Other lines may come first, such as "Picked up JAVA_TOOL_OPTIONS: ...".
    while IFS= read -r line; do
        case $line in
            *' version "'*'"'*)
                line=${line#*' version "'}
                echo "${line%%'"'*}"
                return
                ;;
        esac
    done <<END
$output
END
}

# 1.8.0_452 is 8, 17.0.15 is 17, 25-ea is 25; what is no version is 0.
major() {
    number=${1#1.}
    number=${number%%[!0-9]*}
    echo "${number:-0}"
}

# Look at the java that Spark itself would start: JAVA_HOME's if that is set, else PATH's.
good_java() {
    java=${JAVA_HOME:+$JAVA_HOME/bin/}java
    version=$(java_version "$java")
    [ "$(major "$version")" -ge $wanted ]
}

if good_java; then
    exit 0
fi

if [ -n "$version" ]; then
    say "Spark needs Java $wanted or newer; '$java' is version $version."
else
    say "Spark needs Java $wanted or newer; there is no working '$java'."
fi

# While JAVA_HOME names a bad Java, Spark looks nowhere else: installing one would not help.
if [ -n "${JAVA_HOME:-}" ]; then
    say "JAVA_HOME points there. Point it at a newer Java, or run this and try again:" \
        "    unset JAVA_HOME"
    exit 1
fi

if ! command -v apt-get >/dev/null; then
    if command -v brew >/dev/null; then
        say "Install it with:" "    brew install --cask temurin@$wanted"
    else
        say "Install a Java $wanted runtime (OpenJDK) and try again."
    fi
    exit 1
fi

if ! may_install; then
    say "Install it with:" \
        "    sudo apt-get update && sudo apt-get install -y openjdk-$wanted-jre-headless"
    exit 1
fi

update_packages
package=openjdk-$wanted-jre-headless
# A Debian release has only some versions of Java; its default one is new enough from 13 on.
apt_get --simulate install "$package" 2>/dev/null || package=default-jre-headless
install_package "$package" || exit 1

if ! good_java; then
    say "$package is installed, but the java on PATH is ${version:-not there}. Choose the new one:" \
        "    ${as_root:+sudo }update-alternatives --config java"
    exit 1
fi
say "Installed Java $version"
