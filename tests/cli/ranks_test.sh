#!/bin/sh
# ranks_test.sh WAY PROGRAM LAUNCHER...: training as two ranks.
#   same   gives the losses of two devices in one process
#   combined  so in other ways to divide a job, evaluation included
#   head   so with a margin head, also as three ranks, and a checkpoint of it serves any number
#   wire   the same with 16 bits between them, in parallel and as stages, and half the bytes
#   overflow  of one skips the same step as two devices do, and leaves the same weights
#   predict  is foretold with the memory that it takes, as replicas and as stages
#   seeds  is refused by both ranks if their seeds differ
#   data   ends on both if one has no data
#   stop   ends by itself, naming the rank, within ten seconds of the stop of one
set -u
way=$1
program=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
flags="train --model fashion_cnn --batch 8 --threads-per-device 1 --oversubscribe --conv-algo direct --quiet"

fail() {
  echo "$way: $1"
  cat "$work/output"
  exit 1
}

# both EXPECTED: the job must have failed with this sentence on both ranks.
both() {
  [ "$status" -ne 0 ] && [ "$status" -ne 124 ] || fail "status $status"
  [ "$(grep -c "millrace: .*$1" "$work/output")" -eq 2 ] || fail "not both ranks say '$1'"
}

losses() {
  timeout 60 "$@" --summary "$work/summary" > "$work/output" 2>&1 || fail "status $?"
  python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["loss"])' "$work/summary"
}

case $way in
  same)
    flags="$flags --steps 5"
    losses "$@" -n 2 "$program" $flags > "$work/ranks" || fail "$(cat "$work/ranks")"
    losses "$program" $flags --devices 2 > "$work/devices" || fail "$(cat "$work/devices")"
    [ -s "$work/ranks" ] && cmp -s "$work/ranks" "$work/devices" ||
      fail "$(cat "$work/ranks" "$work/devices")"
    ;;
  combined)
    # outcome NAME COMMAND...: losses and the scores of an evaluation of 40 samples.
    outcome() {
      name=$1
      shift
      timeout 60 "$@" --summary "$work/summary" > "$work/output" 2>&1 || fail "status $?: $*"
      python3 -c 'import json, sys
summary = json.load(open(sys.argv[1]))
scores = summary["evaluation"]
assert scores["samples"] == 40, scores
print(summary["loss"], round(scores["loss"], 12), scores["top1"], scores["top5"])' "$work/summary" \
        > "$work/$name" || fail "not 40 samples: $*"
    }
    "$program" data synth "ofrecord:$work/set" --count 40 --classes 10 --height 28 --width 28 \
      --channels 1 > "$work/output" 2>&1 || fail "no data"
    flags="$flags --steps 3 --data ofrecord:$work/set --eval-data ofrecord:$work/set"
    for plan in "0:0,1:0 --parallel hybrid" "0:0,1:0 --parallel model --microbatches 2" \
      "0:0,1:0 --parallel hybrid --optimizer lars --microbatches 2" \
      "0:0,1:0 --replicas roundrobin --microbatches 2" \
      "0:0,1:0 --share-optimizer --clip-norm 0.1" \
      "0:0.1:0 --clip-norm 0.1 --microbatches 2" \
      "0:0,1:0.1:0 --clip-norm 0.1 --microbatches 2 --cut-after fc"; do
      outcome ranks "$@" -n 2 "$program" $flags --placement $plan
      outcome devices "$program" $flags --placement $(echo "$plan" | sed 's/1:0/0:1/g')
      cmp -s "$work/ranks" "$work/devices" ||
        fail "$plan: $(cat "$work/ranks" "$work/devices")"
    done
    ;;
  head)
    flags="train --model mobilefacenet --image 16 --classes 100 --head arcface --lr 0.01
      --threads-per-device 1 --oversubscribe --conv-algo direct --quiet"
    for ranks in 2 3; do
      for head in "mp" "pfc --sample-rate 0.3 --head-dtype bf16"; do
        job="$flags --batch $((12 / ranks)) --head-parallel $head"
        losses "$@" -n $ranks "$program" $job --steps 3 > "$work/ranks" || fail "$(cat "$work/ranks")"
        losses "$program" $job --devices $ranks --steps 3 > "$work/devices" ||
          fail "$(cat "$work/devices")"
        [ -s "$work/ranks" ] && cmp -s "$work/ranks" "$work/devices" ||
          fail "$(cat "$work/ranks" "$work/devices")"
      done
    done
    # Two steps as three ranks, the third as one or two, and what the checkpoint has in between.
    mp="$flags --head-parallel mp --checkpoint $work/run"
    losses "$@" -n 3 "$program" $mp --batch 4 --steps 2 --save-weights "$work/three" > "$work/ranks" ||
      fail "$(cat "$work/ranks")"
    [ "$(ls "$work/run/step-00000002" | grep -c centres-)" -eq 3 ] || fail "not three shards"
    losses "$program" $mp --batch 12 --steps 2 --resume --save-weights "$work/one" > "$work/ranks" ||
      fail "$(cat "$work/ranks")"
    losses "$@" -n 2 "$program" $mp --batch 6 --steps 2 --resume --save-weights "$work/two" \
      > "$work/ranks" || fail "$(cat "$work/ranks")"
    cmp "$work/three" "$work/one" && cmp "$work/three" "$work/two" || fail "other weights"
    ;;
  wire)
    # outcome NAME COMMAND...: losses, and the bytes that travelled.
    outcome() {
      name=$1
      shift
      timeout 60 "$@" --steps 5 --summary "$work/summary" > "$work/output" 2>&1 || fail "status $?"
      python3 -c 'import json, sys
summary = json.load(open(sys.argv[1]))
print(summary["loss"], summary["communication"]["bytes"])' "$work/summary" > "$work/$name"
    }
    for dtype in fp16 bf16; do
      narrow="--comm-dtype $dtype"
      outcome ranks "$@" -n 2 "$program" $flags $narrow
      outcome devices "$program" $flags --devices 2 $narrow
      cmp -s "$work/ranks" "$work/devices" || fail "$(cat "$work/ranks" "$work/devices")"
      outcome full "$program" $flags --devices 2
      cmp -s "$work/full" "$work/devices" && fail "$dtype changed nothing"
      python3 - "$work/full" "$work/devices" << 'EOF' || fail "not half the bytes or other losses"
