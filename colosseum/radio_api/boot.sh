#!/usr/bin/env bash
# Starts the programs that radio.conf names, when the container starts (twinlink-boot.service) or by hand.
#
# They are started here and not by start.sh, whose children get no real-time priority on an SRN.
. "$(dirname "$0")/common.sh"
no_arguments "$@"

fail() {
  mark failed "$*"
  note "boot.sh: $*"
  echo "$*" >&2
  exit 1
}

if marked finished || marked failed; then rm -r "$RUN"; fi # again, by hand
if marked booting; then
  echo "the programs have been started; stop.sh ends them" >&2
  exit 1
fi
if [ ! -e "$CONFIG" ]; then
  echo "$CONFIG is missing: this node stays OFF" >&2
  exit 0
fi
mark booting
note boot.sh
names=$(programs)
[ -n "$names" ] || fail "$CONFIG has none of the tables [replay], [exporter], [ran-emulator]: nothing to start"
for name in $names; do
  if [ "$name" = gnb ]; then # it has no --check
    [ -r "$GNB_CONFIG" ] || fail "$GNB_CONFIG is missing, the configuration of the gNB in this image"
    continue
  fi
  command_of "$name"
  said=$("${COMMAND[@]}" --check 2>&1) || fail "twinlink-$name does not take $CONFIG: $said"
  note "$said"
done
for name in $names; do
  marked stopping || start_program "$name" || fail "twinlink-$name could not be started"
done
mark ready
