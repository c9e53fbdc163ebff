"""What the package promises beside training: types, documentation, notebooks, own data and figures, no stray symbols."""
import inspect
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import millrace as mr

from test_millrace import ROOT, command, small_job, stripes

FOLDER = os.path.dirname(mr.__file__)


def test_every_public_name_says_what_it_is():
    for name in mr.__all__:
        value = getattr(mr, name)
        assert value.__doc__, name
        if inspect.isclass(value) and not issubclass(value, Exception):
            for member, thing in vars(value).items():
                assert member.startswith("_") or thing.__doc__, f"{name}.{member}"


def test_types_are_right(tmp_path):
    """mypy takes the program of the documentation, and refuses mistakes."""
    with open(os.path.join(ROOT, "docs", "python.md")) as file:
        program = re.search(r"```python\n(.*?)```", file.read(), re.S).group(1)
    more = ("\nx: float = best.evaluate(pets.train, metrics={'m': lambda s, y: 0.0}).figures['m']"
            "\ny: str = run.timeline.svg\nz: np.ndarray = best.state['fc.weight']\nmr.report('runs')\n")
    (tmp_path / "right.py").write_text(program + more)
    (tmp_path / "wrong.py").write_text("import millrace as mr\nmr.model(3)\nmr.data('synthetic').trian\n")

    def check(name):
        return subprocess.run([sys.executable, "-m", "mypy", "--strict", name], cwd=tmp_path, capture_output=True,
                              text=True)

    right = check("right.py")
    assert right.returncode == 0, right.stdout + right.stderr
    wrong = check("wrong.py").stdout
    assert "wrong.py:2" in wrong and "wrong.py:3" in wrong, wrong


def test_the_extension_shows_no_symbol_but_its_entry():
    file = mr._millrace.__file__
    lines = subprocess.run(["nm", "-D", "--defined-only", file], check=True, capture_output=True, text=True).stdout
    assert [line.split()[-1] for line in lines.splitlines()] == ["PyInit__millrace"]


class Stripes:
    """A data set of one's own."""
    classes = ["columns", "rows"]

    def __init__(self, count):
        self.images, self.labels = stripes(count)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index], int(self.labels[index])


def test_data_sets_of_ones_own_give_what_arrays_give():
    own = mr.data(records=Stripes(64), augment="none")
    images, labels = stripes(64)
    same = mr.data(images=images, labels=labels, augment="none")
    assert own.classes == 2 and own.class_names == ["columns", "rows"]
    losses = []
    for data in (own, same):
        net = mr.model("fashion_cnn", classes=2, image=16)
        losses.append(mr.Job(net, data.train, batch=16, steps=6, seed=4).train().losses)
    assert losses[0] == losses[1]


def test_bad_records_of_ones_own_are_named():
    class Broken(Stripes):
        def __getitem__(self, index):
            if index == 5:
                raise OSError("the disk is gone")
            return super().__getitem__(index)

    class Floats(Stripes):
        def __getitem__(self, index):
            return self.images[index].astype(np.float32), 0

    net = mr.model("fashion_cnn", classes=2, image=16)
    with pytest.raises((mr.InputError, mr.JobError), match="Record 5 .*OSError: the disk is gone"):
        mr.Job(net, mr.data(records=Broken(64)).train, batch=16, epochs=1).train()
    with pytest.raises((mr.InputError, mr.JobError), match="is not uint8"):
        mr.Job(net, mr.data(records=Floats(64)).train, batch=16, epochs=1).train()
    with pytest.raises(mr.InputError, match="__getitem__"):
        mr.data(records=3)

    class Counted(Stripes):
        classes = 2

    with pytest.raises(mr.InputError, match="must be a list of names"):
        mr.data(records=Counted(8))


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_what_is_no_mistake_of_a_record_ends_the_run(kind):
    class Ended(Stripes):
        def __getitem__(self, index):
            if index == 5:
                raise kind()
            return super().__getitem__(index)

    net = mr.model("fashion_cnn", classes=2, image=16)
    with pytest.raises(kind):
        mr.Job(net, mr.data(records=Ended(64)).train, batch=16, epochs=1).train()


def test_figures_of_ones_own():
    job, data = small_job(steps=8)
    best = job.train().best

    def error(scores, labels):
        assert scores.shape == (64, 2) and labels.dtype == np.int32
        return float((scores.argmax(1) != labels).mean())

    report = best.evaluate(data.valid, metrics={"error": error})
    assert report.figures["error"] == pytest.approx(1 - report.top1) and "error" in repr(report)
    with pytest.raises(mr.InputError, match="cannot be called 'top1'"):
        best.evaluate(data.valid, metrics={"top1": error})
    with pytest.raises(mr.InputError, match="nothing to evaluate on"):
        best.evaluate(None)
    with pytest.raises(ZeroDivisionError):
        best.evaluate(data.valid, metrics={"bad": lambda scores, labels: 1 / 0})


