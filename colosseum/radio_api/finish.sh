#!/usr/bin/env bash
# The long part of stop.sh: ends the programs and collects the logs. Colosseum allows two minutes.
. "$(dirname "$0")/common.sh"
no_arguments "$@"
while marked booting && ! marked ready && ! marked failed; do sleep 0.1; done
# The exporter before the gNB, where it clears its block; a twin last, when it has been sent everything.
for name in exporter ran-emulator gnb replay; do
  runs "$name" || continue
  if [ "$name" = replay ]; then sleep "$DRAIN_S"; fi
  stop_program "$name"
done
"$API/collect.sh"
mark finished
