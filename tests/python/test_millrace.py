"""The Python package as its users see it; tools/check-python runs it in an environment of its own."""
import gc
import os
import pickle
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import millrace as mr

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def command(*words, cwd=None):
    return subprocess.run([sys.executable, "-m", "millrace", *map(str, words)], cwd=cwd, check=True,
                          capture_output=True, text=True).stdout


def stripes(count, size=16, seed=1):
    """Pictures of bright rows or bright columns."""
    random = np.random.default_rng(seed)
    labels = np.arange(count) % 2
    images = random.integers(0, 120, (count, size, size, 1), np.uint8)
    for image, label in zip(images, labels):
        (image if label else image.transpose(1, 0, 2))[::2] += 120
    return images, labels


def small_job(steps=30, lr=0.05, **options):
    images, labels = stripes(256)
    data = mr.data(images=images, labels=labels, valid=0.25, seed=3, augment="none")
    net = mr.model("fashion_cnn", classes=2, image=16)
    return mr.Job(net, data.train, valid=data.valid, batch=16, steps=steps, lr=lr, **options), data


def test_the_program_of_the_documentation_runs_as_written(tmp_path):
    command("data", "synth", "folder:pets", "--count", 60, "--classes", 3, "--height", 80, "--width", 80,
            cwd=tmp_path)
    command("train", "--model", "resnet50", "--image", 64, "--batch", 2, "--steps", 1, "--quiet",
            "--save-weights", "resnet50.pth", cwd=tmp_path)
    with open(os.path.join(ROOT, "docs", "python.md")) as file:
        program = re.search(r"```python\n(.*?)```", file.read(), re.S).group(1)
    done = subprocess.run([sys.executable, "-c", program + "\nprint(p.shape, p.dtype)"], cwd=tmp_path,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "resnet50, batch 32" in done.stdout and "Fits the limit of 4.00 GiB." in done.stdout
    assert "(8, 3) float32" in done.stdout
    assert (tmp_path / "pets.safetensors").exists() and (tmp_path / "pets.onnx").exists()
    assert "12 samples" in command("eval", "runs/pets", "--best", cwd=tmp_path)
    (tmp_path / "pets.onnx").unlink()
    command("export", "runs/pets", "pets.onnx", "--best", cwd=tmp_path)
    command("train", "--model", "onnx:pets.onnx", "--data", "folder:pets", "--batch", 4, "--steps", 2, "--quiet", cwd=tmp_path)


def test_it_learns_from_arrays_and_its_best_model_agrees_with_itself(tmp_path):
    job, data = small_job()
    seen = []
    run = job.train(on_step=lambda report: seen.append(report.loss))
    assert run.steps == 30 and seen == run.losses and not run.stopped
    best = run.best
    report = best.evaluate(data.valid)
    assert report.samples == 64 and report.top1 > 0.95 and report.figures["top1"] == report.top1
    images, labels = stripes(40, seed=9)
    scores = best.predict(images)
    assert scores.shape == (40, 2) and scores.dtype == np.float32
    assert (scores.argmax(1) == labels).mean() > 0.95
    one = np.concatenate([best.predict(images[i:i + 1]) for i in range(3)])
    np.testing.assert_allclose(one, scores[:3], atol=1e-5)
    best.save(tmp_path / "net.safetensors")
    best.export(tmp_path / "net.onnx", fold=True)
    for again in (mr.model(weights=tmp_path / "net.safetensors"), mr.model(weights=tmp_path / "net.onnx")):
        assert again.image == 16
        np.testing.assert_allclose(again.predict(images), scores, atol=1e-4)


def test_arrays_of_other_types_are_refused_and_not_converted():
    images, labels = stripes(8)
    for wrong in (images.astype(np.float32), images[:, :, :, 0], images[:, ::2], images[:, :, ::-1]):
        with pytest.raises(mr.InputError, match="Pictures must"):
            mr.data(images=wrong, labels=labels)
    for wrong in (labels.astype(np.float64), labels[:, None]):
        with pytest.raises(mr.InputError, match="Labels must be int32 or int64"):
            mr.data(images=images, labels=wrong)
    with pytest.raises(mr.InputError, match="8 pictures and 7 labels"):
        mr.data(images=images, labels=labels[:7])
    with pytest.raises(TypeError):
        mr.data(images=images.tolist(), labels=labels)
    with pytest.raises(mr.InputError, match="Give a data set"):
        mr.data()


def test_arrays_are_borrowed_as_long_as_they_are_used():
    class Borrowed:
        """Something that is no numpy array and has DLPack's interface."""

        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    images, labels = stripes(64)
    before = sys.getrefcount(images)
    data = mr.data(images=images, labels=labels)
    assert sys.getrefcount(images) > before
    del data
    gc.collect()
    assert sys.getrefcount(images) == before
    assert mr.data(images=Borrowed(images), labels=Borrowed(labels)).classes == 2


def test_mistakes_are_value_errors_and_failures_runtime_errors():
    assert issubclass(mr.InputError, ValueError) and issubclass(mr.JobError, RuntimeError)
    with pytest.raises(mr.InputError, match="did you mean 'resnet50'"):
        mr.model("resnet5")
    with pytest.raises(mr.InputError, match="has no weights yet"):
        mr.model("fashion_cnn").predict(np.zeros((1, 28, 28, 1), np.uint8))
    with pytest.raises(mr.InputError, match="optimizer is 'sgdd'"):
        small_job(optimizer="sgdd")
    images, labels = stripes(256)
    net = mr.model("fashion_cnn", classes=2, image=16)
    data = mr.data(images=images, labels=labels)
    with pytest.raises(mr.JobError):
        mr.Job(net, data.train, batch=16, steps=200, lr=1e30).train()


@pytest.mark.parametrize("options, named", [
    ({"lr": -1}, "lr is -1"), ({"momentum": 2}, "momentum is 2"), ({"threads": -1}, "threads is -1"),
    ({"weight_decay": -1}, "weight_decay is -1"), ({"schedule": "step"}, "schedule step needs milestones"),
    ({"steps": 0}, "Say how long to train: steps N or epochs N"),
    ({"device_memory": "1KiB"}, "device_memory allows 1.00 KiB")])
def test_sentences_name_keywords_and_no_flags(options, named):
    job, _ = small_job(**options)
    with pytest.raises(mr.InputError) as raised:
        job.train()
    assert named in str(raised.value)
    assert not re.search("--|[‹›]", str(raised.value))


def test_the_schedule_step_lowers_the_rate_at_milestones():
    job, _ = small_job(steps=4, schedule="step", milestones=[2])
    rates = []
    job.train(on_step=lambda step: rates.append(step.lr))
    assert rates[0] == rates[1] > rates[2] == rates[3] > 0


def test_messages_and_plans_name_keywords_and_no_flags(tmp_path):
    job, _ = small_job(steps=2, checkpoint=tmp_path / "run")
    job.train()
    images, labels = stripes(256)
    data = mr.data(images=images, labels=labels, valid=0.25, seed=3, augment="none")
    net = mr.model("fashion_cnn", classes=2, image=16)
    again = mr.Job(net, data.train, valid=data.valid, batch=16, steps=3, lr=0.025, resume=True,
                   checkpoint=tmp_path / "run")
    told = []
    again.train(on_message=told.append)
    assert "lr is 0.025 from now on; up to step 2 it was 0.05." in told
    plan = again.plan(device_memory="1KiB")
    assert not plan.fits and "device_memory" in str(plan) and "device_memory" in plan.json()
    for text in [*told, str(plan), plan.json()]:
        assert not re.search("--(?!predict`)|[‹›]", text)


def test_callbacks_end_the_run_by_false_or_by_raising():
    job, _ = small_job(steps=1000)
    run = job.train(on_step=lambda report: report.step < 5)
    assert run.steps == 5 and run.stopped

    def fail(report):
        if report.step == 3:
            raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        job.train(on_step=fail)
    assert job.train(on_step=lambda report: report.step < 2).steps == 2  # several in one process


def test_interrupts_are_answered_within_a_second(tmp_path):
    program = """
import time, numpy as np, millrace as mr
net = mr.model("fashion_cnn")
job = mr.Job(net, mr.data("synthetic").train, batch=16, steps=1000000, checkpoint="run")
try:
    job.train(on_step=lambda r: print(r.step, flush=True) if r.step < 9 else None)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path, text=True,
                               stdout=subprocess.PIPE)
    while process.stdout.readline().strip() != "8":
        assert process.poll() is None
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline().strip() == "interrupted"
    seconds = time.monotonic() - began
    assert process.wait() == 0 and seconds < 1, seconds
    assert os.listdir(tmp_path / "run")  # a checkpoint


def test_training_releases_the_lock():
    import threading
    job, _ = small_job(steps=150)
    thread = threading.Thread(target=job.train)
    thread.start()
    turns = 0
    while thread.is_alive():
        turns += 1
        time.sleep(0.001)
    assert turns > 20


def test_plans_show_themselves_and_can_be_pickled():
    job, _ = small_job()
    plan = job.plan(device_memory=10)
    assert not plan.fits and plan.peak_bytes > 100000 and plan.seconds_per_step > 0
    again = pickle.loads(pickle.dumps(plan))
    assert again.json() == plan.json() and str(again) == str(plan)
    assert "<table>" in plan._repr_html_() and "fashion_cnn" in plan._repr_html_()
    run = job.train(on_step=lambda report: report.step < 4)
    assert "<svg" in run._repr_html_() and "4 steps" in run._repr_html_()


def test_state_goes_out_and_in():
    job, _ = small_job(steps=3)
    best = job.train().last
    state = best.state
    assert state["fc.weight"].shape == (2, 128)
    again = mr.from_torch({**state, "bn1.num_batches_tracked": np.array(3)}, "fashion_cnn", classes=2,
                          image=16)
    images, _ = stripes(4)
    np.testing.assert_array_equal(again.predict(images), best.predict(images))


def test_the_package_is_quick_to_import_and_typed():
    program = "import time; start = time.perf_counter(); import millrace; print(time.perf_counter() - start)"
    seconds = [float(subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout)
               for _ in range(5)]
    assert min(seconds) < 0.3
    folder = os.path.dirname(mr.__file__)
    assert os.path.exists(os.path.join(folder, "py.typed"))
    with open(os.path.join(folder, "_millrace.pyi")) as file:
        stub = file.read()
    assert "def data(" in stub and "class Job" in stub and "Ellipsis" not in stub


def test_the_command_line_comes_with_it():
    assert command("--version").startswith("millrace ")
