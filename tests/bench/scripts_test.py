"""Tests of the benchmark scripts and of tools/kill-test.

usage: scripts_test.py BUILD_DIRECTORY [TEST...]
"""
import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import unittest
from importlib.machinery import SourceFileLoader

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench"))

import checkpoint_slowdown
import millrace_runs as runs
import plan_choice
import prediction
import real_data
import timelines


def load_kill_test():
    loader = SourceFileLoader("kill_test", os.path.join(ROOT, "tools", "kill-test"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("kill_test", loader))
    loader.exec_module(module)
    return module


def step(number, seconds, checkpoint_seconds=0.0, wait_seconds=0.0):
    return {"kind": "step", "step": number, "seconds": seconds, "wait_seconds": wait_seconds,
            "checkpoint_seconds": checkpoint_seconds}


class Figures(unittest.TestCase):
    def test_real_data_ratio_is_of_the_medians(self):
        synthetic = [[step(2, 1.9), step(3, 1.9)], [step(2, 1.9), step(3, 50)]]
        real = [[step(2, 2.0, wait_seconds=0.5), step(3, 2.0)], [step(2, 2.0), step(3, 4.0)]]
        result = real_data.compare(synthetic, real)
        self.assertAlmostEqual(result["ratio"], 0.95)
        self.assertAlmostEqual(result["waited_seconds"], 0.5)
        self.assertAlmostEqual(result["waited_share"], 0.05)
        slow = [[step(2, 2.1)], [step(2, 2.1)]]
        self.assertFalse(real_data.compare(synthetic, slow)["met"])

    def test_predictions_are_judged_by_median_worst_and_memory(self):
        def rows(*errors, **more):
            return [{"error": error, "arena_exact": True, "rss_error": 0.05,
                     "measured_step_seconds": 2.0 ** place,
                     "predicted_step_seconds": 2.0 ** place * (1 + error), **more}
                    for place, error in enumerate(errors)]
        self.assertTrue(prediction.judge(rows(0.02, -0.05, 0.15))["met"])
        self.assertFalse(prediction.judge(rows(0.06, -0.06, 0.01))["met"])
        turned = rows(0.01, -0.04, 0.02)
        turned[0]["predicted_step_seconds"] = 5.0
        result = prediction.judge(turned)
        self.assertEqual((result["pairs"], result["reversed"], result["met"]), (3, 2, False))
        self.assertFalse(prediction.judge(rows(0.01, 0.01, -0.16))["met"])
        self.assertFalse(prediction.judge(rows(0.01, arena_exact=False))["met"])
        self.assertFalse(prediction.judge(rows(0.01, rss_error=-0.2))["met"])
        self.assertEqual(prediction.parse_report('note\n{"a": {"b": 1}}\nend'), {"a": {"b": 1}})
        self.assertRaises(ValueError, prediction.parse_report, "nothing")

    def test_jobs_are_drawn_by_the_seed(self):
        self.assertEqual(prediction.draw(24, 1), prediction.draw(24, 1))
        self.assertNotEqual(prediction.draw(24, 1), prediction.draw(24, 2))
        self.assertEqual(len({job[:2] for job in prediction.draw(24, 3)}), 24)
        self.assertEqual(len(set(plan_choice.draw(17, 1))), 17)

    def test_timelines_are_compared_within_their_steps(self):
        def event(kind, micro, begin, end):
            return {"ph": "X", "pid": 0, "tid": 0, "cat": kind, "name": kind, "ts": 1e6 * begin,
                    "dur": 1e6 * (end - begin), "args": {"micro_batch": micro}}
        ours = [event("forward", 0, step, step + 0.5) for step in (0, 1, 2)]
        ours += [event("backward", 0, step + 0.5, step + 1) for step in (0, 1, 2)]
        later = [{**one, "ts": one["ts"] + 7e6} for one in ours]
        result = timelines.compare(ours, later, 1.0)
        self.assertEqual((result["tasks"], result["within"]), (2, 1.0))
        self.assertAlmostEqual(result["worst"], 0)
        slow = [{**one, "dur": one["dur"] + 1e5} if one["cat"] == "forward" else one
                for one in later]
        self.assertAlmostEqual(timelines.compare(ours, slow, 1.0)["worst"], 0.1)
        self.assertRaises(ValueError, timelines.compare, ours, later[:3], 1.0)
        # A program that runs whole updates weights between pieces of its backward pass.
        pieces = []
        for step in (0, 1, 2):
            pieces += [event("forward", 0, step, step + 0.2), event("forward", 0, step + 0.3, step + 0.5)]
            for part in (0, 1):
                begin = step + 0.5 + part / 4
                pieces += [event("backward", 0, begin, begin + 0.2),
                           event("update", 0, begin + 0.2, begin + 0.25)]
        spans = timelines.tasks_of(pieces)
        self.assertEqual(spans[0, 0, "forward", "forward", 0][1], (1, 1.5))
        self.assertEqual([len(one) for one in spans.values()], [3, 3, 3])
        self.assertAlmostEqual(spans[0, 0, "backward", "backward", 0][2][1], 2.95)
        self.assertAlmostEqual(spans[0, 0, "update", "update", 0][2][0], 2.7)
        # A pipeline that is never drained: the next step begins before this one has ended.
        running = [event("forward", number, number, number + 0.5) for number in range(6)]
        running += [event("backward", number, number + 0.7, number + 1.4) for number in range(6)]
        slow_start = [{**one, "ts": one["ts"] + 3e6 * (one["args"]["micro_batch"] > 0)}
                      for one in running]
        result = timelines.compare(running, slow_start, 1.0)
        self.assertEqual(result["tasks"], 3)
        self.assertAlmostEqual(result["worst"], 0)
        late = [{**one, "dur": one["dur"] + 1e5} if one["cat"] == "backward" else one
                for one in running]
        self.assertAlmostEqual(timelines.compare(running, late, 1.0)["worst"], 0.1)
        pace = [{**one, "ts": 1.2 * one["ts"]} for one in running]
        self.assertAlmostEqual(timelines.compare(running, pace, 1.0)["worst"], 0.2)
        self.assertEqual(timelines.compare(running, slow_start, 1.0, 2)["tasks"], 5)

    def test_choice_is_held_against_the_best_measured(self):
        result = plan_choice.judge([1.02, 9.0, 1.0, 1.02, 1.03], [1.0, 1.0, 5.0, 0.9, 1.0])
        self.assertAlmostEqual(result["loss"], 0.02)
        self.assertTrue(result["met"])
        self.assertFalse(plan_choice.judge([1.04] * 3, [1.0] * 3)["met"])
        self.assertTrue(plan_choice.judge([0.9], [1.0])["met"])
        rows = [{"name": plan_choice.CHOSEN, "measured": [0.1]},
                {"name": "a", "measured": [1.0, 3.0, 3.0]},
                {"name": "b", "measured": [2.0, 2.0, 9.0]}]
        self.assertEqual(plan_choice.best_of_others(rows)["name"], "b")
        rows = [{"name": name, "look": seconds}
                for name, seconds in ((plan_choice.CHOSEN, 9), ("c", 1), ("d", 1.4), ("e", 1.5))]
        self.assertEqual([row["name"] for row in plan_choice.near_the_fastest(rows)],
                         [plan_choice.CHOSEN, "c", "d"])

    def test_jobs_are_measured_in_parts(self):
        part = lambda only: runs.chosen_part(argparse.Namespace(only=only), list("abcde"))
        self.assertEqual([part(None), part("2-3"), part("5")],
                         [list("abcde"), ["b", "c"], ["e"]])
        with tempfile.TemporaryDirectory() as directory:
            files = [os.path.join(directory, name) for name in "xy"]
            for number, path in enumerate(files):
                runs.save_json(path, {"rows": [number]})
            self.assertEqual(runs.joined_rows(argparse.Namespace(join=files)), [0, 1])
        self.assertEqual(plan_choice.steps_of_run(argparse.Namespace(steps=12), 0.005), 120)
        self.assertEqual(plan_choice.steps_of_run(argparse.Namespace(steps=12), 0.5), 12)

    def test_chosen_plan_is_trained_with_its_flags(self):
        report = {"flags": {"--batch": 8.0, "--recompute": "none"}}
        self.assertEqual(plan_choice.flags_of(report, "p.json"),
                         ["--plan", "p.json", "--batch", "8", "--recompute", "none"])
        names = [name for name, _, _ in plan_choice.plans(4, [1, 2, 4], True)]
        self.assertEqual(len(names), len(set(names)))
        self.assertIn("zero-bubble, 2", names)
        self.assertNotIn("2bw, 1", names)
        self.assertNotIn("gpipe, 4", names)

    @staticmethod
    def checkpoint_run(beside, pause):
        return [step(1, 99), step(2, 2.0), step(3, beside, beside), step(4, beside, 0.1 * beside),
                {"kind": "checkpoint", "step": 2, "bytes": 7, "seconds": 3.0,
                 "pause_seconds": pause},
                step(5, 2.0),
                {"kind": "checkpoint", "step": 5, "bytes": 7, "seconds": 1.0,
                 "pause_seconds": 40.0}]

    def test_checkpoint_pauses_count(self):
        result = checkpoint_slowdown.compare(self.checkpoint_run(2.1, 0.1))
        self.assertEqual((result["beside_steps"], result["touched_steps"]), (1, 2))
        self.assertAlmostEqual(result["ratio"], 1.05)
        self.assertAlmostEqual(result["ratio_with_pauses"], 4.3 / 4.0)
        self.assertTrue(result["met"])
        self.assertFalse(checkpoint_slowdown.compare(self.checkpoint_run(2.1, 1.0))["met"])
        self.assertFalse(checkpoint_slowdown.compare(self.checkpoint_run(2.3, 0.0))["met"])

    def test_nothing_to_compare_is_an_error(self):
        with self.assertRaises(ValueError):
            checkpoint_slowdown.compare([step(1, 1), step(2, 1), step(3, 1)])

    def test_one_other_bit_is_noticed(self):
        kill_test = load_kill_test()
        with tempfile.TemporaryDirectory() as directory:
            sides = [os.path.join(directory, side) for side in "ab"]
            for side in sides:
                os.mkdir(side)
                for name in kill_test.STATE_FILES:
                    with open(os.path.join(side, name), "wb") as file:
                        file.write(bytes(1000))
            self.assertTrue(kill_test.same_state(*sides))
            with open(os.path.join(sides[1], "optimizer.safetensors"), "r+b") as file:
                file.seek(700)
                file.write(b"\1")
            self.assertFalse(kill_test.same_state(*sides))
            os.remove(os.path.join(sides[1], "optimizer.safetensors"))
            self.assertFalse(kill_test.same_state(*sides))


class RealData(unittest.TestCase):
    def test_tiny_run(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "result.json")
            command = [sys.executable, "-B", os.path.join(ROOT, "bench", "real_data.py"),
                       "--build", BUILD, "--directory", directory, "--json", path, "--model",
                       "resnet18", "--image", "64", "--batch", "4", "--steps", "4", "--rounds",
                       "2", "--images", "24", "--classes", "8", "--threads", "1"]
            done = subprocess.run(command, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("ratio", done.stdout)
            with open(path) as file:
                result = json.load(file)
            self.assertEqual(len(result["ratio_of_each_round"]), 2)
            self.assertGreater(result["synthetic_seconds_per_step"], 0)
            self.assertEqual(sorted(os.listdir(directory)),
                             ["jpeg-24-500x375-8", "result.json"])


class PlanChoice(unittest.TestCase):
    def test_tiny_run(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "result.json")
            command = [sys.executable, "-B", os.path.join(ROOT, "bench", "plan_choice.py"),
                       "--build", BUILD, "--json", path, "--model", "fashion_cnn", "--image", "28",
                       "--classes", "10", "--samples", "4", "--steps", "2", "--rounds", "1",
                       "--finalists", "2", "--repeats", "1", "--finals", "1", "--microbatches",
                       "1", "--conv-algo", "direct"]
            done = subprocess.run(command, capture_output=True, text=True)
            self.assertIn(done.returncode, (0, 1), done.stderr)
            with open(path) as file:
                result = json.load(file)
            self.assertEqual(result["met"], done.returncode == 0)
            model, = result["rows"]
            self.assertEqual(len(model["rows"]), 6)
            self.assertEqual(len(model["finalists"]), 2)
            self.assertEqual(model["predicted_seconds"],
                             min(one["predicted"] for one in model["finalists"]))
            self.assertEqual(sorted(model["again"]), sorted([plan_choice.CHOSEN, model["best"]]))


class CheckpointSlowdown(unittest.TestCase):
    def test_tiny_run(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "result.json")
            command = [sys.executable, "-B",
                       os.path.join(ROOT, "bench", "checkpoint_slowdown.py"), "--build", BUILD,
                       "--directory", directory, "--json", path, "--model", "resnet18",
                       "--image", "64", "--batch", "4", "--steps", "9", "--checkpoint-every", "4",
                       "--classes", "8", "--threads", "1"]
            done = subprocess.run(command, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(path) as file:
                result = json.load(file)
            self.assertEqual(result["checkpoints"], 3)
            self.assertGreater(result["touched_steps"], 0)
            # 11.2 million weights and their momentum, four bytes each.
            self.assertAlmostEqual(result["bytes"] / (8 * 11.18e6), 1, delta=0.01)
            self.assertEqual(os.listdir(directory), ["result.json"])


if __name__ == "__main__":
    BUILD = sys.argv.pop(1)
    unittest.main()
