# Functions that the shell tests share. A test sources this file before it changes its folder:
#   . "$(dirname "$0")/../support/shell.sh"

# skip CASE REASON: says that a case is not tested on this machine. The test continues with its
# other cases. scripts/test lists every skipped case at the end. If an installed package would make
# the case possible, REASON ends with "install PACKAGE"; scripts/test fails if that package is
# installed.
skip() {
  echo "${0##*/}: NOT TESTED: $1: $2"
  if [ -n "${LOCKSTEP_SKIPPED:-}" ]; then echo "${0##*/}: $1: $2" >> "$LOCKSTEP_SKIPPED"; fi
}

# scaled NUMBER: a time limit, in any unit, multiplied by LOCKSTEP_TEST_SLOWDOWN. The sanitizer
# builds set that variable to an integer, because their programs run slower.
scaled() { echo $(($1 * ${LOCKSTEP_TEST_SLOWDOWN:-1})); }

# hash_of LOGDIR: the hash of the weights with which a run ended, or a text that equals no other.
hash_of() {
  sed -nE 's/.*"weights_hash": *"([0-9a-f]+)".*/\1/p' "$1/summary.json" | grep . || echo "none of $1"
}

# kill_when_saved LOGDIR COMMAND...: starts the command in the background and kills it without warning as
# soon as it has saved a checkpoint inside an epoch. Its output is in out.txt and err.txt. False if the
# command was over before.
kill_when_saved() {
  local logdir=$1 pid code=0
  shift
  "$@" > out.txt 2> err.txt &
  pid=$!
  for _ in $(seq $(scaled 6000)); do
    [ "$logdir/checkpoints/last.pth" -nt "$logdir/logs/_epoch_.csv" ] && break
    kill -0 $pid 2> /dev/null || break
    sleep 0.01
  done
  kill -9 $pid 2> /dev/null || true
  wait $pid 2> /dev/null || code=$?
  [ "$code" -eq 137 ]
}

# have_script CASE, have_mpirun CASE, have_mpich CASE, have_torchrun CASE, have_python_torch CASE: true if the tool
# works; otherwise the case is skipped.
have_script() {
  command -v script > /dev/null && return
  skip "$1" "script is not here; install bsdutils"
  return 1
}
have_mpirun() {
  command -v mpirun > /dev/null && return
  skip "$1" "mpirun is not here; install openmpi-bin"
  return 1
}
have_mpich() {
  command -v mpiexec.hydra > /dev/null && return
  skip "$1" "mpiexec.hydra is not here; install mpich"
  return 1
}
have_torchrun() {
  if ! command -v torchrun > /dev/null; then
    skip "$1" "torchrun is not here; install python3-torch"
    return 1
  fi
  # The torchrun of Debian 13 cannot start programs: its store needs libuv, and its PyTorch is built
  # without libuv.
  local why
  why=$(run_torchrun --no_python --nproc_per_node 1 -r 0:1 -t 0:1 true 2>&1) && return
  skip "$1" "this torchrun cannot start any program: ${why##*$'\n'}"
  return 1
}
have_python_torch() {
  /usr/bin/python3 -c 'import torch' 2> /dev/null && return
  skip "$1" "Python cannot import torch; install python3-torch"
  return 1
}

# Debian 13's PyTorch is built without libuv, but its TCPStore uses libuv unless USE_LIBUV is 0.
# PyTorch 1.13 does not read the variable.
run_torchrun() { USE_LIBUV=0 torchrun "$@"; }

# two_hosts NAME NETWORK CASE: makes the network namespaces NAME-0 and NAME-1 with the addresses
# NETWORK.1 and NETWORK.2 and a link between them. If the machine does not allow it, the case is
# skipped and the result is false. A test that calls it also calls `remove_hosts NAME` at the end.
two_hosts() {
  local why
  why=$(lay_cable "$1" "$2" 2>&1) && return
  if command -v ip > /dev/null; then
    skip "$3" "this machine does not allow network namespaces: ${why//$'\n'/ }"
  else
    skip "$3" "the command ip is not here; install iproute2"
  fi
  return 1
}
lay_cable() {
  local node
  ip netns add "$1-0" && ip netns add "$1-1" &&
    ip link add name ls0 netns "$1-0" type veth peer name ls1 netns "$1-1" || return 1
  for node in 0 1; do
    ip -n "$1-$node" address add "$2.$((node + 1))/24" dev ls$node &&
      ip -n "$1-$node" link set ls$node up && ip -n "$1-$node" link set lo up || return 1
  done
}
remove_hosts() {
  local node
  for node in 0 1 2 switch; do ip netns delete "$1-$node" 2> /dev/null || true; done
}

# three_hosts NAME NETWORK CASE: the same with three hosts at a switch, which is the namespace NAME-switch.
three_hosts() {
  local why
  why=$(lay_three_cables "$1" "$2" 2>&1) && return
  skip "$3" "this machine does not allow network namespaces: ${why//$'\n'/ }"
  return 1
}
lay_three_cables() {
  local node
  ip netns add "$1-switch" && ip -n "$1-switch" link add name switch type bridge &&
    ip -n "$1-switch" link set switch up || return 1
  for node in 0 1 2; do
    ip netns add "$1-$node" &&
      ip link add name ls$node netns "$1-$node" type veth peer name port$node netns "$1-switch" &&
      ip -n "$1-switch" link set port$node master switch up &&
      ip -n "$1-$node" address add "$2.$((node + 1))/24" dev ls$node &&
      ip -n "$1-$node" link set ls$node up && ip -n "$1-$node" link set lo up || return 1
  done
}
# cut_host NAME NODE, mend_host NAME NODE: at the switch, so that the host itself sees only silence.
cut_host() { ip -n "$1-switch" link set "port$2" down; }
mend_host() { ip -n "$1-switch" link set "port$2" up; }
