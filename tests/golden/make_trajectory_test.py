"""The files of a trajectory are complete: a fresh model made from them alone repeats its results."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

import torch
import torchvision

import safetensors_file

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "make_trajectory.py")


class TrajectoryTest(unittest.TestCase):
    def test_files_repeat_logits_and_first_loss(self):
        torch.set_num_threads(1)
        with tempfile.TemporaryDirectory() as directory:
            subprocess.run([sys.executable, SCRIPT, "--model", "resnet18", "--image", "32",
                            "--batch", "2", "--steps", "2", "--output", directory], check=True)
            weights, _ = safetensors_file.load(os.path.join(directory, "weights.safetensors"))
            batches, _ = safetensors_file.load(os.path.join(directory, "batches.safetensors"))
            logits, _ = safetensors_file.load(os.path.join(directory, "logits.safetensors"))
            with open(os.path.join(directory, "trajectory.json"), encoding="utf-8") as file:
                trajectory = json.load(file)

        model = torchvision.models.resnet18(weights=None, num_classes=10)
        model.load_state_dict({name: torch.tensor(value) for name, value in weights.items()})
        images = torch.tensor(batches["step0/images"])
        labels = torch.tensor(batches["step0/labels"]).long()
        with torch.no_grad():
            torch.testing.assert_close(model.eval()(images), torch.tensor(logits["logits"]))
            loss = torch.nn.functional.cross_entropy(model.train()(images), labels,
                                                     label_smoothing=0.1)
        self.assertAlmostEqual(loss.item(), trajectory["losses"][0], places=5)
        self.assertEqual(len(trajectory["losses"]), 2)
        self.assertIn("step1/images", batches)


if __name__ == "__main__":
    unittest.main()
