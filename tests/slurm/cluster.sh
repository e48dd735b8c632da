#!/bin/bash
# Virtual Slurm cluster on one machine: a network namespace for each host, with a bridge between them.
# cluster.sh DIR NAME HOST:FEATURE... runs until DIR/stop exists or its parent ends; DIR/ready appears when all hosts are up.
# Run as root in a mount namespace of its own: unshare -m --propagation private cluster.sh ...
set -u
dir=$1 name=$2; shift 2
cd "$dir" || exit 1
parent=$PPID pids=()
declare -a hosts features
for host in "$@"; do hosts+=("${host%%:*}"); features+=("${host#*:}"); done
clean() {
  trap - EXIT
  [ ${#pids[@]} -gt 0 ] && kill "${pids[@]}" 2>/dev/null
  for host in ctl "${hosts[@]}"; do
    for pid in $(ip netns pids "$name-$host" 2>/dev/null); do kill -9 "$pid" 2>/dev/null; done
  done
  [ -e munged.pid ] && kill "$(cat munged.pid)" 2>/dev/null
  for host in ctl "${hosts[@]}" sw; do ip netns del "$name-$host" 2>/dev/null; done
}
trap clean EXIT; trap 'exit 1' TERM INT HUP
mkdir -p etc state log munge
for mount in /etc/slurm /run/munge; do mkdir -p $mount; mount -t tmpfs tmpfs $mount || exit 1; done
chmod 755 /run/munge; chmod 700 munge
dd if=/dev/urandom of=munge/key bs=1 count=1024 status=none; chmod 400 munge/key
{
  sed "s|DIR|$dir|g" <<'C'
ClusterName=fxgraph
SlurmctldHost=ctl(10.77.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=/run/munge/socket
StateSaveLocation=DIR/state
SlurmdSpoolDir=DIR/spool-%n
SlurmctldPidFile=DIR/slurmctld.pid
SlurmdPidFile=DIR/slurmd-%n.pid
SlurmctldLogFile=DIR/log/slurmctld.log
SlurmdLogFile=DIR/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=2,bf_interval=2
ReturnToService=2
SlurmdTimeout=10
InactiveLimit=0
KillWait=5
SlurmdParameters=config_overrides
C
  for i in "${!hosts[@]}"; do
    echo "NodeName=${hosts[i]} CPUs=2 RealMemory=1000 Feature=${features[i]} NodeAddr=10.77.0.$((i + 2)) NodeHostname=${hosts[i]}"
  done
  echo "PartitionName=array Nodes=ALL Default=YES MaxTime=INFINITE State=UP"
} >/etc/slurm/slurm.conf
ip netns add "$name-sw" || exit 1
in_ns() { local ns=$1; shift; nsenter --net="/run/netns/$name-$ns" "$@"; }
in_ns sw ip link add br0 type bridge mcast_snooping 0; in_ns sw ip link set br0 up
n=1
for host in ctl "${hosts[@]}"; do
  ip netns add "$name-$host" || exit 1
  in_ns sw ip link add "v-$host" mtu 9000 type veth peer name eth0 mtu 9000 netns "$name-$host" || exit 1
  in_ns sw ip link set "v-$host" master br0 up
  in_ns "$host" ip addr add "10.77.0.$n/24" dev eth0
  in_ns "$host" ip link set eth0 up; in_ns "$host" ip link set lo up
  in_ns "$host" ip route add 224.0.0.0/4 dev eth0
  n=$((n + 1))
done
munged --force --key-file="$dir/munge/key" --socket=/run/munge/socket --log-file="$dir/munge/log" \
  --pid-file="$dir/munged.pid" --seed-file="$dir/munge/seed" || exit 1
in_host() { local h=$1; shift; in_ns "$h" unshare -u bash -c 'hostname "$0"; exec "$@"' "$h" "$@"; }
in_host ctl slurmctld -D >log/ctl.out 2>&1 & pids+=($!)
sleep 1
for host in "${hosts[@]}"; do in_host "$host" slurmd -D -N "$host" >"log/slurmd-$host.out" 2>&1 & pids+=($!); done
echo $$ >shell.pid
until [ "$(in_ns ctl timeout 20 sinfo -h -N -o %T 2>/dev/null | grep -c '^idle$')" = ${#hosts[@]} ]; do
  [ $SECONDS -lt 90 ] && [ -d "/proc/$parent" ] || { in_ns ctl sinfo -N -l; exit 1; }
  sleep 0.5
done
: >ready
while [ ! -e stop ] && [ -d "/proc/$parent" ]; do sleep 0.5; done
