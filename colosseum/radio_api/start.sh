#!/usr/bin/env bash
# Called when the scenario starts. Only a signal: boot.sh has started the programs, and a gNB, emulated or not, waits for it.
. "$(dirname "$0")/common.sh"
no_arguments "$@"
note start.sh
mark started
