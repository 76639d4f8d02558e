#!/usr/bin/env bash
# The two_nodes example as two processes on one host, and on two hosts. The hosts are network namespaces
# with their own addresses and a link between them, if the machine allows network namespaces.
# usage: two_nodes.sh PATH_TO_TWO_NODES
set -euo pipefail
. "$(dirname "$0")/../support/shell.sh"
two_nodes=$1
work=$(mktemp -d)
space=lockstep-$$
clean_up() {
  local jobs
  jobs=$(jobs -p)
  [ -z "$jobs" ] || kill -9 $jobs 2>/dev/null || true
  remove_hosts "$space"
  rm -rf "/etc/netns/$space-0" "/etc/netns/$space-1"
  rm -rf "$work"
}
trap clean_up EXIT
cd "$work"
export OMP_NUM_THREADS=1

fail() { echo "FAILED: $*" >&2; tail -n 30 out.* err.* >&2; exit 1; }
free_port() {
  local port
  while port=$((20000 + RANDOM % 12000)); (exec 3<> "/dev/tcp/127.0.0.1/$port") 2>/dev/null; do :; done
  echo $port
}
field() { sed -n "s/^$2: //p" "out.$1"; }

# Both nodes print their rank and end with the same weights. Only rank 0 prints the results of all.
check() {
  for rank in 0 1; do
    [ "$(field $rank 'Rank and node')" = "$rank-$(hostname)" ] || fail "$1: rank $rank does not print its rank"
    grep -q '^Model hash: [0-9a-f]\{16\}$' out.$rank || fail "$1: rank $rank prints no hash"
    grep -q '^First parameter: 0.weight \[100, 784\] ' out.$rank || fail "$1: no first parameter"
    [ "$(tail -n 1 out.$rank)" = done ] || fail "$1: rank $rank does not end with 'done'"
  done
  [ "$(field 0 'Model hash')" = "$(field 1 'Model hash')" ] || fail "$1: the nodes have different weights"
  [ "$(field 0 'First parameter')" = "$(field 1 'First parameter')" ] || fail "$1: first parameters differ"
  grep -q '^Test accuracy of all nodes: 0\.[0-9]* ([0-9]*/1001)$' out.0 || fail "$1: no accuracy of all"
  if grep -q 'Test accuracy\|train (' out.1; then fail "$1: rank 1 prints what rank 0 does"; fi
}

# nodes HOST PREFIX_OF_0 PREFIX_OF_1 OPTIONS...; an odd number of samples, so that one is padding
nodes() {
  local host=$1 first=$2 second=$3
  $first "$two_nodes" --world-size 2 --rank 0 --host "$host" "${@:4}" --limit 1001 > out.0 2> err.0 &
  local zero=$!
  $second "$two_nodes" --world-size 2 -r 1 --master-addr "$host" "${@:4}" --limit 1001 > out.1 2> err.1 ||
    fail "rank 1: exit $?"
  wait $zero || fail "rank 0: exit $?"
}

nodes 127.0.0.1 "" "" --port "$(free_port)" --epochs 3
check "one host"
want=$(field 0 'Model hash')
# One node is killed: the other node ends, and names the killed rank.
port=$(free_port)
"$two_nodes" --rank 0 --host 127.0.0.1 --port "$port" --epochs 1000 > out.0 2> err.0 &
zero=$!
"$two_nodes" --rank 1 --host 127.0.0.1 --port "$port" --epochs 1000 > out.1 2> err.1 &
one=$!
for _ in $(seq $(scaled 600)); do
  if grep -q '^\* Epoch (1/1000)' out.0; then break; fi
  sleep 0.1
done
accuracy=$(sed -n 's/^test (1\/1000) .*accuracy01: \([0-9.]*\).*/\1/p' out.0)
awk -v a="$accuracy" 'BEGIN { exit !(a >= 0.4) }' || fail "accuracy after an epoch: '$accuracy', expected 0.4 or more"
start=$SECONDS
kill -9 $one
wait $one 2>/dev/null || true
code=0
wait $zero || code=$?
[ $code -eq 1 ] || fail "rank 1 was killed, rank 0 ends with $code"
[ $((SECONDS - start)) -le "$(scaled 3)" ] || fail "rank 0 took $((SECONDS - start)) s to notice that rank 1 is gone"
grep -q '^two_nodes: .*rank 1' err.0 || fail "rank 0 does not name the rank that was killed"

