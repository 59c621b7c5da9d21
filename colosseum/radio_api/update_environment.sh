#!/usr/bin/env bash
# Called when Colosseum has replaced environment.json. The programs do not read it; each version is kept.
. "$(dirname "$0")/common.sh"
no_arguments "$@"
keep_version environment.json
