#!/usr/bin/env bash
# Called when the scenario jumps, as when nodes are moved at once. The programs need not know; the time is kept.
. "$(dirname "$0")/common.sh"
no_arguments "$@"
note scenario_discontinuity.sh
