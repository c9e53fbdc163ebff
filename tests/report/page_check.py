#!/usr/bin/env python3
"""Opens reports in headless Chromium: page_check.py PROGRAM [DIRECTORY for screenshots]."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from browser import Browser

PROGRAM = "build/millrace"
SHOTS = None


def write_run(directory, devices=4, steps=30):
    """A made-up pipeline: what train and plan would write, with a name that is no markup."""
    directory.mkdir(parents=True)
    parts = {"weights": 300 << 20, "gradients": 300 << 20, "optimizer": 300 << 20,
             "activations": 700 << 20, "workspace": 60 << 20, "communication": 9 << 20}
    listed = [{"id": f"0:{i}", "stage": i, "peak_bytes": sum(parts.values()), "breakdown": parts}
              for i in range(devices)]
    plan = {"placement": ".".join(f"0:{i}" for i in range(devices)), "stage_weights": [4, 3, 2, 1][:devices],
            "schedule": "1f1b-flush", "microbatches": 8}
    common = {"model": "<b>vgg16</b>", "global_batch": 64, "precision": "fp16", "plan": plan, "devices": listed}
    (directory / "summary.json").write_text(json.dumps(
        {**common, "steps": steps, "data": "synthetic", "schedule": "1f1b-flush", "samples_per_second": 51.5,
         "seconds_per_step": {"median": 1.2427}, "loss": [7 - i / 10 for i in range(steps)],
         "environment": {"processor": "a test", "cores": 2, "memory_bytes": 1 << 34}}))
    (directory / "plan.json").write_text(json.dumps(
        {**common, "predicted_seconds_per_step": 1.18, "predicted_samples_per_second": 54.2, "fits": True,
         "device_memory_bytes": 2 << 30}))
    with open(directory / "metrics.jsonl", "w") as file:
        for i in range(steps):
            scale = 65536 if i < 9 else 32768
            file.write(json.dumps({"kind": "step", "step": i + 1, "loss": 7 - i / 10, "learning_rate": 0.1 - i / 1000,
                                   "seconds": 1.24, "samples_per_second": 50 + i % 4, "loss_scale": scale}) + "\n")
        file.write(json.dumps({"kind": "evaluation", "step": steps, "loss": 4.5, "top1": 0.25}) + "\n")
        file.write('{"kind": "step", "ste')
    events, at = [], 0
    for device in range(devices):
        events.append({"ph": "M", "name": "thread_name", "pid": 0, "tid": device, "args": {"name": "x", "stage": device}})
    for step in range(6):
        for batch in range(8):
            for device in range(devices):
                forward = at + (batch + device) * 30e3
                backward = at + (8 + batch + 2 * devices - device) * 45e3
                for name, begin, length in (("forward", forward, 28e3), ("backward", backward, 41e3)):
                    events.append({"ph": "X", "name": name, "cat": name, "pid": 0, "tid": device, "ts": begin,
                                   "dur": length, "args": {"micro_batch": batch}})
        at += 1.1e6
        for device in range(devices):
            events.append({"ph": "X", "name": "sgd", "cat": "update", "pid": 0, "tid": device, "ts": at - 20e3, "dur": 18e3})
    (directory / "trace.json").write_text(json.dumps({"traceEvents": events}))


class PageCheck(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = tempfile.TemporaryDirectory(prefix="millrace-page-")
        cls.root = pathlib.Path(cls.place.name)
        write_run(cls.root / "suite" / "four")
        write_run(cls.root / "suite" / "two", devices=2)
        cls.one = cls.report(cls.root / "suite" / "four", "one")
        cls.many = cls.report(cls.root / "suite", "many")
        published = cls.root / "published" / "published.json"
        published.parent.mkdir()
        subprocess.run([PROGRAM, "bench", "published", "--no-runs", "--json", published], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        cls.table = cls.report(published.parent, "table")
        cls.browser = Browser()

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.place.cleanup()

    @classmethod
    def report(cls, source, name):
        subprocess.run([PROGRAM, "report", source, "-o", cls.root / name], check=True, stdout=subprocess.DEVNULL)
        return cls.root / name / "index.html"

    def look(self, page, width=1200, dark=False):
        self.browser.open(page, width, 900, dark)
        self.assertEqual(self.browser.complaints(), [])

    def value(self, expression):
        return self.browser.evaluate(expression)

    def keep(self, name):
        if SHOTS:
            (SHOTS / (name + ".png")).write_bytes(self.browser.screenshot())

    def test_every_figure_is_drawn_and_texts_are_no_markup(self):
        self.look(self.one)
        self.keep("light")
        text = self.value("document.body.innerText")
        for part in ("<b>vgg16</b>", "51.5", "54.2", "1.18", "a test", "4:3:2:1", "24877", "is damaged from line 32"):
            self.assertIn(part, text)
        self.assertEqual(self.value("document.querySelectorAll('td b').length"), 0)
        figures = self.value("[...document.querySelectorAll('[data-figure]')].map(f => [f.dataset.figure.split('/')[0],"
                             "f.querySelectorAll('path, rect, circle, canvas').length])")
        self.assertEqual({name for name, _ in figures},
                         {"loss", "rate", "learning_rate", "loss_scale", "prediction", "memory", "trace", "memory_over_time"})
        for name, count in figures:
            self.assertGreater(count, 0, name)

    def test_hovering_tells_values(self):
        self.look(self.one)
        self.value("document.querySelector('[data-figure^=loss]').scrollIntoView({block: 'center'})")
        x, y = self.value("(r => [r.right - 13, r.top + 90])(document.querySelector('[data-figure^=loss] svg').getBoundingClientRect())")
        self.browser.move(x, y)
        tip = self.value("document.querySelector('[data-figure^=loss] .tip').innerText")
        self.assertIn("step 30", tip)
        self.assertIn("4.1", tip)

    def test_the_timeline_zooms_and_moves(self):
        self.look(self.one)
        self.value("document.querySelector('[data-figure^=trace]').scrollIntoView({block: 'center'})")
        view = lambda: self.value("(d => [+d.from, +d.to])(document.querySelector('[data-figure^=trace]').dataset)")
        x, y = self.value("(r => [r.left + r.width / 2, r.top + 60])(document.querySelector('canvas').getBoundingClientRect())")
        begin, end = view()
        self.browser.wheel(x, y, -200)
        self.browser.wait_for(f"+document.querySelector('[data-figure^=trace]').dataset.to < {end}")
        near = view()
        self.assertLess(near[1] - near[0], end - begin)
        self.browser.drag(x, y, x - 80)
        moved = view()
        self.assertGreater(moved[0], near[0])
        self.assertAlmostEqual(moved[1] - moved[0], near[1] - near[0], delta=1)
        self.value("document.querySelector('canvas').focus()")
        self.browser.key("ArrowLeft")
        self.assertLess(view()[0], moved[0])
        self.browser.key("+")
        self.assertLess(view()[1] - view()[0], moved[1] - moved[0])
        self.value("[...document.querySelectorAll('button')].find(b => b.innerText === 'All').click()")
        whole = view()
        self.assertEqual(whole[0], 0)
        self.value("[...document.querySelectorAll('button')].find(b => b.innerText === 'Zoom in').click()")
        self.assertAlmostEqual(view()[1] - view()[0], whole[1] / 2, delta=1)
        painted = self.value("(c => new Set(new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height)"
                             ".data.buffer)).size)(document.querySelector('canvas'))")
        self.assertGreater(painted, 4)

    def test_nothing_is_wider_than_a_narrow_window(self):
        for name, page in (("narrow", self.one), ("narrow-suite", self.many), ("narrow-published", self.table)):
            self.look(page, width=360)
            self.keep(name)
            self.assertLessEqual(self.value("document.documentElement.scrollWidth"), 360, name)
            self.assertEqual(self.value("[...document.querySelectorAll('svg, canvas, .card, .tools')].filter(n =>"
                                        "n.getBoundingClientRect().right > innerWidth + 1).length"), 0, name)

    def test_light_and_dark_are_readable(self):
        contrast = """(() => {
          const parse = c => c.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255)
            .map(v => v <= 0.03928 ? v / 12.92 : Math.pow((v + 0.055) / 1.055, 2.4));
          const light = c => { const [r, g, b] = parse(c); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
          const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
          const paper = light(getComputedStyle(document.body).backgroundColor);
          return [paper, ...['body', '.lead', 'thead th', 'figcaption'].map(s =>
            ratio(light(getComputedStyle(document.querySelector(s)).color), paper))];
        })()"""
        for dark in (False, True):
            self.look(self.one, dark=dark)
            paper, *ratios = self.value(contrast)
            self.assertEqual(paper < 0.2, dark)
            for ratio in ratios:
                self.assertGreater(ratio, 4.5)
        self.keep("dark")

    def test_suites_and_published_tables(self):
        self.look(self.many)
        self.keep("suite")
        self.assertEqual(self.value("document.querySelectorAll('section').length"), 2)
        self.assertEqual(self.value("document.querySelectorAll('canvas').length"), 2)
        self.look(self.table)
        self.keep("published")
        self.assertEqual(self.value("document.querySelectorAll('[data-figure^=published] circle').length"), 27)
        self.assertIn("held out", self.value("document.body.innerText"))

    def test_printing_keeps_the_page_light(self):
        self.look(self.one, dark=True)
        self.browser.call("Emulation.setEmulatedMedia", media="print",
                          features=[{"name": "prefers-color-scheme", "value": "dark"}])
        self.assertEqual(self.value("getComputedStyle(document.body).backgroundColor"), "rgb(255, 255, 255)")
        self.assertEqual(self.value("getComputedStyle(document.querySelector('.tools')).display"), "none")
        self.browser.call("Emulation.setEmulatedMedia", media="", features=[])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        SHOTS = pathlib.Path(sys.argv.pop(1))
        SHOTS.mkdir(parents=True, exist_ok=True)
    unittest.main()