def test_states_are_recognised_without_a_name():
    net = mr.model("fashion_cnn", classes=3)
    job = mr.Job(net, mr.data("synthetic").train, batch=4, steps=1)
    state = job.train().last.state
    again = mr.from_torch(state)
    assert again.name == "fashion_cnn" and again.classes == 3
    with pytest.raises(mr.InputError, match="name the one that is meant"):
        mr.from_torch({key: value for key, value in state.items() if key != "fc.bias"})
    with pytest.raises(mr.InputError, match="not a tensor"):
        mr.from_torch({"fc.weight": 3})


def test_one_picture_and_many_agree_in_any_order():
    job, _ = small_job(steps=3)
    best = job.train().last
    images, _ = stripes(50)
    many = best.predict(images)
    for count in (1, 5, 1, 50, 9, 1):
        np.testing.assert_allclose(best.predict(images[:count]), many[:count], atol=1e-5)


def test_threads_take_turns_with_a_model():
    """A program of its own, which a lock that is never given back would hold up."""
    program = """
import threading, numpy as np, millrace as mr
images = np.random.default_rng(1).integers(0, 255, (32, 16, 16, 1), np.uint8)
data = mr.data(images=images, labels=np.arange(32) % 2, augment="none")
best = mr.Job(mr.model("fashion_cnn", classes=2, image=16), data.train, batch=16, steps=2).train().last
known, wrong = best.predict(images), []
def look(which):
    for turn in range(12):
        count = (1, 3, 9, 20)[(which + turn) % 4]
        if not np.allclose(best.predict(images[:count]), known[:count], atol=1e-4):
            wrong.append(count)
        best.evaluate(data.train, metrics={"own": lambda scores, labels: float(best.predict(images[:1])[0, 0])})
threads = [threading.Thread(target=look, args=(which,)) for which in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert not wrong, wrong
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


@pytest.mark.parametrize("state", [{"a": np.zeros(3)}, {1: np.zeros(3, np.float32)}, {"a": [1.0]},
                                   {"a": np.zeros((3, 4), np.float32)[:, ::2]}])
def test_states_of_other_kinds_are_refused(state):
    with pytest.raises(mr.InputError, match="plain order|text as names"):
        mr.model("fashion_cnn", state=state)
    with pytest.raises(mr.InputError, match="no state dictionary"):
        mr.from_torch(3)


def test_names_of_files_that_are_no_text_are_told():
    with pytest.raises(mr.InputError, match=r"a\\xff\.pth"):
        mr.model("fashion_cnn", weights=os.fsdecode(b"a\xff.pth")).predict(np.zeros((1, 28, 28, 1), np.uint8))


def test_figures_that_are_no_numbers_and_sizes_below_zero_are_refused():
    job, data = small_job(steps=1)
    with pytest.raises(mr.InputError, match="metric 'bad' gives no number"):
        job.train().last.evaluate(data.valid, metrics={"bad": lambda scores, labels: "much"})
    with pytest.raises(mr.InputError, match="device_memory is -5"):
        job.plan(device_memory=-5)


@pytest.mark.parametrize("call, named", [
    (lambda: mr.model(), "Name a model, or weights"),
    (lambda: mr.model("fashion_cnn", classes=-5), "classes is -5"),
    (lambda: mr.model("fashion_cnn", image=-1), "image is -1"),
    (lambda: mr.model("fashion_cnn", channels=-1), "channels is -1"),
    (lambda: mr.model("fashion_cnn", threads=-1), "threads is -1"),
    (lambda: mr.model("fashion_cnn", best=True), "best chooses among the checkpoints of a run"),
    (lambda: small_job(resume=True), "resume needs checkpoint"),
    (lambda: small_job(patience=-1), "patience is -1"),
    (lambda: mr.data(images=stripes(2)[0], labels=np.array([0, 2**63 - 1])), "label 9223372036854775807 is too large"),
    (lambda: mr.data(records=Long()), "2305843009213693952 records"),
    (lambda: mr.data("synthetic", on_bad_record="x"), "on_bad_record is 'x'; choose fail or skip"),
])
def test_odd_settings_are_named(call, named):
    with pytest.raises(mr.InputError, match=named) as raised:
        call()
    assert "\n" not in str(raised.value)


class Long(list):
    def __len__(self):
        return 2**61


def test_what_cannot_be_called_is_refused_before_the_first_step():
    job, data = small_job(steps=2)
    for callback in ("on_step", "on_evaluation", "on_message"):
        with pytest.raises(TypeError, match=f"{callback} must be a function, not a int"):
            job.train(**{callback: 3})
    with pytest.raises(TypeError, match="The metric 'a' must be a function, not a int"):
        job.train().last.evaluate(data.valid, metrics={"a": 3})


def test_bad_records_are_left_out_where_that_is_asked_for():
    class Broken(Stripes):
        def __getitem__(self, index):
            return (self.images[index], 7) if index == 5 else super().__getitem__(index)

    net = mr.model("fashion_cnn", classes=2, image=16)
    with pytest.raises(mr.InputError, match="Record 5 .*Use on_bad_record skip"):
        mr.Job(net, mr.data(records=Broken(64)).train, batch=16, epochs=1).train()
    assert mr.Job(net, mr.data(records=Broken(64), on_bad_record="skip").train, batch=16, epochs=1).train().steps == 4


def test_things_say_what_they_are():
    job, data = small_job(steps=1)
    assert repr(data) == "<data of 2 classes>" and repr(mr.data("synthetic").train) == "<data>"
    assert repr(mr.model("fashion_cnn", classes=2, image=16)) == "<fashion_cnn: 2 classes, images of 16 x 16>"
    assert repr(job.train()) == "<run of 1 step>"


def test_threads_that_still_train_do_not_hold_up_the_end():
    """A program that ends while a daemon thread trains: no crash, whatever the interpreter does to that thread."""
    program = """
