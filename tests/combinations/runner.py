"""Runs the program, and makes the data that its jobs read."""

import contextlib
import hashlib
import json
import os
import pathlib
import pickle
import shutil
import signal
import struct
import subprocess
import tempfile
import threading
import time
import zlib

import numpy

import axes
import job
import results

MOST = 120  # seconds of processor time; a run takes a few
IDLE = 60  # seconds in which a run does nothing
PAUSE = 10  # seconds between two looks, of which there is one a second: the machine slept
WAITING = 0.3  # seconds of processor time in each second that ranks use while they wait for each other


class Watch:
    """Tells a run that has come to a stop from one that the machine leaves no time for."""

    def __init__(self, session):
        self.session, self.used, self.idle_since, self.asked = session, 0.0, None, None

    def members(self):
        for place in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if os.getsid(int(place.name)) == self.session:
                    yield place
            except OSError:
                pass

    def sample(self):
        """(seconds of processor time used so far, whether any thread wants more)."""
        used, busy = 0.0, False
        for place in self.members():
            for thread in place.glob("task/*/stat"):
                try:
                    fields = thread.read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                busy = busy or fields[0] in "RD"
                used += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return used, busy

    def has_stopped(self, now):
        """To be asked every second."""
        used, wants = self.sample()
        if self.asked is None or now - self.asked > PAUSE:
            self.idle_since = None  # everything was stopped, this program too
        self.asked = now
        crowded = os.getloadavg()[0] > 2 * os.cpu_count()
        if used > self.used + WAITING or (wants and crowded) or self.idle_since is None:
            self.idle_since = now
        self.used = max(self.used, used)
        return used > MOST or now - self.idle_since > IDLE

    def end(self):
        for place in list(self.members()):
            try:
                os.kill(int(place.name), signal.SIGKILL)
            except ProcessLookupError:
                pass


def wait(process):
    """The status of the process, or "hang"."""
    watch = Watch(process.pid)
    while True:
        try:
            return process.wait(1)
        except subprocess.TimeoutExpired:
            if watch.has_stopped(time.monotonic()):
                watch.end()
                process.wait()
                return "hang"


class Room:
    """Where files of draws go: memory if there is enough of it, as they are soon deleted; those of large
    models always to a disk, and one such draw at a time, as each takes gigabytes."""

    def __init__(self, folder="/dev/shm", enough=4 << 30):
        try:
            fast = folder if shutil.disk_usage(folder).free > enough else None
        except OSError:
            fast = None
        self.folders = [tempfile.TemporaryDirectory(prefix="combinations-", dir=where) for where in (fast, None)]
        self.large = threading.Lock()

    def place(self, model):
        return pathlib.Path(self.folders[model in axes.LARGE].name)

    def turn(self, model):
        """To be held while a draw of the model is judged."""
        return self.large if model in axes.LARGE else contextlib.nullcontext()

    def clear(self):
        for folder in self.folders:
            folder.cleanup()


def png(image):
    """The bytes of a PNG file of height x width x 3."""
    def chunk(name, content):
        return (struct.pack(">I", len(content)) + name + content
                + struct.pack(">I", zlib.crc32(name + content)))
    height, width, _ = image.shape
    rows = b"".join(b"\0" + row.tobytes() for row in image)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


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
                known = min(count, facts["classes"])
                labels[:known] = numpy.arange(known)
                # Each class has a colour of its own, so that there is something to learn.
                images = source.integers(0, 160, shape) + 8 * labels[:, None, None, None]
                made = path.with_suffix(f".{os.getpid()}")
                results.write_safetensors(made, {"images": images.astype(numpy.uint8),
                                                 "labels": labels.astype(numpy.int64)})
                made.rename(path)
        return f"raw:{path}"

    def weights(self, model):
        """A file of factors of the loss, one for each class."""
        classes = axes.MODELS[model]["classes"]
        path = self.folder / f"weights-{classes}.txt"
        self.write(path, "".join(f"{0.5 + 0.25 * (3 * place % 5)}\n" for place in range(classes)).encode())
        return str(path)

    def plan(self, plan):
        """The plan as a file."""
        text = json.dumps(plan)
        path = self.folder / f"plan-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
        self.write(path, text.encode())
        return str(path)

    def pairs(self, model, count=40):
        """Pairs of images in InsightFace's format, every other one of the same class."""
        facts = axes.MODELS[model]
        path = self.folder / f"pairs-{facts['image']}.bin"
        source = numpy.random.default_rng(3)
        shape = (2 * count, facts["image"], facts["image"], 3)
        classes = source.integers(0, 8, 2 * count)
        classes[1::4] = classes[::4]
        images = source.integers(0, 120, shape) + 16 * classes[:, None, None, None]
        same = [bool(place % 2 == 0) for place in range(count)]
        self.write(path, pickle.dumps(([png(image) for image in images.astype(numpy.uint8)], same), 4))
        return str(path)

    def write(self, path, content):
        with self.lock:
            made = path.with_suffix(f".{os.getpid()}")
            made.write_bytes(content)
            made.rename(path)

    def training(self, model, count=job.SAMPLES):
        return self.path(model, count, 1)

    def evaluation(self, model):
        return self.path(model, 37, 2)


class Outcome:
    def __init__(self, status, output):
        self.status, self.output = status, output

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
            status = wait(process)
            output.seek(0)
            return Outcome(status, output.read())


def clear(folder):
    shutil.rmtree(folder, ignore_errors=True)
