#!/bin/sh
# names_test.sh ROOT: files are named in snake_case, and no two headers of src/ give one name to two
# types of a namespace.
set -u
cd "$1" || exit 1
headers=$(find src -name '*.h')
[ "$(echo "$headers" | wc -l)" -gt 100 ] || {
  echo "src/ has hardly any headers: this test looks at them"
  exit 1
}
wrong=$(find src tests bench fuzz examples -name '*.cpp' -o -name '*.h' | grep -vE '/[a-z0-9_]+\.(cpp|h)$')
[ -z "$wrong" ] || {
  echo "not in snake_case:"
  echo "$wrong"
  exit 1
}
twice=$(awk '
  /^namespace / { space = $2 }
  space ~ /^millrace/ && /^(struct|class|enum class) [A-Za-z]+( final)?( :.*)?( \{|$)/ && !/;$/ {
    name = $1 == "enum" ? $3 : $2
    name = space "::" name
    if (name in seen && seen[name] != FILENAME) print name ": " seen[name] " and " FILENAME
    seen[name] = FILENAME
  }' $headers)
[ -z "$twice" ] || {
  echo "one name, two types:"
  echo "$twice"
  exit 1
}
