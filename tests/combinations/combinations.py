#!/usr/bin/python3
"""Draws jobs, and holds each against one device.

    combinations.py PROGRAM [--draws N] [--seed S] [--launcher mpirun ...]

See docs/testing.md.
"""

import argparse
import collections
import concurrent.futures
import os
import resource
import signal
import threading
import time
import traceback

import axes
import found
import judge
import references
import runner


NEEDLESS = "refused, though its words fit: "


def shrink(draw, verdict, judge_draw, budget=40):
    """The draw with the fewest words that still fails in the same way."""
    changed = True
    while changed and budget > 0:
        changed = False
        for candidate in judge.simpler(draw):
            budget -= 1
            if budget < 0:
                break
            found = judge_draw(candidate)
            if found.kind == "wrong" and found.why.split(":")[0] == verdict.why.split(":")[0]:
                draw, verdict, changed = candidate, found, True
                break
    return draw, verdict


def said(draw):
    return {axis: word for axis, word in draw.items() if word != axes.DEFAULT[axis]}


def judge_all(draws, options, room):
    """(number, draw, verdict) of each, told as they come; those that are wrong shrunk at the end. Entries of
    `draws` are a number, a draw, and whether it has to run."""
    signal.signal(signal.SIGTERM, lambda *_: (room.clear(), os._exit(1)))
    began = time.monotonic()
    started = runner.Runner(os.path.abspath(options.program), options.launcher,
                            os.path.abspath(options.helper))
    data = runner.Data()
    known = references.References(started, data, room.place)
    judging = judge.Judge(started, data, known)
    counter = iter(range(10**9))
    lock = threading.Lock()

    def judge_draw(draw):
        with lock:
            place = room.place(draw["model"]) / f"draw-{next(counter)}"
        try:
            with room.turn(draw["model"]):
                return judging.judge(draw, place)
        except Exception:  # a fault of this program must not pass for a draw that ran
            return judge.Verdict("wrong", "the harness failed", traceback.format_exc())
        finally:
            runner.clear(place)

    verdicts = []

    def work(entry):
        number, draw, fits = entry
        verdict = judge_draw(draw)
        if fits and verdict.kind == "refused":
            verdict = judge.Verdict("wrong", NEEDLESS + verdict.why, verdict.detail, verdict.command)
        with lock:
            verdicts.append((number, draw, verdict))
            elapsed = time.monotonic() - began
            left = elapsed / len(verdicts) * (len(draws) - len(verdicts))
            print(f"{len(verdicts)}/{len(draws)} draw {number} {verdict} "
                  f"({elapsed:.0f} s, {left:.0f} s left)", flush=True)
            if verdict.kind == "wrong":
                print(f"    {said(draw)}\n    {verdict.detail}\n    {judge.pasted(verdict.command)}",
                      flush=True)

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(work, draws))

    wrong = [entry for entry in verdicts if entry[2].kind == "wrong"]
    if not options.no_shrink:
        for number, draw, verdict in [entry for entry in wrong if not entry[2].why.startswith(NEEDLESS)][:12]:
            small, small_verdict = shrink(draw, verdict, judge_draw)
            print(f"\nDraw {number}, shrunk: {said(small)}\n  {small_verdict}\n"
                  f"  {small_verdict.detail}\n  {judge.pasted(small_verdict.command)}", flush=True)
    return verdicts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--draws", type=int, default=80)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shard", default="1/1", help="the first of four parts of the draws: 1/4")
    parser.add_argument("--helper", default="", help="the program that models stale weights")
    parser.add_argument("--jobs", type=int, default=2, help="draws at a time")
    parser.add_argument("--light", action="store_true", help="leave out the largest models")
    parser.add_argument("--found", action="store_true", help="first the draws that were wrong once")
    parser.add_argument("--no-shrink", action="store_true")
    parser.add_argument("--only", action="append", default=[], metavar="AXIS=WORD", help="say this in every draw")
    parser.add_argument("--launcher", nargs=argparse.REMAINDER, default=["mpirun"], help="starts ranks; stands last")
    options = parser.parse_args()

    part, parts = map(int, options.shard.split("/"))
    sampler = axes.Sampler(options.seed, options.light)
    draws = [(number, sampler.draw(), sampler.fits) for number in range(1, options.draws + 1)]
    for text in options.only:
        axis, word = text.split("=")
        draws = [(number, axes.mended({**draw, axis: word}), False) for number, draw, _ in draws]
    if options.found:
        draws = [(f"found {i}", axes.DEFAULT | draw, True) for i, draw in enumerate(found.DRAWS, 1)] + draws
    draws = draws[part - 1::parts]

    began = time.monotonic()
    room = runner.Room()
    try:
        verdicts = judge_all(draws, options, room)
    finally:
        room.clear()

    seen, total = sampler.pairs.coverage()
    kinds = collections.Counter(verdict.kind for _, _, verdict in verdicts)
    used = sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    print(f"\nSeed {options.seed}: {len(verdicts)} draws, {seen} of {total} pairs of words seen, "
          f"{time.monotonic() - began:.0f} s, of processor time {used / max(1, len(verdicts)):.1f} s a draw")
    for kind in ("ran", "unchecked", "refused", "wrong"):
        print(f"  {kind:9} {kinds[kind]:4}  {100 * kinds[kind] / max(1, len(verdicts)):.0f} %")
    reasons = collections.Counter((v.kind, v.why) for _, _, v in verdicts if v.kind != "ran" or v.why)
    for (kind, why), count in reasons.most_common():
        print(f"  {count:4}  {kind}: {why}")
    for why in sorted({v.why for _, _, v in verdicts if v.kind == "refused"}):
        example = next(v for _, _, v in verdicts if v.kind == "refused" and v.why == why)
        print(f"\nRefused: {example.detail}\n  {judge.pasted(example.command)}")
    too_few = kinds["ran"] < 0.7 * len(verdicts)
    if too_few:
        print("Fewer than 70 % of the draws ran.")
    too_many = kinds["unchecked"] > max(2, 0.05 * len(verdicts))
    if too_many:
        print("More than 5 % of the draws were not checked.")
    return 1 if kinds["wrong"] or too_few or too_many else 0


if __name__ == "__main__":
    raise SystemExit(main())
