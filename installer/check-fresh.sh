#!/bin/bash
# Proves both commands on a bare Debian 12: makes a root with debootstrap, puts a copy of this
# tree into a folder with a space in its name, and runs quickstart.sh, test.sh and quickstart.sh
# again, as root, under LANG=C, without a display.
# Needs root, debootstrap, util-linux and 6 GB of disk. Packages come from this machine's own
# Debian mirror. The transcript, with seconds, is build/fresh-transcript.txt.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
. installer/common.sh

[ "$(id -u)" = 0 ] || fail 3 "check-fresh.sh must run as root: it makes a root file system"
for tool in debootstrap unshare setpriv chroot; do
    command -v $tool >/dev/null || fail 3 "check-fresh.sh needs $tool"
done

# The steps run in a process and mount namespace of their own: whatever ends this script ends
# them and undoes their mounts. What may be left of a killed run is a folder, removed here.
root=$PWD/build/fresh-root
transcript=$PWD/build/fresh-transcript.txt
remove_root() { rm -rf --one-file-system "$root"; }
if [ "${1-}" != --inside ]; then
    mkdir -p build
    remove_root
    steps=
    # shellcheck disable=SC2086  # nothing where the steps have not begun
    trap 'kill -KILL $steps 2>/dev/null; wait; remove_root' EXIT
    trap 'exit 130' INT TERM HUP
    setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child --mount-proc \
        "$PWD/installer/check-fresh.sh" --inside </dev/null > >(tee "$transcript") 2>&1 &
    steps=$!
    wait $steps
    exit
fi

# step NAME COMMAND...: runs it and says how long it took.
step() {
    local name=$1 started=$SECONDS code
    shift
    say "" "=== $name"
    set +e
    (
        set -e
        "$@"
    )
    code=$?
    set -e
    say "=== $name: exit code $code, $((SECONDS - started)) s"
    [ "$code" = 0 ] || exit "$code"
}

# What apt on this machine reads Debian from: "URI SUITE COMPONENT" lines.
sources() {
    # shellcheck disable=SC2016  # apt's own names
    apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' \
        'Created-By: Packages' 'Origin: Debian' |
        awk '$2 ~ /^bookworm(-updates|-security)?$/ && $3 == "main"' | sort -u
}

bare_root() {
    local mirror
    mirror=$(sources | awk '$2 == "bookworm" { print $1; exit }')
    [ -n "$mirror" ] || fail 1 "apt on this machine knows no Debian 12 mirror"
    debootstrap --variant=minbase bookworm "$root" "$mirror" >build/debootstrap.log 2>&1 ||
        fail 1 "debootstrap failed: see build/debootstrap.log"
    sources | sed 's/^/deb /' >"$root/etc/apt/sources.list"
    # The way to the mirror: proxies and clocks, as this machine's apt is told them.
    apt-config dump | grep -E '^Acquire::(https?::Proxy|Check)' \
        >"$root/etc/apt/apt.conf.d/01machine" || true
    cp /etc/resolv.conf /etc/hosts "$root/etc/"
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    say "$(chroot "$root" dpkg-query -W | wc -l) packages, $(du -sxm "$root" | cut -f1) MB"
}

copy_tree() {
    mkdir -p "$root/root/my granary"
    if [ -e .git ]; then
        git -c safe.directory="$PWD" ls-files -z --cached --others --exclude-standard
    else
        find . -path ./build -prune -o -type f -print0
    fi | tar --null -T - -cf - | tar -C "$root/root/my granary" -xf -
}

in_root() {
    chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C \
        "/root/my granary/$1" -y
}

started=$SECONDS
step "bare root" bare_root
step "copy of the tree" copy_tree
step "installer/quickstart.sh" in_root installer/quickstart.sh
step "installer/test.sh" in_root installer/test.sh
step "installer/quickstart.sh again" in_root installer/quickstart.sh
say "" "All steps: $((SECONDS - started)) s; the root has $(du -sxm "$root" | cut -f1) MB"
