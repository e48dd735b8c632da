#!/bin/bash
# Runs the parts of a flowgraph on hosts of Slurm.
#   array.sh start             allocates hosts, starts the parts, and keeps them running until they end
#   array.sh stop              ends the parts and releases the hosts
#   array.sh status            name, host, address and state of each part
#   array.sh restart PART...   ends parts and starts them again; the time that this takes is missing in their output
#   array.sh update DIR [--only PART...] [--new-values] [--limit TIME]
#     Replaces the running array by the one that `fxgraph deploy --engine slurm` wrote to DIR, part by part, without a
#     missing frame: each changed part starts in its new version beside the old one, and takes its streams over
#     (`fxgraph takeover`). Then DIR has the array, and `array.sh update` supervises its parts as `start` does. If a
#     part fails, the parts before it are taken back, and nothing has changed. Parts that are not changed, or that
#     `--only` does not name, go on as they are, and have the new version when they start the next time.
#       --new-values   takes live parameters from DIR; by default those of the running parts are kept
#       --limit TIME   time limit for each step of a takeover, 60s by default
# The directory of this script must be on a file system that all hosts share.
# Slurm reads further options from the environment: SALLOC_PARTITION, SALLOC_TIMELIMIT, SALLOC_ACCOUNT.
# shellcheck disable=SC2154 # parts.sh sets the arrays
set -u
called_in=$PWD
cd "$(dirname "$(readlink -f "$0")")" || exit 1
# shellcheck source=/dev/null
. ./parts.sh || exit 1
say() { echo "array.sh: $*" >&2; }
fail() { say "$@"; exit 1; }
usage() { sed -n 's/^#   \(array.sh .*\)/\1/p' array.sh >&2; exit 2; }
put() { echo "$2" >"$1.new" && mv "$1.new" "$1"; }
read_file() { cat "$1" 2>/dev/null; }
mkdir -p run log state || exit 1
# Names of jobs have the directory in them: two deployments of one flowgraph stay apart. An array that was updated keeps
# its jobs.
own_name=$flowgraph-$(pwd | cksum | cut -d ' ' -f 1)
jobs_name=$(read_file run/jobs || echo "$own_name")
token=token

# Questions to Slurm have three answers: 0 yes, 1 no, 2 Slurm does not answer, such as while its controller starts again.
# Without an answer nothing is started, ended or forgotten.

# Job of class $1.
job_of() {
  local jobs
  jobs=$(timeout 30 squeue -h -u "$(id -un)" -n "$jobs_name-$1" -t RUNNING -o %i) || return 2
  [ -n "$jobs" ] && head -n 1 <<<"$jobs"
}
# Step that runs part $1 of directory $2. Each start of a part has a step name of its own: an old version and a new one
# may run on the same host.
step_of() {
  local step job steps
  step=$(read_file "${2:-.}/run/${file[$1]}.step") || return 1
  job=$(job_of "${class[$1]}") || return
  steps=$(timeout 30 squeue -h -s -j "$job" -o '%i %j') || return 2
  awk -v n="$step" '$2 == n {print $1; found = 1; exit} END {exit !found}' <<<"$steps"
}
# Whether host $1 is up. A star after the state marks a host that does not answer to Slurm.
is_up() {
  local now; now=$(timeout 30 sinfo -h -N -n "$1" -o %T) || return 2
  [[ ${now%%$'\n'*} =~ ^(allocated|mixed|idle|completing)$ ]]
}
# Address of host $1.
address_of() {
  local node; node=$(timeout 30 scontrol show node "$1") || return 2
  sed -n 's/.*NodeAddr=\([^ ]*\).*/\1/p' <<<"$node" | grep .
}
# Asks a question until Slurm answers, for up to 2 minutes.
answer() {
  local end=$((SECONDS + 120)) code
  while "$@"; code=$?; [ $code = 2 ] && [ $SECONDS -lt $end ]; do sleep 2; done
  [ $code != 2 ] || say "Slurm does not answer"
  return $code
}
# Runs a command of Slurm until it succeeds, for up to 2 minutes.
insist() {
  local end=$((SECONDS + 120))
  until timeout 30 "$@"; do [ $SECONDS -lt $end ] || { say "$1 fails"; return 1; }; sleep 2; done
}
# Sends signal $1 to the step of part $2 in directory $3, until Slurm has taken it or the step has ended.
signal_step() {
  local step end=$((SECONDS + 120))
  while step=$(answer step_of "$2" "${3:-.}"); do
    timeout 30 scancel --signal="$1" "$step" 2>/dev/null && return
    [ $SECONDS -lt $end ] || return
    sleep 1
  done
}
# Whether this process still supervises the array: an update removes the lock that it holds.
is_current() { [ run/lock -ef /dev/fd/9 ]; }

