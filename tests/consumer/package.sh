#!/usr/bin/env bash
# Makes the Debian package, installs it, builds and runs a program with it, and removes it. All this happens
# on a copy of this system that exists only in the mount namespace of this test.
# usage: package.sh BUILD_FOLDER
set -euo pipefail
. "$(dirname "$0")/../support/shell.sh"
build=$(realpath "$1")
here=$(realpath "$(dirname "$0")")
if [ "$(id -u)" -ne 0 ] || ! grep -q overlay /proc/filesystems; then
  skip "the Debian package" "needs root and the file system overlay"
  exit 0
fi
(cd "$build" && cpack --config CPackConfig.cmake > /dev/null)
package=$(ls "$build"/package/liblockstep-dev_*.deb)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

PACKAGE=$package PROJECT=$here/pkg_config WORK=$work unshare --mount --propagation private bash -euc '
  mount -t tmpfs tmpfs "$WORK"
  mkdir "$WORK"/{upper,work,root}
  mount -t overlay overlay -o lowerdir=/,upperdir="$WORK/upper",workdir="$WORK/work" "$WORK/root"
  mount --bind /proc "$WORK/root/proc"
  mount --bind /dev "$WORK/root/dev"
  cp "$PACKAGE" "$WORK/root/tmp/lockstep.deb"
  cp -r "$PROJECT" "$WORK/root/tmp/project"
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
