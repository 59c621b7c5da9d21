#!/usr/bin/env bash
# Puts into /logs what explains a run, beside what the programs write there. Also by hand, in an interactive session.
. "$(dirname "$0")/common.sh"
no_arguments "$@"
mkdir -p "$LOGS"
for name in radio.conf colosseum_config.ini environment.json mandated_outcomes.json; do
  if [ -e "$API/$name" ]; then cp "$API/$name" "$LOGS/"; fi
done
{
  date --utc +%FT%TZ
  uname -a
  ip address
  cat /etc/hosts
} >"$LOGS/node.txt" 2>&1
timeout 30 "$BIN/twinlink" doctor >"$LOGS/doctor.txt" 2>&1
if has_systemd; then journalctl --no-pager --unit 'twinlink*' >"$LOGS/journal.txt" 2>&1; fi
chmod -R a+rX "$LOGS"
note collect.sh
