"""The PyTorch peer of `millrace bench head` speaks its protocol and computes what it says."""

import json
import os
import subprocess
import sys
import unittest

PEER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../bench/peer_partial_fc.py")
TINY = ["--classes", "300", "--batch", "8", "--dimension", "16", "--threads", "1"]


def run(*arguments, commands="step\nstep\nstep\nquit\n"):
    done = subprocess.run([sys.executable, PEER, *TINY, *arguments], input=commands, text=True,
                          capture_output=True, check=False)
    return done, [json.loads(line) for line in done.stdout.splitlines()]


def losses(*arguments):
    done, lines = run(*arguments)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return [line["loss"] for line in lines[1:-1]]


class PeerTest(unittest.TestCase):
    def test_every_way_is_the_same_with_every_class(self):
        dense = losses("--mode", "mp")
        self.assertLess(dense[2], dense[0])
        for update in ["sampled", "dense"]:
            sampled = losses("--mode", "pfc", "--sample-rate", "1", "--update", update)
            for a, b in zip(dense, sampled):
                self.assertAlmostEqual(a, b, delta=1e-3 * (1 + abs(a)))

    def test_a_sample_trains_too(self):
        for update in ["sampled", "dense"]:
            values = losses("--mode", "pfc", "--sample-rate", "0.1", "--update", update)
            self.assertLess(values[2], values[0])

    def test_protocol(self):
        done, lines = run("--mode", "pfc")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(lines[0]["ready"])
        self.assertEqual([line["step"] for line in lines[1:-1]], [1, 2, 3])
        self.assertGreater(lines[-1]["samples_per_second"], 0)
        self.assertGreater(lines[-1]["peak_rss_bytes"], 50 << 20)
        self.assertNotEqual(run(commands="stop\n")[0].returncode, 0)


if __name__ == "__main__":
    unittest.main()