import threading, time, numpy as np, millrace as mr
images = np.zeros((64, 16, 16, 1), np.uint8)
class Own:
    def __len__(self): return 64
    def __getitem__(self, index): return images[index], index % 2
job = mr.Job(mr.model("fashion_cnn", classes=2, image=16), mr.data(records=Own()).train, batch=16, steps=1000000)
threading.Thread(target=lambda: job.train(on_step=lambda report: None), daemon=True).start()
time.sleep(1)
print("ends", flush=True)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout == "ends\n", done.stderr


def test_reports_and_timelines_show_themselves(tmp_path):
    job, data = small_job(steps=4, trace=tmp_path / "run" / "trace.json")
    (tmp_path / "run").mkdir()
    run = job.train()
    assert run.timeline._repr_svg_().lstrip().startswith("<svg")
    assert mr.Timeline(tmp_path / "run" / "trace.json", 1).svg.count("<rect") > 2
    page = mr.report(tmp_path / "run")
    assert "<html" in page.page and page._repr_html_().startswith("<iframe srcdoc=") and "|" in str(page)
    assert "<table>" in run.best.evaluate(data.valid)._repr_html_()
    plain, _ = small_job(steps=1)
    with pytest.raises(mr.InputError, match="has no trace"):
        plain.train().timeline
    with pytest.raises(mr.InputError):
        mr.report(tmp_path / "nothing")


@pytest.mark.parametrize("work", ["job.train()", "best.evaluate(data.train)", "best.predict(images)"])
def test_interrupts_are_heard_wherever_they_come(work, tmp_path):
    program = f"""
import signal, time, numpy as np, millrace as mr
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a job in the background of a script ignores
images = np.zeros((20000, 28, 28, 1), np.uint8)
data = mr.data(images=images, labels=np.arange(20000) % 10)
net = mr.model("fashion_cnn")
best = mr.Job(net, data.train, batch=16, steps=1).train().last
job = mr.Job(net, data.train, batch=16, epochs=1000)
best.predict(images[:40])
print("ready", flush=True)
try:
    while True:
        {work}
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path, text=True, stdout=subprocess.PIPE)
    assert process.stdout.readline().strip() == "ready"
    time.sleep(0.4)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline().strip() == "interrupted"
    seconds = time.monotonic() - began
    assert process.wait() == 0 and seconds < 1, seconds


def test_folded_norms_are_restored(tmp_path):
    """The network gives what it gave, and the statistics of the first norm are those of its convolution's output."""
    images, labels = stripes(32)
    (tmp_path / "data").mkdir()
    for name, array in (("images-idx3", images[..., 0]), ("labels-idx1", labels.astype(np.uint8))):
        for split in ("train", "t10k"):
            header = bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
            (tmp_path / "data" / f"{split}-{name}-ubyte").write_bytes(header + array.tobytes())
    job, _ = small_job(steps=12)
    trained = job.train().last
    trained.export(tmp_path / "folded.onnx", fold=True)
    command("export", "folded.onnx", "restored.onnx", "--restore-norms", 32, "--data", "idx:data", cwd=tmp_path)
    folded, restored = (mr.model(f"onnx:{tmp_path}/{name}.onnx") for name in ("folded", "restored"))
    np.testing.assert_allclose(restored.predict(images), folded.predict(images), atol=1e-4)
    state = restored.state
    norm = next(key for key in state if key.endswith("norm_0.running_mean"))[:-len(".running_mean")]
    weight = next(value for value in state.values() if value.ndim == 4)
    padded = np.pad((images[..., 0] / 255 - 0.286) / 0.353, ((0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    seen = np.einsum("nhwij,cij->cnhw", windows, weight[:, 0].astype(float)).reshape(len(weight), -1)
    np.testing.assert_allclose(state[norm + ".running_mean"], seen.mean(1), atol=1e-4)
    np.testing.assert_allclose(state[norm + ".running_var"], seen.var(1, ddof=1), rtol=1e-3)
    np.testing.assert_allclose(state[norm + ".weight"], np.sqrt(seen.var(1, ddof=1) + 1e-5), rtol=1e-3)
