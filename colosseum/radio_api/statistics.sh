#!/usr/bin/env bash
# Prints the metrics of the node's programs as one flat JSON object: {"NAME{labels}": value}, without histogram buckets.
. "$(dirname "$0")/common.sh"
no_arguments "$@"
for name in $(programs); do [ "$name" = gnb ] || ask "$name" /metrics; done | sed 's/[\\"]/\\&/g' | awk '
  BEGIN { printf "{" }
  /^#/ || /_bucket\{/ || /_created[{ ]/ || $NF !~ /^-?[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?$/ { next }
  { value = $NF; sub(/ [^ ]*$/, ""); printf "%s\"%s\": %s", comma, $0, value; comma = ", " }
  END { print "}" }'
