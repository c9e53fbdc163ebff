#!/bin/sh
# guarded_job_test.sh WAY LAUNCHER...: a job of three ranks whose rank 1 suffers WAY must end by
# itself within 10 seconds, the other two saying why; after "compute" it must end well.
way=$1
shift
output=$(timeout 14 "$@" "$way" 2>&1)
status=$?
echo "$output"
case $way in
  compute)
    said=$(echo "$output" | grep -c 'ends well')
    [ "$status" -eq 0 ] && [ "$said" -eq 3 ]
    exit
    ;;
  fail) expected='rank 1 on host .* failed: out of memory in step 3' ;;
  throw | leave) expected='rank 1 on host .* left before the job was done' ;;
  stop) expected='rank 1 on host .* has not been heard of for 5 seconds; it was last in step 3' ;;
  kill) expected='' ;;
esac
if [ "$status" -eq 0 ] || [ "$status" -eq 124 ]; then
  echo "status $status after $way"
  exit 1
fi
said=$(echo "$output" | grep -c "rank [02] ends with: $expected")
if [ "$way" != kill ] && [ "$said" -ne 2 ]; then
  echo "$said ranks named rank 1 after $way"
  exit 1
fi
