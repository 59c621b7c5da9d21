#!/usr/bin/env bash
# Prints the state of the radio as one JSON object.
. "$(dirname "$0")/common.sh"
no_arguments "$@"
status
printf '{"STATUS": "%s", "INFO": %s}\n' "$STATUS" "$(as_json <<<"$INFO")"
