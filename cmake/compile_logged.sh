#!/usr/bin/env bash
# compile_logged.sh LOG OBJECT COMMAND...
# Runs a compiler and keeps what it says in LOG: shown whole when it fails (and no OBJECT is left),
# otherwise only the warnings.
set -euo pipefail
log=$1 object=$2
shift 2
rm -f -- "$object"
if "$@" > "$log" 2>&1; then
  grep -E -A4 'warning( #|:)' "$log" || true
else
  rc=$?
  cat "$log"
  rm -f -- "$object"
  exit "$rc"
fi
