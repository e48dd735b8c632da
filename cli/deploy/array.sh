#!/bin/bash
# Runs the parts of a flowgraph on hosts of Slurm: array.sh start|stop|status
# The directory of this script must be on a file system that all hosts share.
# Slurm reads further options from the environment: SALLOC_PARTITION, SALLOC_TIMELIMIT, SALLOC_ACCOUNT.
set -u
cd "$(dirname "$(readlink -f "$0")")" || exit 1
@PARTS@
say() { echo "array.sh: $*" >&2; }
fail() { say "$@"; exit 1; }
# Names of jobs have the directory in them: two deployments of one flowgraph stay apart.
jobs_name=$flowgraph-$(pwd | cksum | cut -d ' ' -f 1)
mkdir -p run log || exit 1

# Job of class $1; empty if it has none.
job_of() { timeout 30 squeue -h -u "$(id -un)" -n "$jobs_name-$1" -t RUNNING -o %i | head -n 1; }
# Step that runs part $1 on its host; empty if there is none. Slurm keeps steps on failed hosts for a while.
step_of() {
  local host; host=$(cat "run/${file[$1]}.host" 2>/dev/null) || return
  timeout 30 squeue -h -s -j "$(job_of "${class[$1]}")" -o '%i %j %N' 2>/dev/null |
    awk -v n="${file[$1]}" -v h="$host" '$2 == n && $3 == h {print $1; exit}'
}
# A star after the state marks a host that does not answer.
is_up() { [[ $(timeout 30 sinfo -h -N -n "$1" -o %T | head -n 1) =~ ^(allocated|mixed|idle|completing)$ ]]; }
put() { echo "$2" >"run/.$1.new" && mv "run/.$1.new" "run/$1"; }

allocate() {
  local c=$1 job options
  job=$(set -o pipefail; job_of "${classes[c]}") || fail "Slurm does not answer: squeue failed"
  [ -n "$job" ] && { say "class ${classes[c]}: job $job goes on"; return; }
  options=(--no-kill --no-shell --immediate=60 --exclusive --ntasks-per-node=1)
  [ -n "${constraint[c]}" ] && options+=("--constraint=${constraint[c]}")
  [ "${gpus[c]}" -gt 0 ] && options+=("--gpus-per-node=${gpus[c]}")
  timeout 120 salloc "${options[@]}" -N "${size[c]}" -J "$jobs_name-${classes[c]}" ||
    fail "class ${classes[c]} must get ${size[c]} hosts"
}

# Host for part $1: that of before if it is up, otherwise one that no part has. Parts are placed one at a time.
place() {
  local host job before
  exec 8>run/place.lock; flock -w 60 8 || return 1
  before=$(cat "run/${file[$1]}.host" 2>/dev/null)
  job=$(job_of "${class[$1]}"); [ -n "$job" ] || return 1
  for host in $before $(scontrol show hostnames "$(squeue -h -j "$job" -o %N)"); do
    [ "$host" != "$before" ] && grep -qx "$host" run/*.host 2>/dev/null && continue
    is_up "$host" || continue
    put "${file[$1]}.host" "$host"; echo "$job $host"; return
  done
  return 1
}

# Keeps part $1 running. The first process waits to be started in order, later ones start at once.
supervise() {
  local i=$1 hold=--hold-once delay=0.2 job host address began code placed
  while [ ! -e run/stop ]; do
    host=$(cat "run/${file[i]}.host" 2>/dev/null)
    # A step of an earlier supervisor goes on.
    if [ -n "$host" ] && [ -n "$(step_of "$i")" ] && is_up "$host"; then hold=; sleep 1; continue; fi
    placed=$(place "$i") || { sleep 2; continue; }
    read -r job host <<<"$placed"
    address=$(timeout 30 scontrol show node "$host" | sed -n 's/.*NodeAddr=\([^ ]*\).*/\1/p')
    put "${file[i]}.address" "${address:-$host}:${port[i]}"
    say "${name[i]}: starts on $host"; began=$SECONDS
    # shellcheck disable=SC2086 # empty `hold` is no argument
    srun --jobid="$job" --overlap --no-kill --immediate=30 -N 1 -n 1 -w "$host" -J "${file[i]}" --cpu-bind=none \
      "$program" run "parts/${file[i]}.yaml" --listen "0.0.0.0:${port[i]}" --token-file token $hold \
      >>"log/${file[i]}.log" 2>&1 </dev/null 9>&-
    code=$?; hold=
    [ -e run/stop ] && break
    # With --no-kill srun returns 0 also if the host has failed.
    case $code in
    0) is_up "$host" && { : >"run/${file[i]}.over"; say "${name[i]}: has ended"; return; } ;;
    2 | 78) : >"run/${file[i]}.over"; say "${name[i]}: rejected (exit $code), see log/${file[i]}.log"; return ;;
    esac
    say "${name[i]}: ended on $host (exit $code), see log/${file[i]}.log"
    if [ $((SECONDS - began)) -ge 10 ]; then delay=0.2; else delay=$(awk "BEGIN {d = $delay * 2; print d < 30 ? d : 30}"); fi
    sleep "$delay"
  done
}

