#!/usr/bin/env bash
# Becomes one of the programs (replay, exporter, ran-emulator, gnb), once what it needs is there.
. "$(dirname "$0")/common.sh"
name=${1:?usage: run.sh replay|exporter|ran-emulator|gnb}
case $name in ran-emulator | gnb) is_gnb=1 ;; *) is_gnb= ;; esac

# The address of the other node is not known before the job runs: only its port, and that it is on col0.
if port=$(grep -oE 'tcp/peer\.col0:[0-9]+' "$CONFIG" | head -n 1) && [ -n "$port" ] && [ -z "$is_gnb" ]; then
  port=${port##*:}
  mark "$name.waits" "looks for the node on col0 that listens at port $port"
  address=$("$BIN/python" "$API/find_peer.py" "$port") || exit 1
  sed '/ peer\.col0$/d' /etc/hosts >"$RUN/hosts"
  echo "$address peer.col0" >>"$RUN/hosts"
  cat "$RUN/hosts" >/etc/hosts
fi
# A gNB, emulated or not, begins when the scenario does.
if [ -n "$is_gnb" ]; then
  mark "$name.waits" "waits for start.sh"
  until marked started; do sleep 0.1; done
fi
rm -f "$RUN/$name.waits"

log=$LOGS/$name.jsonl # each start has a file of its own
if [ -e "$log" ]; then mv "$log" "$log.$(date +%s)"; fi
command_of "$name"
exec "${COMMAND[@]}"