import json, sys
full, half = (open(name).read().rsplit(" ", 1) for name in sys.argv[1:])
assert 0.45 < int(half[1]) / int(full[1]) < 0.55, (half[1], full[1])
for a, b in zip(json.loads(full[0]), json.loads(half[0])):
    assert abs(a - b) < 0.02 * a, (a, b)
EOF
      stages="--microbatches 4 --stage-weights 1:1"
      outcome ranks "$@" -n 2 "$program" $flags $narrow --placement 0:0.1:0 $stages
      outcome devices "$program" $flags $narrow --placement 0:0.0:1 $stages
      cmp -s "$work/ranks" "$work/devices" || fail "$(cat "$work/ranks" "$work/devices")"
    done
    ;;
  overflow)
    scaled="$flags --steps 4 --loss-scale dynamic --inject-overflow 3:1 --optimizer adamw"
    skipped() {
      timeout 60 "$@" --metrics "$work/metrics" > "$work/output" 2>&1 || fail "status $?"
      grep -o '"loss_scale":[0-9.]*\|"skipped":[a-z]*' "$work/metrics"
    }
    for plan in "" "--placement 0:0.1:0" "--placement 0:0.1:0 --schedule 1f1b"; do
      skipped "$@" -n 2 "$program" $scaled $plan --save-weights "$work/two" > "$work/ranks" ||
        fail "$(cat "$work/ranks")"
      [ "$(grep -c true "$work/ranks")" -eq 1 ] || fail "$(cat "$work/ranks")"
      local=$(echo "${plan:---devices 2}" | sed 's/1:0/0:1/')
      skipped "$program" $scaled $local --save-weights "$work/one" > "$work/devices" ||
        fail "$(cat "$work/devices")"
      cmp -s "$work/ranks" "$work/devices" || fail "$(cat "$work/ranks" "$work/devices")"
      cmp "$work/one" "$work/two" || fail "other weights with '$plan'"
    done
    # A rank that waits for the others' findings has first run what they need of it.
    timeout 60 "$@" -n 2 "$program" $flags --steps 4 --backend strict --loss-scale 32 --microbatches 2 \
      --replicas roundrobin > "$work/output" 2>&1 || fail "status $? with replicas on strict devices"
    ;;
  predict)
    job="plan --check --json --steps 3 --rounds 2 --model fashion_cnn --batch 8
      --threads-per-device 1 --oversubscribe --conv-algo direct"
    for plan in "" "--placement 0:0.1:0 --microbatches 4"; do
      timeout 60 "$@" -n 2 "$program" $job $plan > "$work/output" 2> "$work/errors" ||
        fail "status $? with '$plan': $(cat "$work/errors")"
      python3 - "$work/output" << 'EOF' || fail "not what was asked for with '$plan'"
