#!/bin/sh
# broken_job_test.sh WAY LAUNCHER...: a job whose rank 1 breaks must end by itself within 10
# seconds with a failure, and the other ranks name rank 1 unless the launcher ends them first.
way=$1
shift
output=$(timeout 10 "$@" "$way" 2>&1)
status=$?
echo "$output"
if [ "$status" -eq 0 ] || [ "$status" -eq 124 ]; then
  echo "status $status after $way"
  exit 1
fi
if [ "$way" = refuse ] && [ "$status" -ne 2 ]; then
  echo "status $status where rank 1 ended with 2"
  exit 1
fi
case $way in
  fail) expected='ends with: rank 1 on host .* failed: out of memory' ;;
  hang | throw) expected='ends with: rank 1 on host .* did not join all_reduce within 2 seconds' ;;
  *) exit 0 ;;
esac
said=$(echo "$output" | grep -c "$expected")
if [ "$said" -lt 2 ]; then
  echo "$said ranks named rank 1 after $way"
  exit 1
fi
