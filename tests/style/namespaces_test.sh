#!/bin/sh
# namespaces_test.sh ROOT: a file of src/LAYER opens the namespace millrace::LAYER, of src/base millrace, and
# no other but to declare types that it needs the names of.
set -u
cd "$1" || exit 1
files=$(find src -mindepth 2 -name '*.h' -o -mindepth 2 -name '*.cpp')
[ "$(echo "$files" | wc -l)" -gt 500 ] || {
  echo "src/ has hardly any files: this test looks at them"
  exit 1
}
wrong=$(echo "$files" | xargs awk '
  FNR == 1 {
    split(FILENAME, part, "/")
    own = part[2] == "base" ? "millrace" : "millrace::" part[2]
    inside = 0
    foreign = 0
  }
  /^}  \/\/ namespace millrace/ { inside = 0; foreign = 0; next }
  /^namespace [a-z]/ && !/ = / && !inside {
    inside = 1
    foreign = $2 != own && (own == "millrace" || index($2, own "::") != 1)
    opened = $2
    next
  }
  foreign && NF && !/^(class|struct|enum class) [A-Za-z]+( : [a-z0-9_]+)?;$/ {
    print FILENAME ":" FNR - 1 ": in " opened ", not in " own
    foreign = 0
  }')
[ -z "$wrong" ] || {
  echo "namespaces of other folders:"
  echo "$wrong"
  exit 1
}