import json, sys
said = json.load(open(sys.argv[1]))
assert said["arena_exact"] is True
assert min(said["predicted_step_seconds"], said["measured_step_seconds"]) > 0
assert [device["id"] for device in said["devices"]] == ["0:0", "1:0"], said["devices"]
used = {link["name"] for link in said["links"] if link["bytes_per_step"] > 0}
assert {f"device {i} {way}" for i in (0, 1) for way in ("out", "in")} <= used, used
EOF
    done
    ;;
  seeds)
    timeout 30 "$@" -n 1 "$program" $flags --steps 5 --seed 3 : -n 1 "$program" $flags --steps 5 \
      --seed 4 > "$work/output" 2>&1
    status=$?
    both 'seed is 3 on .*rank 0 .* but 4 on .*rank 1 '
    # Open MPI's mpirun itself may crash when both ranks leave at once, or not know with which status they did;
    # then it ends with a status of its own.
    [ "$status" -eq 2 ] || grep -qE 'PMIx_Finalize|mpirun.*: abort is already in progress' "$work/output" ||
      { [ "$status" -eq 1 ] && grep -q 'the job has been aborted' "$work/output" &&
        ! grep -q 'Exit code: ' "$work/output"; } ||
      fail "status $status"
    ;;
  data)
    timeout 30 "$@" -n 1 "$program" $flags --steps 5 : -n 1 "$program" $flags --steps 5 \
      --data idx:nowhere > "$work/output" 2>&1
    status=$?
    both "Data set 'nowhere' does not exist"
    ;;
  stop)
    timeout 60 "$@" -n 2 sh -c 'echo $$ > "$0/pid.${OMPI_COMM_WORLD_RANK:-$PMI_RANK}"; exec "$@"' \
      "$work" "$program" $flags --steps 1000000 --metrics "$work/metrics" > "$work/output" 2>&1 &
    job=$!
    while [ "$(wc -l 2> /dev/null < "$work/metrics" || echo 0)" -lt 3 ]; do
      kill -0 $job 2> /dev/null || fail "it did not start"
      sleep 0.1
    done
    sleep 3 # a beat, one a second, has told what the rank is doing
    stopped=$(date +%s)
    kill -STOP "$(cat "$work/pid.1")"
    wait $job
    status=$?
    while kill -0 "$(cat "$work/pid.1")" 2> /dev/null; do
      [ $(($(date +%s) - stopped)) -le 10 ] || fail "rank 1 is still there"
      sleep 0.1
    done
    [ $(($(date +%s) - stopped)) -le 10 ] || fail "$(($(date +%s) - stopped)) seconds"
    [ "$status" -ne 0 ] && [ "$status" -ne 124 ] || fail "status $status"
    grep -qE 'millrace: rank 1 on host .* has (not been heard of|been stopped by a signal).*it was last in step' "$work/output" ||
      fail "rank 0 does not say why"
    ;;
  *) fail "there is no such way" ;;
esac
exit 0
