#!/bin/sh
# Writes the lists of what the images install, each package with the hashes of its files:
#   containers/requirements.txt        the packages, in the versions of constraints.txt
#   containers/build-requirements.txt  what builds twinlink's own
# Run it after a change of pyproject.toml or constraints.txt; it needs uv (pip install uv) and an index of packages.
set -eu
cd "$(dirname "$0")/.."
lock() { # OUTPUT ARGUMENTS...
  output=$1
  shift
  uv pip compile "$@" --quiet --no-config --universal --python-version 3.11 --generate-hashes --no-annotate \
    --no-emit-index-url --no-emit-find-links --constraint constraints.txt --custom-compile-command tools/lock.sh \
    --output-file "$output" >/dev/null
}
rm -f containers/requirements.txt containers/build-requirements.txt # else uv keeps the versions that stand there
lock containers/requirements.txt pyproject.toml \
  --extra e3 --extra recording --extra replay --extra metrics --extra mqtt --extra security --extra websocket
echo 'hatchling>=1.27' | lock containers/build-requirements.txt -
