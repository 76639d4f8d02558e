#!/usr/bin/env bash
# Makes the Debian package, installs it, builds and runs a program with it, and removes it. All this happens
# on a copy of this system that exists only in the mount namespace of this test.
# usage: package.sh BUILD_FOLDER
set -euo pipefail
. "$(dirname "$0")/../support/shell.sh"
build=$(realpath "$1")
here=$(realpath "$(dirname "$0")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# in_copy COMMAND: runs it in a mount namespace with a copy of this system in $WORK/root.
in_copy() {
  WORK=$work unshare --mount --propagation private bash -euc '
    mount -t tmpfs tmpfs "$WORK"
    mkdir "$WORK"/{upper,work,root}
    mount -t overlay overlay -o lowerdir=/,upperdir="$WORK/upper",workdir="$WORK/work" "$WORK/root"
    mount --bind /proc "$WORK/root/proc"
    mount --bind /dev "$WORK/root/dev"
    eval "$1"' bash "$1"
}
if ! why=$(in_copy 'chroot "$WORK/root" true' 2>&1); then
  skip "the Debian package" "no copy of this system can be mounted: ${why##*$'\n'}"
  exit 0
fi
rm -f "$build"/package/liblockstep-dev_*.deb  # of an earlier version
(cd "$build" && cpack --config CPackConfig.cmake > /dev/null)
PACKAGE=$(ls "$build"/package/liblockstep-dev_*.deb)
export PACKAGE CONSUMERS=$here
in_copy '
  cp "$PACKAGE" "$WORK/root/tmp/lockstep.deb"
  mkdir "$WORK/root/tmp/project"
  cp "$CONSUMERS/pkg_config/Makefile" "$CONSUMERS/components/main.cpp" "$WORK/root/tmp/project"
  chroot "$WORK/root" bash -euc "
    dpkg -i /tmp/lockstep.deb > /dev/null
    lockstep --version
    make -C /tmp/project > /dev/null
    /tmp/project/consumer
    dpkg -r liblockstep-dev > /dev/null
    if [ -e /usr/bin/lockstep ] || [ -e /usr/include/lockstep ] || ls /usr/lib/liblockstep_* 2> /dev/null; then
      echo \"files of the package are left after its removal\" >&2
      exit 1
    fi"'
[ ! -e /usr/include/lockstep ] || { echo "the package was installed on this system" >&2; exit 1; }
