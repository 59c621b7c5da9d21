#!/usr/bin/env bash
# Called when Colosseum has replaced mandated_outcomes.json. The programs do not read it; each version is kept.
. "$(dirname "$0")/common.sh"
no_arguments "$@"
keep_version mandated_outcomes.json
