#!/usr/bin/env bash
# Called when the scenario is over. Returns at once; finish.sh goes on, and status.sh says FINISHED when it is done.
. "$(dirname "$0")/common.sh"
no_arguments "$@"
note stop.sh
if marked stopping; then exit 0; fi
mark stopping
setsid "$API/finish.sh" </dev/null >>"$LOGS/finish.txt" 2>&1 &
