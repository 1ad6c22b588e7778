# shellcheck shell=bash
# What quickstart.sh and test.sh share: packages, configuring, building with a progress line.
# Sourced; the caller stands in the root of the tree and has set -euo pipefail.

say() { printf '%s\n' "$@"; }
fail() {
    local code=$1
    shift
    printf '%s\n' "$@" >&2
    exit "$code"
}

consent=ask
# take_options ARGUMENTS...: of a script whose only option is -y.
take_options() {
    case "$*" in
        '') ;;
        -y) consent=yes ;;
        *) fail 2 "usage: $0 [-y]     -y: install missing packages without asking" ;;
    esac
}

# Names of the packages in installer/dependencies.
dependencies() { sed 's/#.*//' installer/dependencies | awk 'NF { print $1 }'; }

# Those of them that dpkg does not have installed.
lacking() {
    local package
    for package in $(dependencies); do
        dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null |
            grep -qx installed || printf '%s\n' "$package"
    done
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# apt_get ARGUMENTS...: as root, in plain English, never asking.
apt_get() {
    as_root env LC_ALL=C DEBIAN_FRONTEND="${DEBIAN_FRONTEND:-noninteractive}" apt-get "$@"
}

# What apt would fetch for the packages given: "file bytes" lines. Needs no root.
apt_plan() {
    LC_ALL=C apt-get install -qq --no-install-recommends --print-uris "$@" 2>/dev/null |
        awk '{ print $2, $3 }'
}

# Installs what is lacking. Nothing lacking: no apt, no network and no root. Asks where it can,
# unless consent is yes. Exits 3 where only an administrator could go on.
ensure_dependencies() {
    local missing plan count megabytes answer
    if ! command -v dpkg-query >/dev/null; then
        say "This is not a Debian system, so nothing is installed for you (untested)." \
            "Granary needs what these Debian 12 packages hold: $(dependencies | paste -sd ' ')"
        return
    fi
    mapfile -t missing < <(lacking)
    [ ${#missing[@]} -gt 0 ] || return 0

    if [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null; then
        fail 3 "Some packages are missing and this account has neither root nor sudo." \
            "An administrator can install them with this one line:" \
            "    apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
    fi
    if ! plan=$(apt_plan "${missing[@]}"); then
        say "Reading the package lists"
        apt_get update -qq
        plan=$(apt_plan "${missing[@]}") ||
            fail 1 "apt finds no way to install: ${missing[*]}" \
                "Try: apt-get install --no-install-recommends ${missing[*]}"
    fi
    count=$(awk 'NF { n++ } END { print n + 0 }' <<<"$plan")
    megabytes=$(awk '{ sum += $2 } END { printf "%.1f", sum / 1e6 }' <<<"$plan")
    say "Missing packages: ${missing[*]}" \
        "With what they need themselves, apt will fetch $megabytes MB in $count package(s)."
    if [ "$consent" = ask ] && [ -t 0 ]; then
        read -r -p "Install them now? [Y/n] " answer
        case $answer in
            '' | [Yy]*) ;;
            *) fail 3 "Nothing was installed." ;;
        esac
    fi
    mkdir -p build
    say "Installing (details in build/apt.log)"
    if ! apt_get install -y --no-install-recommends "${missing[@]}" >build/apt.log 2>&1; then
        # Lists older than the mirror name files that are gone: read them anew, once.
        if ! { apt_get update && apt_get install -y --no-install-recommends "${missing[@]}"; } \
            >>build/apt.log 2>&1; then
            tail -n 20 build/apt.log >&2
            fail 1 "apt could not install the packages; the whole story is in build/apt.log"
        fi
    fi
}

# Configures build/ with the default options. A build folder that was made elsewhere (a tree that
# was moved or copied) or for another generator is configured afresh.
configure() {
    local fresh=()
    if [ -f build/CMakeCache.txt ] &&
        ! { grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$PWD" build/CMakeCache.txt &&
            grep -qx 'CMAKE_GENERATOR:INTERNAL=Ninja' build/CMakeCache.txt; }; then
        fresh=(--fresh)
    fi
    mkdir -p build
    if ! cmake "${fresh[@]}" -S . -B build -G Ninja >build/configure.log 2>&1; then
        tail -n 30 build/configure.log >&2
        fail 1 "CMake could not configure the build; the whole story is in build/configure.log"
    fi
}

# Ninja's lines -> one updating line on a terminal, a line every 10 % elsewhere. The lines
# themselves go to build/build.log.
progress() {
    local line finished total percent tenth=0 terminal=
    [ -t 1 ] && terminal=yes
    : >build/build.log
    while IFS= read -r line; do
        printf '%s\n' "$line" >>build/build.log
        [[ $line =~ ^\[([0-9]+)/([0-9]+)\] ]] || continue
        finished=${BASH_REMATCH[1]} total=${BASH_REMATCH[2]}
        percent=$((100 * finished / total))
        if [ "$terminal" ]; then
            printf '\rBuilding %3d %% (%d of %d steps) ' "$percent" "$finished" "$total"
        elif [ $((percent / 10)) -gt "$tenth" ]; then
            tenth=$((percent / 10))
            printf 'Building %3d %% (%d of %d steps)\n' "$percent" "$finished" "$total"
        fi
    done
    if [ "$terminal" ]; then printf '\r\033[K'; fi
}

# build_targets TARGET...: builds them in build/.
build_targets() {
    local started=$SECONDS
    if ! NINJA_STATUS='[%f/%t] ' ninja -C build -j "$(nproc)" "$@" 2>&1 | progress; then
        grep -m 20 -A 5 -E '^FAILED|error:|undefined reference' build/build.log >&2 || true
        fail 1 "The build failed; the whole story is in build/build.log"
    fi
    say "Built in $((SECONDS - started)) s"
}
