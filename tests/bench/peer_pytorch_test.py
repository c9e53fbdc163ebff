"""The PyTorch peer speaks the protocol that `millrace bench` relies on."""

import json
import os
import subprocess
import sys
import unittest

PEER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../bench/peer_pytorch.py")
TINY = ["--model", "resnet18", "--batch", "2", "--image", "32", "--classes", "10", "--threads", "1"]


def run(*arguments, commands=""):
    done = subprocess.run([sys.executable, PEER, *TINY, *arguments], input=commands, text=True,
                          capture_output=True, check=False)
    return done, [json.loads(line) for line in done.stdout.splitlines()]


class PeerTest(unittest.TestCase):
    def check_last(self, last, steps):
        self.assertEqual(last["steps"], steps)
        self.assertGreater(last["samples_per_second"], 0)
        self.assertGreater(last["peak_rss_bytes"], 50 << 20)

    def test_batch_mode_prints_each_step_and_a_last_line(self):
        done, lines = run("--steps", "3")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([line["step"] for line in lines[:-1]], [1, 2, 3])
        self.assertTrue(all(line["seconds"] > 0 and line["loss"] > 0 for line in lines[:-1]))
        self.check_last(lines[-1], 3)

    def test_server_runs_a_step_per_request(self):
        done, lines = run("--server", "--layout", "nhwc", commands="step\nstep\nquit\nstep\n")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(lines[0]["ready"])
        self.assertEqual([line["step"] for line in lines[1:-1]], [1, 2])
        self.check_last(lines[-1], 2)

    def test_unknown_words_are_refused(self):
        self.assertNotEqual(run("--server", commands="stop\n")[0].returncode, 0)
        self.assertEqual(run("--layout", "chwn")[0].returncode, 2)


if __name__ == "__main__":
    unittest.main()
