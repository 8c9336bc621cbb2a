#!/usr/bin/env bash
# Add what is found out about a staged set without a GPU to its evidence: whether its wheels are what their recipes say, and what
# installers pick of them. Both are added, failures too; then the exit code is that of the first check that failed.
#
#   check_set.sh STORE SET FAMILY INDEX WHEELS [PAYLOADS]
#
# With PAYLOADS nothing is added: what an attestation must be about is written into that folder.
set -u
store=$1 set=$2 family=$3 index=$4 wheels=$5 payloads=${6:-}

rocm-wheels audit --by-recipe "$wheels"/*.whl --json > verify.json
verified=$?
rocm-wheels index resolve-check "$index" "$wheels"/*.whl --json > resolve-check.json
resolved=$?
rocm-wheels set evidence add "$store" --set "$set" --family "$family" --from verify.json --from resolve-check.json \
  --wheels "$wheels" ${payloads:+--write-payloads "$payloads"} || exit
[ "$verified" -eq 0 ] || exit "$verified"
exit "$resolved"
