"""Runs the program, and makes the data that its jobs read."""

import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import threading

import numpy

import axes
import job
import results

SECONDS = 120  # a run takes a few; one that takes this long on a machine of its own hangs


def patience():
    """Seconds to wait for a run beside everything else that the machine does."""
    return SECONDS * max(1.0, os.getloadavg()[0] / os.cpu_count())


class Data:
    """Small data sets, made once for each kind of image, where commands to paste still find them."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.gettempdir()) / f"millrace-combinations-{os.getuid()}"
        self.folder.mkdir(exist_ok=True)
        self.lock = threading.Lock()

    def path(self, model, count, seed):
        facts = axes.MODELS[model]
        name = f"{facts['image']}-{facts['channels']}-{facts['classes']}-{count}-{seed}"
        path = self.folder / f"{name}.safetensors"
        with self.lock:
            if not path.exists():
                source = numpy.random.default_rng(seed)
                shape = (count, facts["image"], facts["image"], facts["channels"])
                labels = source.integers(0, facts["classes"], count)
                labels[:facts["classes"]] = numpy.arange(facts["classes"])
                # Each class has a colour of its own, so that there is something to learn.
                images = source.integers(0, 160, shape) + 8 * labels[:, None, None, None]
                made = path.with_suffix(f".{os.getpid()}")
                results.write_safetensors(made, {"images": images.astype(numpy.uint8),
                                                 "labels": labels.astype(numpy.int64)})
                made.rename(path)
        return f"raw:{path}"

    def training(self, model):
        return self.path(model, job.SAMPLES, 1)

    def evaluation(self, model):
        return self.path(model, 37, 2)


class Outcome:
    def __init__(self, status, output, seconds):
        self.status, self.output, self.seconds = status, output, seconds

    def sentences(self):
        return [line for line in self.output.splitlines() if line.startswith("millrace: ")]


class Runner:
    """Runs commands, each in a folder of its own that is also its home."""

    def __init__(self, program, launcher, helper):
        self.program, self.launcher, self.helper = str(program), list(launcher), str(helper)

    def command(self, ranks, arguments):
        start = [*self.launcher, "-n", str(ranks)] if ranks > 1 else []
        return [*start, self.program, *arguments]

    def run(self, command, folder):
        folder = pathlib.Path(folder)
        (folder / "home").mkdir(parents=True, exist_ok=True)
        environment = dict(os.environ, HOME=str(folder / "home"), XDG_CACHE_HOME=str(folder / "home"),
                           OMP_NUM_THREADS="1", OMPI_MCA_rmaps_base_oversubscribe="1",
                           TMPDIR=str(folder / "home"))
        with open(folder / "output", "w+") as output:
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT,
                                       env=environment, start_new_session=True, cwd=folder)
            try:
                status = process.wait(patience())
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                status = "hang"
            output.seek(0)
            return Outcome(status, output.read(), 0)


def clear(folder):
    shutil.rmtree(folder, ignore_errors=True)
