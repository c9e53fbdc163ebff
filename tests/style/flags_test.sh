#!/bin/sh
# flags_test.sh ROOT: no string below src/cli spells a flag; settings are marked (base/setting_names.h), by names that
# flags have.
# Where an error becomes part of another sentence, its marks go along: nothing takes its what().
set -u
cd "$1" || exit 1
files=$(find src -name '*.cpp' -o -name '*.h')
below=$(echo "$files" | grep -v '^src/cli/')
[ "$(grep -lE '"[^"]*‹[a-z0-9_]+›' $below | wc -l)" -gt 30 ] || {
  echo "hardly any string of src/ marks a setting: this test looks for those that do not"
  exit 1
}

# Flags of other programs, whole commands, style sheets, and the arguments of what bench/ starts.
allowed='lstopo --of|srun |--mpi=|--share:|millrace (plan|profile) --|`plan --predict`|^src/bench/[^"]*("[^" ]*"[^"]*)*$'
spelled=$(grep -nE '"[^"]*--([a-z]|\{|")' $below | grep -vE '^[^:]*:[0-9]*: *//' | grep -vE "$allowed")
[ -z "$spelled" ] || {
  echo "flags in strings below src/cli; write ‹name_of_setting›:"
  echo "$spelled"
  exit 1
}

for name in $(grep -hoE '‹[a-z0-9_]+›' $below | sed 's/[‹›]//g' | sort -u); do
  flag="--$(echo "$name" | tr _ -)"
  grep -rqE -- "[\",]$flag[\",]" src/cli || {
    echo "‹$name› is marked as a setting, but src/cli has no flag $flag"
    exit 1
  }
done

unmarked=$(awk '
  FNR == 1 { marked = 0 }
  /catch \(const / { marked = /const (InputError|JobError|std::exception|std::runtime_error)& error/ }
  marked && /error\.what\(\)/ { print FILENAME ": " $0 }' $(echo "$files" | grep -v '^src/base/error.h'))
[ -z "$unmarked" ] || {
  echo "what() loses the marks of settings; use marked() or marked_text():"
  echo "$unmarked"
  exit 1
}
