#!/bin/sh
# Puts the exporter into what a Helm chart makes of a gNB:
#   helm upgrade --install gnb OAI-CHART --post-renderer k8s/overlays/oai-gnb/post-render.sh
# Reads the chart's manifests, writes them with the exporter: this folder's kustomization, with the chart's in place of
# gnb.yaml.  KUBECTL names another kubectl, or is "oc".
set -eu
here=$(cd "$(dirname "$0")" && pwd)
rendered=$(mktemp -d "$here/../post-render.XXXXXX") # beside this folder: its kustomization has relative paths
trap 'rm -rf "$rendered"' EXIT
trap 'exit 130' INT TERM HUP
cp "$here/kustomization.yaml" "$rendered"
cat >"$rendered/gnb.yaml"
if ! grep -q '^kind: Deployment' "$rendered/gnb.yaml"; then
  echo "post-render.sh: no Deployment on standard input; call it as helm's --post-renderer" >&2
  exit 2
fi
"${KUBECTL:-kubectl}" kustomize "$rendered" >"$rendered/out.yaml"
if ! grep -q 'name: twinlink-exporter' "$rendered/out.yaml"; then
  echo "post-render.sh: no Deployment has \"gnb\" in its name; say which is the gNB in" \
    "components/exporter-sidecar/kustomization.yaml" >&2
  exit 2
fi
cat "$rendered/out.yaml"
