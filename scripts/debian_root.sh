# Functions for scripts that run something on a fresh Debian in a folder. Sourced, not run. They need root, the
# package debootstrap, and a Debian mirror: the one that this machine's apt uses, or DEBIAN_MIRROR=URL.
# The script that sources this file defines fail().

# install_root SUITE FOLDER PACKAGE...: installs the base system and the packages of debootstrap's --include. An
# installed system is used again; to install it anew, delete the folder.
install_root() {
  local suite=$1 root=$2 mirror proxy packages
  shift 2
  packages=$(IFS=,; echo "$*")
  [ "$(id -u)" -eq 0 ] || fail "needs root, for debootstrap, chroot and mounts; run it as root"
  command -v debootstrap > /dev/null || fail "debootstrap is not installed; run 'apt-get install debootstrap'"
  # apt's own list of archives has the mirror that this machine uses.
  mirror=${DEBIAN_MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Origin: Debian' 'Label: Debian' 2> /dev/null | head -n 1)}
  eval "$(apt-config shell proxy Acquire::http::Proxy)"
  if [ -n "${proxy:-}" ]; then export http_proxy=$proxy; fi
  # The file .installed is written last, so a folder with it has a complete system.
  if [ ! -e "$root/root/.installed" ]; then
    echo "installing Debian '$suite' into $root"
    mkdir -p "$root"
    # Without a mirror debootstrap uses its own default.
    debootstrap --variant=minbase --include="$packages" "$suite" "$root" ${mirror:+"$mirror"}
    if [ -n "${proxy:-}" ]; then echo "Acquire::http::Proxy \"$proxy\";" > "$root/etc/apt/apt.conf.d/80proxy"; fi
    touch "$root/root/.installed"
  fi
  cp -L /etc/resolv.conf "$root/etc/resolv.conf"
}

# run_in_root FOLDER DIRECTORY COMMAND...: runs the command in a directory of the system. All mounts and processes
# are in separate namespaces, so they end with it.
run_in_root() {
  local root=$1 directory=$2
  shift 2
  # /dev/shm is not shared with this machine, because tests check that nothing is left there. The
  # folder is a separate mount, because `ip netns exec` remounts the root.
  ROOT=$root DIRECTORY=$directory unshare --mount --propagation private --pid --fork --kill-child bash -euc '
    mount --bind "$ROOT" "$ROOT"
    mount -t proc proc "$ROOT/proc"
    mount -t sysfs sys "$ROOT/sys"
    mount --bind /dev "$ROOT/dev"
    mount -t devpts -o newinstance,ptmxmode=0666 devpts "$ROOT/dev/pts"
    mount -t tmpfs -o mode=1777 shm "$ROOT/dev/shm"
    mount -t tmpfs -o mode=0755 run "$ROOT/run"
    mount -t tmpfs -o mode=1777 tmp "$ROOT/tmp"
    # This shell does not exec: as the first process of its namespace it reaps processes that the
    # tests leave.
    code=0
    chroot "$ROOT" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
      TERM="${TERM:-dumb}" ${JOBS:+"JOBS=$JOBS"} bash -c "cd \"\$0\" && \"\$@\"" "$DIRECTORY" "$@" || code=$?
    exit $code' bash "$@"
}