if "$two_nodes" --rank 2 --host 127.0.0.1 > out.0 2> err.0; then fail "accepted rank 2 of 2"; fi
grep -q 'got 2 of 2' err.0 || fail "the rank that is out of range is not named"

# Two hosts.
if two_hosts "$space" 10.203.0 "two hosts"; then
  on_0="ip netns exec $space-0" on_1="ip netns exec $space-1"
  # Without a secret no rank listens, and both ranks say how to make one.
  for rank in 0 1; do
    code=0
    ip netns exec "$space-$rank" "$two_nodes" --rank $rank --host 10.203.0.1 > out.$rank 2> err.$rank || code=$?
    [ $code -eq 2 ] || fail "two hosts without a token: rank $rank ends with $code"
    grep -q 'there is no token: .*openssl rand' err.$rank || fail "rank $rank does not say how to make a token"
  done
  (umask 077; head -c 32 /dev/urandom | sha256sum | head -c 64 > token; echo 'a token that is only a guess' > other)
  nodes 10.203.0.1 "$on_0" "$on_1" --epochs 3 --token-file token
  check "two hosts"
  [ "$(field 0 'Model hash')" = "$want" ] || fail "two hosts give other weights than one"

  # Host 0 resolves its own name to 127.0.1.1, as Debian's installer writes it.
  mkdir -p "/etc/netns/$space-0" "/etc/netns/$space-1"
  printf '127.0.0.1 localhost\n127.0.1.1 node-zero\n' > "/etc/netns/$space-0/hosts"
  printf '127.0.0.1 localhost\n10.203.0.1 node-zero\n' > "/etc/netns/$space-1/hosts"
  LOCKSTEP_TOKEN_FILE=$work/token nodes node-zero "$on_0" "$on_1" --epochs 3
  check "a host whose name is loopback on itself"
  [ "$(field 0 'Model hash')" = "$want" ] || fail "a host by its name gives other weights"

  # A chosen interface: it has another name on each host. A second interface is connected to nothing.
  for node in 0 1; do
    ip -n "$space-$node" link add ls-other type veth peer name ls-nowhere  # some kernels have no dummy device
    ip -n "$space-$node" address add "10.99.$node.1/24" dev ls-other
    ip -n "$space-$node" link set ls-other up
  done
  nodes node-zero "env LOCKSTEP_INTERFACE=ls0 $on_0" "env LOCKSTEP_INTERFACE=ls1 $on_1" --epochs 3 --token-file token
  check "a chosen interface"
  code=0
  $on_0 "$two_nodes" --rank 0 --host node-zero --token-file token --interface ls7 > out.0 2> err.0 || code=$?
  [ $code -eq 2 ] && grep -q "interface 'ls7'.*ls0" err.0 || fail "an unknown interface is not named"

  # A process on the other host has a wrong token. It connects first, and again and again. A second
  # process with rank 1 connects when the run has begun. Neither disturbs the run.
  $on_1 "$two_nodes" --rank 1 --host node-zero --token-file other > out.2 2> err.2 & stranger=$!
  $on_0 "$two_nodes" --rank 0 --host node-zero --token-file token --epochs 1000 > out.0 2> err.0 & zero=$!
  code=0; wait $stranger || code=$?
  [ $code -eq 1 ] || fail "a process with a wrong token ends with $code"
  grep -q 'does not know this run.s token' err.2 || fail "a process with a wrong token does not say why it was refused"
  $on_1 "$two_nodes" --rank 1 --host node-zero --token-file token --epochs 1000 > out.1 2> err.1 & one=$!
  for _ in $(seq $(scaled 600)); do grep -q '^\* Epoch (1/1000)' out.0 && break; sleep 0.1; done
  start=$SECONDS code=0
  $on_1 "$two_nodes" --rank 1 --host node-zero --token-file token > out.2 2> err.2 || code=$?
  [ $code -eq 1 ] && [ $((SECONDS - start)) -le "$(scaled 5)" ] || fail "a second rank 1 ends with $code after $((SECONDS - start)) s"
  grep -q 'rank 1 has already joined from 10.203.0.2, and this process comes from 10.203.0.2' err.2 ||
    fail "the second rank 1 does not say that the rank is taken"
  kill -0 $zero && kill -0 $one || fail "the run did not continue"
  kill $zero $one; wait $zero $one 2> /dev/null || true
fi
echo "two_nodes: all as expected"
