#!/bin/sh
# opaque_addresses_test.sh SOURCES: addresses of devices are opened in backend/ and nowhere else.
set -u
cd "$1" || exit 1
[ -f backend/raw.h ] && grep -q 'raw(DeviceAddress' backend/raw.h || {
  echo "backend/raw.h, which opens addresses, is not there: this test looks for its users"
  exit 1
}
found=$(grep -rnE '#include "(millrace/)?backend/raw\.h"|[^a-z_]raw\(' --include='*.h' --include='*.cpp' . |
  grep -v '^\./backend/')
[ -z "$found" ] || {
  echo "$found"
  exit 1
}
