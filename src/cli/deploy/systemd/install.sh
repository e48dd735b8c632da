#!/usr/bin/env bash
# Installs the parts on their machines over ssh as root, and starts them, receivers first.
#   install.sh            all parts
#   install.sh PART...    these parts, like f_host[0]
set -euo pipefail
cd "$(dirname "$0")"

# Name, name in files, and machine of each part.
parts=(
PARTS
)

for wanted in "$@"; do
  for ((i = 0; i < ${#parts[@]}; i += 3)); do [ "${parts[i]}" = "$wanted" ] && continue 2; done
  echo "there is no part \`$wanted\`" >&2
  exit 1
done

for ((i = 0; i < ${#parts[@]}; i += 3)); do
  name=${parts[i]} file=${parts[i + 1]} machine=${parts[i + 2]}
  if [ $# -gt 0 ]; then
    is_wanted=
    for wanted in "$@"; do [ "$wanted" = "$name" ] && is_wanted=1; done
    [ -n "$is_wanted" ] || continue
  fi
  echo "$name: to $machine"
  # Readable for the user of the service with any umask here.
  tar -C "machines/$file" --mode=u=rwX,go=rX -c etc | ssh "root@$machine" "tar -C / -x --no-same-owner --no-overwrite-dir"
  ssh "root@$machine" "umask 077 && cat >/etc/fxgraph/token" <token
  ssh "root@$machine" "systemd-sysusers && chown fxgraph:fxgraph /etc/fxgraph/token && systemctl daemon-reload &&
    systemctl enable fxgraph@$file.service fxgraph-health@$file.timer &&
    systemctl restart fxgraph@$file.service fxgraph-health@$file.timer" </dev/null
done
