#!/bin/bash
# at_once.sh COMMAND ... [-- COMMAND ...]...: runs commands side by side, prints what each said, one after
# the other, and fails if any of them does. For tests that mostly wait, and must have the machine alone.
set -uo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
processes=()
begin() {
  "$@" > "$folder/${#processes[@]}" 2>&1 &
  processes+=($!)
}

command=()
for word in "$@" --; do
  if [[ $word != -- ]]; then
    command+=("$word")
  elif [[ ${#command[@]} -gt 0 ]]; then
    begin "${command[@]}"
    command=()
  fi
done

failed=0
for i in "${!processes[@]}"; do
  wait "${processes[$i]}" || failed=1
  cat "$folder/$i"
done
exit $failed
