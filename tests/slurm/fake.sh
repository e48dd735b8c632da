#!/bin/bash
# Replaces squeue, sinfo, scontrol, salloc, scancel and srun on hosts h0 and h1, by the name of the call. Jobs and steps are
# files in $FAKE, and live values the directory of the process that had them. Call number N of command COMMAND fails if
# $FAIL is `COMMAND N`, as every command does while the controller of Slurm starts again.
set -u
me=${0##*/}
here=$PWD
cd "$FAKE" || exit 9
exec 3>lock; flock 3
n=$(($(cat "calls/$me" 2>/dev/null || echo 0) + 1)); echo $n >"calls/$me.new"; mv "calls/$me.new" "calls/$me"
[ "${FAIL-}" = "$me $n" ] && { touch failed; echo "$me: error: Unable to contact slurm controller" >&2; exit 1; }
# Value after option $1.
after() { local option=$1; shift; while [ $# -gt 1 ]; do [ "$1" = "$option" ] && { echo "$2"; return; }; shift; done; }
steps_of() { grep -l "" steps/"$1".* 2>/dev/null; }
case $me in
squeue)
  job=$(after -j "$@")
  if [ -z "$job" ]; then
    for file in jobs/*; do [ -e "$file" ] && [ "$(cat "$file")" = "$(after -n "$@")" ] && echo "${file#jobs/}"; done
  elif [ ! -e "jobs/$job" ]; then
    echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1
  elif [[ " $* " == *" -s "* ]]; then
    for file in $(steps_of "$job"); do echo "${file#steps/} $(cut -d ' ' -f 1 "$file")"; done
  else
    echo 'h[0-1]'
  fi
  exit 0 ;;
sinfo) echo idle ;;
scontrol) if [ "$2" = hostnames ]; then printf 'h0\nh1\n'; else echo "NodeName=$3 NodeAddr=127.0.0.1"; fi ;;
salloc) after -J "$@" >"jobs/$n" ;;
scancel)
  if [ "${1#--}" != "$1" ]; then rm "steps/$2"; else rm -f steps/"$1".*; rm "jobs/$1"; fi ;;
srun)
  job=${1#--jobid=} port=$(after --listen "$@"); port=${port##*:}
  grep -qs " $port " steps/* && { echo "$*" >>doubled; exit 1; }
  [ -e "jobs/$job" ] || exit 1
  state=running; [[ " $* " == *" --hold-once "* ]] && state=prepared
  echo "$(after -J "$@") $port $state" >"steps/$job.$n"
  # A process that keeps live values writes them to its state file, unless it begins with those there.
  values=$here/$(after --state "$@"); [ -e "$values" ] || echo "$here" >"$values"
  echo $$ >>sruns
  flock -u 3
  while [ -e "steps/$job.$n" ]; do sleep 0.1; done ;;
esac