# curl with the token, which other users must not see on a command line.
ask() { curl -sS --max-time 10 --config <(printf 'header = "Authorization: Bearer %s"\n' "$(cat token)") "$@"; }
state() {
  local address; address=$(cat "run/${file[$1]}.address" 2>/dev/null) || return
  ask "http://$address/api/v1/health" 2>/dev/null | sed -n 's/.*"state": *"\([a-z]*\)".*/\1/p'
}
request_start() { ask -o /dev/null -X POST "http://$(cat "run/${file[$1]}.address")/api/v1/flowgraph/start"; }
# Waits up to 5 minutes until part $1 is in a state that matches $2.
await() {
  local end=$((SECONDS + 300)) now
  until now=$(state "$1"); [[ $now =~ ^($2)$ ]]; do
    [ -e run/stop ] || [ -e "run/${file[$1]}.over" ] && return 1
    # A request that failed is repeated.
    [ "$now" = prepared ] && request_start "$1"
    [ $SECONDS -lt $end ] || { say "${name[$1]}: must be $2 within 5 minutes"; return 1; }
    sleep 0.3
  done
}

start() {
  local c i l
  exec 9>run/lock; flock -n 9 || fail "\`array.sh start\` runs already"
  rm -f run/stop run/*.over
  for c in "${!classes[@]}"; do allocate "$c" 9>&-; done
  for i in "${!name[@]}"; do
    [ -n "$(step_of "$i")" ] || rm -f "run/${file[i]}.address" "run/${file[i]}.host"
  done
  for i in "${!name[@]}"; do supervise "$i" & done
  for i in "${!name[@]}"; do await "$i" 'prepared|running|draining'; done
  # Receivers first: parts of a level send to those of lower levels.
  for l in $(printf '%s\n' "${level[@]}" | sort -nu); do
    for i in "${!name[@]}"; do
      [ "${level[i]}" = "$l" ] && [ "$(state "$i")" = prepared ] && request_start "$i"
    done
    for i in "${!name[@]}"; do
      [ "${level[i]}" = "$l" ] && await "$i" 'running|draining' && say "${name[i]}: runs"
    done
  done
  wait
}

stop() {
  local i step end c job
  : >run/stop
  # Senders first; the others process what has arrived.
  for i in $(for n in "${!name[@]}"; do echo "${level[n]} $n"; done | sort -k1,1nr -k2,2n | cut -d ' ' -f 2); do
    step=$(step_of "$i"); end=$((SECONDS + 20))
    [ -n "$step" ] && timeout 30 scancel --signal=INT "$step" 2>/dev/null
    while [ -n "$(step_of "$i")" ]; do
      [ $SECONDS -lt $end ] || { say "${name[i]}: does not end, and is killed"; break; }
      sleep 0.5
    done
  done
  for c in "${classes[@]}"; do job=$(job_of "$c"); [ -n "$job" ] && timeout 30 scancel "$job"; done
  rm -f run/*.address run/*.host
}

status() {
  local i
  for i in "${!name[@]}"; do
    printf '%s %s %s %s\n' "${name[i]}" "$(cat "run/${file[i]}.host" 2>/dev/null || echo -)" \
      "$(cat "run/${file[i]}.address" 2>/dev/null || echo -)" "$(state "$i" || echo -)"
  done
}

case ${1-} in start | stop | status) "$1" ;; *) echo "usage: array.sh start|stop|status" >&2; exit 2 ;; esac