allocate() {
  local c=$1 job options
  job=$(answer job_of "${classes[c]}")
  case $? in
  0) say "class ${classes[c]}: job $job goes on"; return ;;
  2) fail "class ${classes[c]}: squeue must answer" ;;
  esac
  options=(--no-kill --no-shell --immediate=60 --exclusive --ntasks-per-node=1)
  [ -n "${constraint[c]}" ] && options+=("--constraint=${constraint[c]}")
  [ "${gpus[c]}" -gt 0 ] && options+=("--gpus-per-node=${gpus[c]}")
  timeout 120 salloc "${options[@]}" -N "${size[c]}" -J "$jobs_name-${classes[c]}" ||
    fail "class ${classes[c]} must get ${size[c]} hosts"
}

# Host for part $1: that of before if it is up, otherwise one that no part has. Parts are placed one at a time.
place() {
  local host job hosts before peer
  exec 8>run/place.lock; flock -w 60 8 || return 1
  before=$(read_file "run/${file[$1]}.host")
  # During an update the parts are in two directories.
  peer=$(read_file run/peer)
  job=$(job_of "${class[$1]}") || return
  hosts=$(timeout 30 squeue -h -j "$job" -o %N) && hosts=$(timeout 30 scontrol show hostnames "$hosts") || return 2
  for host in $before $hosts; do
    [ "$host" != "$before" ] && grep -qx "$host" run/*.host ${peer:+"$peer"/run/*.host} 2>/dev/null && continue
    is_up "$host"
    case $? in 1) continue ;; 2) return 2 ;; esac
    put "run/${file[$1]}.host" "$host"; echo "$job $host"; return
  done
  return 1
}

# Removes the live values of the part with file $2 in directory $1.
forget_values() { rm -f "$1/state/$2.json" "$1/run/$2.state_from"; }
# Takes the live values of the part with file $1 from where its last process has kept them.
fetch_values() {
  local from; from=$(read_file "run/$1.state_from") || return
  if [ -e "$from" ]; then mv "$from" "state/$1.json"; else rm -f "state/$1.json"; fi
  rm -f "run/$1.state_from"
}

# Keeps part $1 running. The first process waits to be started in order, later ones start at once. An update gives parts
# away (`away`: the directory that has the part), and starts new versions (`beside`: host, port and flowgraph).
supervise() {
  local i=$1 f=${file[$1]} hold=--hold-once delay=0.2 job host at yaml address step began code placed up
  while [ ! -e run/stop ] && [ ! -e "run/$f.over" ] && is_current; do
    at=${port[i]} yaml=parts/$f.yaml
    # `ended` is that of an earlier process as long as `beside` exists.
    if [ -e "run/$f.beside" ] && rm -f "run/$f.ended" && mv "run/$f.beside" "run/$f.begun" 2>/dev/null; then
      read -r host at yaml <"run/$f.begun"
      # The flowgraph that takes over has its values from its file and from the old process.
      forget_values . "$f"
      hold=--hold-once
      job=$(answer job_of "${class[i]}") || { put "run/$f.ended" 1; continue; }
    elif [ -e "run/$f.away" ]; then
      hold=; sleep 0.5; continue
    else
      host=$(read_file "run/$f.host")
      # A step of an earlier supervisor goes on.
      if [ -n "$host" ]; then
        step_of "$i" >/dev/null && is_up "$host"
        case $? in 0) hold=; sleep 1; continue ;; 2) sleep 2; continue ;; esac
      fi
      rm -f "run/$f.again"
      placed=$(place "$i") || { sleep 2; continue; }
      read -r job host <<<"$placed"
      fetch_values "$f"
    fi
    address=$(answer address_of "$host") || address=$host
    step=$f-$(date +%s%N)
    put "run/$f.host" "$host"; put "run/$f.address" "$address:$at"; put "run/$f.step" "$step"
    say "${name[i]}: starts on $host"; began=$SECONDS
    # shellcheck disable=SC2086 # empty `hold` is no argument
    srun --jobid="$job" --overlap --no-kill --immediate=30 -N 1 -n 1 -w "$host" -J "$step" --cpu-bind=none \
      "$program" run "$yaml" --listen "0.0.0.0:$at" --token-file token --state "state/$f.json" $hold \
      >>"log/$f.log" 2>&1 </dev/null 9>&-
    code=$?; hold=
    [ -e run/stop ] && break
    # During an update its sinks may be disabled for the takeover, which must not be so when it is started again. After the
    # update, another directory fetches its values.
    if [ -e "run/$f.away" ]; then is_current && forget_values . "$f"; put "run/$f.ended" "$code"; continue; fi
    [ -e "run/$f.again" ] && continue
    # With --no-kill srun returns 0 also if the host has failed.
    case $code in
    0) up=2
      until [ $up != 2 ] || [ -e run/stop ]; do answer is_up "$host"; up=$?; done
      [ $up = 0 ] && { : >"run/$f.over"; say "${name[i]}: has ended"; return; } ;;
    2 | 78) : >"run/$f.over"; say "${name[i]}: rejected (exit $code), see log/$f.log"; return ;;
    esac
    say "${name[i]}: ended on $host (exit $code), see log/$f.log"
    if [ $((SECONDS - began)) -ge 10 ]; then delay=0.2; else delay=$(awk "BEGIN {d = $delay * 2; print d < 30 ? d : 30}"); fi
    sleep "$delay"
  done
}

# curl with the token, which other users must not see on a command line.
ask() { curl -sS --max-time 10 --config <(printf 'header = "Authorization: Bearer %s"\n' "$(cat "$token")") "$@"; }
# State of the part at address $1.
state_at() { ask "http://$1/api/v1/health" 2>/dev/null | sed -n 's/.*"state": *"\([a-z]*\)".*/\1/p'; }
# State of part $1 of directory $2.
state() {
  local address; address=$(read_file "${2:-.}/run/${file[$1]}.address") || return
  state_at "$address"
}
# State of part $1 for users: `-` if it has no address, `no_answer` if it does not answer.
shown_state() {
  local now; now=$(state "$1") || { echo -; return; }
  echo "${now:-no_answer}"
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
# Index of the part that is named $1.
index_of() {
  local i
  for i in "${!name[@]}"; do [ "${name[i]}" = "$1" ] && { echo "$i"; return; }; done
  return 1
}
# Whether a job of the array runs.
is_allocated() {
  local c
  for c in "${classes[@]}"; do
    answer job_of "$c" >/dev/null
    case $? in 0) return ;; 2) fail "class $c: squeue must answer" ;; esac
  done
  return 1
}
# Directory that an update gave all parts to; empty if this one has some.
given_to() {
  local i other=
  for i in "${!name[@]}"; do other=$(read_file "run/${file[i]}.away") || return; done
  echo "$other"
}
check_no_update() {
  exec 5>run/update.lock
  flock -n 5 || fail "an update runs: interrupt it first, and it takes back what it has changed"
  exec 5>&-
}

start() {
  local c i l other
  exec 9>run/lock; flock -n 9 || fail "\`array.sh start\` runs already"
  # Without hosts, no other directory has the parts either.
  is_allocated || { rm -f run/*.away run/*.host run/*.address run/*.step; jobs_name=$own_name; }
  other=$(given_to); [ -z "$other" ] || fail "the parts run from $other: use $other/array.sh"
  put run/jobs "$jobs_name"
  rm -f run/stop run/*.over run/*.beside run/*.again run/peer
  for c in "${!classes[@]}"; do allocate "$c" 9>&-; done
  for i in "${!name[@]}"; do
    answer step_of "$i" >/dev/null
    case $? in
    1) rm -f "run/${file[i]}.address" "run/${file[i]}.host" "run/${file[i]}.step" ;;
    2) fail "${name[i]}: squeue must answer" ;;
    esac
  done
  for i in "${!name[@]}"; do supervise "$i" & done
  for i in "${!name[@]}"; do [ -e "run/${file[i]}.away" ] || await "$i" 'prepared|running|draining'; done
  # Receivers first: parts of a level send to those of lower levels.
  for l in $(printf '%s\n' "${level[@]}" | sort -nu); do
    for i in "${!name[@]}"; do
      [ "${level[i]}" = "$l" ] && [ "$(state "$i")" = prepared ] && request_start "$i"
    done
    for i in "${!name[@]}"; do
      [ "${level[i]}" = "$l" ] && [ ! -e "run/${file[i]}.away" ] && await "$i" 'running|draining' && say "${name[i]}: runs"
    done
  done
  wait
}

stop() {
  local i end c job other
  check_no_update
  other=$(given_to); [ -z "$other" ] || fail "the parts run from $other: use $other/array.sh"
  : >run/stop
  # Senders first; the others process what has arrived.
  for i in $(for n in "${!name[@]}"; do echo "${level[n]} $n"; done | sort -k1,1nr -k2,2n | cut -d ' ' -f 2); do
    signal_step INT "$i"; end=$((SECONDS + 20))
    while answer step_of "$i" >/dev/null; do
      [ $SECONDS -lt $end ] || { say "${name[i]}: does not end, and is killed"; break; }
      sleep 0.5
    done
  done
  for c in "${classes[@]}"; do
    job=$(answer job_of "$c")
    case $? in
    0) insist scancel "$job" || fail "class $c: job $job must end; call \`array.sh stop\` again" ;;
    2) fail "class $c: squeue must answer; call \`array.sh stop\` again" ;;
    esac
  done
  rm -f run/*.address run/*.host run/*.step run/*.away run/jobs
}

status() {
  local i
  for i in "${!name[@]}"; do
    printf '%s %s %s %s\n' "${name[i]}" "$(read_file "run/${file[i]}.host" || echo -)" \
      "$(read_file "run/${file[i]}.address" || echo -)" "$(shown_state "$i")"
  done
}

restart() {
  local part i end
  check_no_update
  [ $# -gt 0 ] || usage
  for part in "$@"; do index_of "$part" >/dev/null || fail "there is no part \`$part\`"; done
  for part in "$@"; do
    i=$(index_of "$part") end=$((SECONDS + 300))
    answer step_of "$i" >/dev/null
    case $? in 1) fail "$part: must run" ;; 2) fail "$part: squeue must answer" ;; esac
    : >"run/${file[i]}.again"
    signal_step INT "$i"
    until [ ! -e "run/${file[i]}.again" ] && [ "$(state "$i")" = running ]; do
      [ -e run/stop ] && fail "$part: the array was stopped"
      [ $SECONDS -lt $end ] || fail "$part: must run again within 5 minutes; does \`array.sh start\` run?"
      sleep 0.3
    done
    say "$part: runs again"
  done
}

update() {
  local new
  [ $# -gt 0 ] || usage
  new=$(cd "$called_in" && readlink -f "$1")
  if [ ! -f "$new/parts.sh" ] || [ ! -x "$new/array.sh" ]; then
    fail "\`$1\` must be a directory that \`fxgraph deploy --engine slurm\` wrote"
  fi
  [ "$new" != "$PWD" ] || fail "\`$1\` must be another directory than that of the running array"
  # The new script supervises the parts afterwards, so it does the rest.
  exec "$new/array.sh" update-from "$PWD" "${@:2}"
}

# What must be the same in two deployments for an update: parts and classes of hosts.
layout() (
  # shellcheck source=/dev/null
  . "$1/parts.sh"
  printf '%s\n' "${name[@]}" "${file[@]}" "${class[@]}" "${classes[@]}" "${size[@]}" "${constraint[@]}" "${gpus[@]}"
)
# Array $2 of the deployment in directory $1, one value a line.
array_of() (
  # shellcheck source=/dev/null
  . "$1/parts.sh"
  declare -n array=$2; printf '%s\n' "${array[@]}"
)
# Blocks in part file $1; its head has parameters of the whole flowgraph.
blocks_of() { sed -n '/^blocks:/,$p' "$1"; }

# Waits until the step of part $1 in directory $2 has ended; interrupts it after $3 s, and kills it 20 s later.
end_step() {
  local i=$1 from=$2 interrupt=$((SECONDS + $3))
  local limit=$((interrupt + 20))
  while answer step_of "$i" "$from" >/dev/null; do
    if [ $SECONDS -ge $limit ]; then
      signal_step KILL "$i" "$from"; return
    elif [ $SECONDS -ge $interrupt ]; then
      signal_step INT "$i" "$from"; interrupt=$limit
    fi
    sleep 0.5
  done
}

# Ends the version of part $1 in directory $2 that has not taken over.
end_beside() {
  local i=$1 f=${file[$1]} to=$2 end=$((SECONDS + 90))
  # It was not begun.
  mv "$to/run/$f.beside" "$to/run/$f.begun" 2>/dev/null && return
  until [ -e "$to/run/$f.ended" ]; do
    [ $SECONDS -lt $end ] || { say "${name[i]}: the version in $to must end within 90 s; end it with scancel"; return; }
    end_step "$i" "$to" 0; sleep 0.5
  done
}

# Lets the version of part $1 in directory $3 with flowgraph $4 take over from the one in directory $2. `why` says why it
# failed. Options of `fxgraph takeover` follow.
take_over() {
  local i=$1 f=${file[$1]} from=$2 to=$3 yaml=$4 host address beside at process code end=$((SECONDS + 120)); shift 4
  host=$(read_file "$from/run/$f.host"); address=$(read_file "$from/run/$f.address")
  [ -n "$address" ] || { why="it does not run"; return 1; }
  # The servers of both versions need a port on the same host.
  at=${port[i]}
  [ "$at" = "${address##*:}" ] && at=$((at + ${#name[@]} <= 65535 ? at + ${#name[@]} : at - ${#name[@]}))
  beside=${address%:*}:$at
  put "$to/run/$f.away" "$from"
  put "$to/run/$f.beside" "$host $at $yaml"
  why=
  until [ "$(state_at "$beside")" = prepared ]; do
    [ ! -e "$to/run/$f.beside" ] && [ -e "$to/run/$f.ended" ] && why="its process has ended (exit $(cat "$to/run/$f.ended")), see $to/log/$f.log"
    [ -e "$from/run/stop" ] || [ -e "$to/run/stop" ] && why="the array was stopped"
    [ -n "$interrupted" ] && why="the update was interrupted"
    [ $SECONDS -lt $end ] || why="it must be prepared within 2 minutes, see $to/log/$f.log"
    [ -n "$why" ] && { end_beside "$i" "$to"; return 1; }
    sleep 0.3
  done
  # The old supervisor must not start a process that ends because its streams were taken over. The takeover itself is
  # not interrupted: in its middle both processes are needed.
  put "$from/run/$f.away" "$to"
  (trap '' INT TERM HUP; exec timeout -k 10 900 "$program" takeover --connect "http://$address" --to "http://$beside" \
    --token-file token "$@" </dev/null >&2 6>&- 7>&- 9>&-) &
  process=$! code=129
  # A signal ends `wait` and is noted; while a command runs in the foreground, the shell may drop SIGINT.
  while [ $code -gt 128 ] && kill -0 "$process" 2>/dev/null; do wait "$process"; code=$?; done
  [ $code -gt 128 ] && { wait "$process"; code=$?; }
  if [ $code = 0 ]; then
    rm -f "$to/run/$f.away"
    end_step "$i" "$from" 20
    # For a process of an earlier supervisor.
    forget_values "$from" "$f"
    return 0
  fi
  why="the takeover has failed"
  end_beside "$i" "$to"
  rm -f "$from/run/$f.away"
  return 1
}

# Gives part $1, which `take_over` gave to this directory, back to directory $2. With `--new-values` the old version gets
# the values of its backup, and otherwise keeps those that the new version has now.
take_back() {
  local i=$1 f=${file[$1]} old=$2
  say "${name[i]}: is taken back"
  take_over "$i" "$PWD" "$old" "parts/$f.before.yaml" "${limit[@]}" "${values[@]}" && return
  say "${name[i]}: $why; the old version is started again, and the time that this takes is missing"
  put "run/$f.away" "$old"
  end_step "$i" "$PWD" 0
  rm -f "$old/run/$f.away"
}

# Replaces the array in directory $1 by this one.
update_from() {
  local old=$1 only=() limit=(--limit 60s) values=() problems=() i j l f other why='' interrupted='' order=() moved=()
  local old_program old_version old_sent old_obstacle changed end; shift
  while [ $# -gt 0 ]; do
    case $1 in
    --only) shift; while [ $# -gt 0 ] && [[ $1 != --* ]]; do only+=("$1"); shift; done ;;
    --new-values) values=(--new-values); shift ;;
    --limit) [ $# -gt 1 ] || usage; limit=(--limit "$2"); shift 2 ;;
    *) usage ;;
    esac
  done
  for other in "${only[@]}"; do index_of "$other" >/dev/null || fail "there is no part \`$other\`"; done
  [ "$(layout "$old")" = "$(layout .)" ] ||
    fail "parts and classes of hosts must be the same in $old and $PWD: stop the old array, and start the new one"
  token=$old/token
  command -v "$program" >/dev/null || fail "the program \`$program\` must be on this machine, too"
  old_program=$(array_of "$old" program) old_version=$(array_of "$old" version)
  mapfile -t old_sent < <(array_of "$old" sent); mapfile -t old_obstacle < <(array_of "$old" obstacle)

  exec 7>"$old/run/update.lock" 6>run/update.lock
  if ! flock -n 7 || ! flock -n 6; then fail "another update runs"; fi
  flock -n "$old/run/lock" true 6>&- 7>&- && fail "$old/array.sh start must run"
  exec 9>run/lock; flock -n 9 || fail "$PWD is a running array itself"
  jobs_name=$(read_file "$old/run/jobs")
  is_allocated || fail "$old/array.sh start must run"

  # Receivers first.
  for l in $(printf '%s\n' "${level[@]}" | sort -nu); do
    for i in "${!name[@]}"; do
      f=${file[i]}
      [ "${level[i]}" = "$l" ] || continue
      # An update that was killed has given it to this directory already.
      [ "$(read_file "$old/run/$f.away")" = "$PWD" ] && { moved=("$i" "${moved[@]}"); forget_values "$old" "$f"; continue; }
      changed=; is_same_part "$i" "$old" || changed=1
      [ ${#only[@]} -gt 0 ] && { changed=; [[ " ${only[*]} " == *" ${name[i]} "* ]] && changed=1; }
      [ -n "$changed" ] && order+=("$i")
    done
  done
  [ ${#order[@]} -gt 0 ] || [ ${#moved[@]} -gt 0 ] || { say "no part has changed"; return; }
  for i in "${order[@]}"; do
    for why in "${old_obstacle[i]}" "${obstacle[i]}"; do
      [ -n "$why" ] && { problems+=("${name[i]}: cannot be taken over: $why"); break; }
    done
    [ -n "$why" ] && continue
    [ "${sent[i]}" = "${old_sent[i]}" ] ||
      problems+=("${name[i]}: cannot be taken over: its streams have other groups or types, and their receivers expect the old ones")
    [ "$(state "$i" "$old")" = running ] || problems+=("${name[i]}: must run")
  done
  if [ ${#problems[@]} -gt 0 ]; then
    for why in "${problems[@]}"; do say "$why"; done
    fail "nothing was changed. Name the parts to update with \`--only PART...\`; then \`array.sh restart PART...\` in \
$PWD gives others the new version, and the time that this takes is missing in their output"
  fi

  if ! cp -p "$old/token" token.new || ! mv token.new token; then fail "cannot copy the token of $old"; fi
  rm -f run/stop run/*.over run/*.beside run/*.ended run/*.again
  put run/jobs "$jobs_name"; put run/peer "$old"; put "$old/run/peer" "$PWD"
  for i in "${!name[@]}"; do
    [ "$(read_file "$old/run/${file[i]}.away")" = "$PWD" ] && continue
    put "run/${file[i]}.away" "$old"
    adopt "$i" "$old"
  done
  trap 'interrupted=1' INT TERM HUP
  for i in "${!name[@]}"; do supervise "$i" 6>&- 7>&- & done
  why=
  for i in "${order[@]}"; do
    say "${name[i]}: is updated"
    take_over "$i" "$old" "$PWD" "parts/${file[i]}.yaml" "${limit[@]}" "${values[@]}" \
      --backup "$old/parts/${file[i]}.before.yaml" || break
    moved=("$i" "${moved[@]}")
    [ -n "$interrupted" ] && why="the update was interrupted"
    [ -z "$why" ] || break
  done
  if [ -n "$why" ]; then
    say "${name[i]}: $why"
    other=$why
    for j in "${moved[@]}"; do interrupted=; take_back "$j" "$old"; done
    : >run/stop; end=$((SECONDS + 60))
    while [ -n "$(jobs -rp)" ] && [ $SECONDS -lt $end ]; do sleep 0.5; done
    rm -f run/*.away run/*.host run/*.address run/*.step run/*.state_from run/jobs run/peer "$old/run/peer" "$old"/parts/*.before.yaml
    fail "not updated: ${name[i]}: $other. The array goes on as it was, from $old"
  fi
  # The supervisors in the old directory end with their processes.
  rm -f "$old/run/lock" "$old/run/peer" run/peer
  for i in "${!name[@]}"; do
    [ -e "run/${file[i]}.away" ] || continue
    adopt "$i" "$old"
    [ -e "run/${file[i]}.state_from" ] || put "run/${file[i]}.state_from" "$old/state/${file[i]}.json"
    [ -e "$old/run/${file[i]}.over" ] && : >"run/${file[i]}.over"
    put "$old/run/${file[i]}.away" "$PWD"
    rm -f "run/${file[i]}.away"
  done
  rm -f "$old"/run/*.host "$old"/run/*.address "$old"/run/*.step "$old"/run/*.state_from "$old"/parts/*.before.yaml
  exec 6>&- 7>&-
  trap - INT TERM HUP
  say "updated ${#moved[@]} parts; the array runs from $PWD"
  wait
}

# Whether part $1 has the same program and blocks in directory $2 as in this one.
is_same_part() {
  [ "$program $version" = "$old_program $old_version" ] &&
    cmp -s <(blocks_of "$2/parts/${file[$1]}.yaml") <(blocks_of "parts/${file[$1]}.yaml")
}

# Copies where part $1 of directory $2 runs, and keeps its live values.
adopt() {
  local key text
  for key in host address step state_from; do
    text=$(read_file "$2/run/${file[$1]}.$key") && put "run/${file[$1]}.$key" "$text"
  done
}

case ${1-} in
start | stop | status) [ $# = 1 ] || usage; "$1" ;;
restart | update) "$@" ;;
update-from) update_from "${@:2}" ;;
*) usage ;;
esac
