#!/usr/bin/env python3
"""Opens reports in headless Chromium: page_check.py PROGRAM [DIRECTORY for screenshots]."""
import base64
import json
import pathlib
import resource
import struct
import subprocess
import sys
import tempfile
import unittest
import zlib

from browser import Browser

PROGRAM = "build/millrace"
SHOTS = None


def write_trace(path, devices, steps, simulated=False, repeats=1, stretch=1.0):
    """A made-up pipeline of eight micro-batches; `repeats` adds as many waits and messages to each."""
    with open(path, "w") as file:
        file.write('{"simulated": %s, "traceEvents": [' % str(simulated).lower())
        for device in range(devices):
            file.write('{"ph": "M", "name": "thread_name", "pid": 0, "tid": %d, "args": {"name": "x", "stage": %d}},'
                       % (device, device))
        task = ('{"ph":"X","name":"%s","cat":"%s","pid":0,"tid":%d,"ts":%.3f,"dur":%.3f,"args":{"micro_batch":%d}},')
        at = 0.0
        for step in range(steps):
            for batch in range(8):
                for device in range(devices):
                    forward = at + (batch + device) * 30e3 * stretch
                    backward = at + (8 + batch + 2 * devices - device) * 45e3 * stretch
                    file.write(task % ("forward", "forward", device, forward, 26e3, batch))
                    file.write(task % ("backward", "backward", device, backward, 40e3, batch))
                    for i in range(repeats):
                        length = 2e3 / repeats
                        file.write(task % ("activations", "wait", device, forward + 26e3 + i * length, length, batch))
                        file.write(task % ("send", "communication", 1000000 + device, backward + i * length, length, batch))
            at += 1.1e6 * stretch
            for device in range(devices):
                file.write('{"ph":"X","name":"sgd","cat":"update","pid":0,"tid":%d,"ts":%.3f,"dur":18000}%s'
                           % (device, at - 20e3, "" if step == steps - 1 and device == devices - 1 else ","))
        file.write("]}")


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
    write_trace(directory / "trace.json", devices, 6)


def picture(number):
    """A small PNG with a pattern of its own, as a data URI."""
    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
    rows = b"".join(b"\0" + bytes((x * number * 5 + y * 3 * c) % 256 for x in range(32) for c in range(3))
                    for y in range(32))
    png = (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 32, 32, 8, 2, 0, 0, 0)) +
           chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
    return "data:image/png;base64," + base64.b64encode(png).decode()


def write_evaluated(directory, start=0.4):
    """A run with evaluations, and what eval --confusion --summary tells of it."""
    directory.mkdir(parents=True)
    names = ["Abyssinian", "Bengal", "<i>Birman", "basset hound", "a very long name of a class of pets", "pug"]
    matrix = [[30 - 3 * abs(i - k) if i == k else max(0, 5 - 2 * abs(i - k)) for k in range(6)] for i in range(6)]
    (directory / "summary.json").write_text(json.dumps(
        {"model": "resnet18", "global_batch": 32, "steps": 40, "data": "folder:pets", "samples_per_second": 60,
         "loss": [2 - i / 25 for i in range(40)], "devices": []}))
    with open(directory / "metrics.jsonl", "w") as file:
        for i in range(40):
            file.write(json.dumps({"kind": "step", "step": i + 1, "loss": 2 - i / 25, "learning_rate": 0.01}) + "\n")
            if i % 10 == 9:
                file.write(json.dumps({"kind": "evaluation", "step": i + 1, "samples": 218, "loss": 2 - i / 30,
                                       "top1": start + i / 100, "top5": 0.95, "recall": start + i / 110}) + "\n")
    (directory / "eval.json").write_text(json.dumps(
        {"model": "resnet18", "samples": 218, "loss": 0.7, "top1": 0.79, "devices": [],
         "confusion": {"classes": [{"name": name, "samples": sum(row), "precision": 0.8, "recall": row[i] / sum(row)}
                                   for i, (name, row) in enumerate(zip(names, matrix))], "matrix": matrix},
         "wrong": [{"index": i, "name": names[i % 6], "taken_for": names[(i + 1) % 6], "share": 0.99 - i / 50,
                    "own_share": 0.001, "file": f"pets/{names[i % 6]}/{i:08d}.jpg", "picture": picture(i + 1)}
                   for i in range(20)]}))


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
        subprocess.run([PROGRAM, "bench", "published", "--no-runs", "--summary", published], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        cls.table = cls.report(published.parent, "table")
        write_run(cls.root / "checked", devices=2)
        write_trace(cls.root / "checked" / "predicted_trace.json", 2, 4, simulated=True, stretch=0.9)
        cls.checked = cls.report(cls.root / "checked", "both")
        write_evaluated(cls.root / "tuned" / "small rate")
        write_evaluated(cls.root / "tuned" / "large rate", start=0.2)
        cls.tuned = cls.report(cls.root / "tuned" / "small rate", "tuned-one")
        cls.tuned_both = cls.report(cls.root / "tuned", "tuned-both")
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
        for part in ("<b>vgg16</b>", "51.5", "54.2", "1.18", "a test", "4:3:2:1", "24877", "line 32 is damaged and left out"):
            self.assertIn(part, text)
        self.assertEqual(self.value("document.querySelectorAll('td b').length"), 0)
        figures = self.value("[...document.querySelectorAll('[data-figure]')].map(f => [f.dataset.figure.split('/')[0],"
                             "f.querySelectorAll('path, rect, circle, canvas').length])")
        self.assertEqual({name for name, _ in figures},
                         {"loss", "rate", "learning_rate", "loss_scale", "prediction", "memory", "timeline", "memory_over_time"})
        for name, count in figures:
            self.assertGreater(count, 0, name)

    def test_evaluations_show_confusion_and_wrong_pictures(self):
        for dark in (False, True):
            self.look(self.tuned, dark=dark)
            self.keep("evaluation-dark" if dark else "evaluation")
            self.assertEqual(self.value("document.querySelectorAll('.matrix tbody td').length"), 36)
            self.assertEqual(self.value("document.querySelectorAll('.matrix button, i i').length"), 0)
            # Texts on cells of the darkest and the lightest colour.
            self.assertGreaterEqual(self.value("""Math.min(...[...document.querySelectorAll('.matrix td')].map(cell => {
              const canvas = new OffscreenCanvas(1, 1).getContext('2d');
              const light = colour => {
                canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
                const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map(v => v / 255)
                  .map(v => v <= 0.03928 ? v / 12.92 : Math.pow((v + 0.055) / 1.055, 2.4));
                return 0.2126 * r + 0.7152 * g + 0.0722 * b;
              };
              const style = getComputedStyle(cell);
              if (!cell.innerText) return 21;
              const [a, b] = [light(style.color), light(style.backgroundColor)];
              return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
            }))"""), 4.5)
        pictures = self.value("[...document.querySelectorAll('.gallery img')].map(p => p.alt)")
        self.assertEqual(len(pictures), 20)
        self.assertIn("Bengal taken for <i>Birman", pictures)
        self.browser.wait_for("[...document.querySelectorAll('.gallery img')].every(p => p.naturalWidth === 32)")
        self.assertIn("accuracy", self.value("[...document.querySelectorAll('[data-figure]')].map(f => f.dataset.figure.split('/')[0])"))
        self.look(self.tuned_both)
        self.keep("evaluations")
        self.assertEqual(self.value("document.querySelector('[data-figure^=accuracies] .legend').innerText.split('\\n')"),
                         ["large rate", "small rate"])

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
        self.value("document.querySelector('[data-figure^=timeline]').scrollIntoView({block: 'center'})")
        view = lambda: self.value("(d => [+d.from, +d.to])(document.querySelector('[data-figure^=timeline]').dataset)")
        x, y = self.value("(r => [r.left + r.width / 2, r.top + 60])(document.querySelector('canvas').getBoundingClientRect())")
        begin, end = view()
        self.browser.wheel(x, y, -200)
        self.browser.wait_for(f"+document.querySelector('[data-figure^=timeline]').dataset.to < {end}")
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

    def test_two_fingers_zoom_and_one_moves(self):
        self.look(self.one)
        self.value("document.querySelector('[data-figure^=timeline]').scrollIntoView({block: 'center'})")
        view = lambda: self.value("(d => [+d.from, +d.to])(document.querySelector('[data-figure^=timeline]').dataset)")
        x, y = self.value("(r => [r.left + r.width / 2, r.top + 60])(document.querySelector('canvas').getBoundingClientRect())")
        before = view()
        self.browser.touch([(x - 40, y), (x + 40, y)], [(x - 120, y), (x + 120, y)])
        near = view()
        self.assertAlmostEqual((before[1] - before[0]) / (near[1] - near[0]), 3, delta=0.1)
        self.browser.touch([(x, y)], [(x - 60, y)])
        self.assertGreater(view()[0], near[0])
        self.assertAlmostEqual(view()[1] - view()[0], near[1] - near[0], delta=1)

    def test_predicted_stands_above_measured_on_one_scale(self):
        self.look(self.checked)
        self.keep("checked")
        figures = self.value("[...document.querySelectorAll('[data-figure^=timeline]')].length")
        self.assertEqual(figures, 1)
        data = self.value("JSON.parse(document.getElementById('data').textContent).timelines[0]")
        self.assertEqual([device["group"] for device in data["devices"]], ["predicted"] * 2 + ["measured"] * 2)
        begin = data["window"][0]
        firsts = [min(e[4] for e in data["events"] if e[0] == row and e[1] == 0 and e[4] >= begin - 25e3) for row in (0, 2)]
        self.assertAlmostEqual(firsts[0], firsts[1], delta=2.1e3)
        text = self.value("document.body.innerText")
        for part in ("Timeline: predicted above measured", "time went, predicted", "time went, measured",
                     "idle share of all time", "one time scale"):
            self.assertIn(part, text)

    def test_tables_sort(self):
        self.look(self.many)
        column = "[...document.querySelectorAll('table')[0].tBodies[0].rows].map(r => r.cells[4].innerText)"
        press = "[...document.querySelectorAll('table')[0].querySelectorAll('button.sort')].find(b => b.innerText.startsWith('devices')).click()"
        self.assertEqual(self.value(column), ["4", "2"])
        self.value(press)
        self.assertEqual(self.value(column), ["2", "4"])
        self.assertEqual(self.value("document.querySelector('th[aria-sort]').innerText.startsWith('devices')"), True)
        self.value(press)
        self.assertEqual(self.value(column), ["4", "2"])
        order = self.value("['1.5 GiB', '–', '900 MiB', '+3 %', 'x'].sort((a, b) => compareCells(a, b, 1))")
        self.assertEqual(order, ["+3 %", "900 MiB", "1.5 GiB", "x", "–"])

    def test_figures_tell_their_files(self):
        self.look(self.one)
        links = self.value("[...document.querySelectorAll('.source a')].map(a => [a.innerText, a.getAttribute('href')])")
        for name in ("summary.json", "plan.json", "metrics.jsonl", "trace.json"):
            self.assertIn([name, "../suite/four/" + name], links)
        self.assertEqual(self.value("[...document.querySelectorAll('figure, table')].filter(n => !n.querySelector('.source'))"
                                    ".map(n => n.innerText.slice(0, 40))"), [])

    def test_people_who_do_not_see_or_point_can_use_it(self):
        for page in (self.one, self.many, self.table):
            self.look(page)
            self.assertEqual(self.value("[...document.querySelectorAll('svg')].filter(s => !s.querySelector('title')?.textContent ||"
                                        "!s.querySelector('desc')?.textContent).length"), 0)
            self.assertEqual(self.value("[...document.querySelectorAll('th')].filter(t => !t.scope).length"), 0)
            self.assertEqual(self.value("[...document.querySelectorAll('table')].filter(t => !t.caption?.textContent).length"), 0)
            self.assertEqual(self.value("[...document.querySelectorAll('button')].filter(b => !b.textContent.trim()).length"), 0)
        self.look(self.one)
        self.value("document.querySelector('.tools button').focus()")
        self.browser.key("Tab")
        self.assertEqual(self.value("document.activeElement.innerText"), "Zoom out")
        self.assertEqual(self.value("getComputedStyle(document.activeElement).outlineStyle"), "solid")
        self.assertGreaterEqual(self.value("parseFloat(getComputedStyle(document.activeElement).outlineWidth)"), 2)
        self.value("document.querySelector('[data-figure^=loss] svg').focus()")
        self.browser.key("End")
        self.assertIn("step 30", self.value("document.querySelector('[data-figure^=loss] .tip').innerText"))

    def test_a_long_run_stays_small_and_quick(self):
        directory = self.root / "long"
        write_run(directory, steps=10000)
        write_trace(directory / "trace.json", 4, 2200, repeats=12)
        self.assertGreater((directory / "trace.json").stat().st_size, 190e6)
        spent = lambda: sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
        before = spent()
        page = self.report(directory, "long-report")
        used = spent() - before
        self.assertLess(used, 10)
        self.assertLess(page.stat().st_size, 5e6)
        self.look(page)
        self.keep("long")
        opened = self.value("performance.getEntriesByType('navigation')[0].domComplete")
        print(f"\na run of 10000 steps: report in {used:.1f} s of processor time, page of {page.stat().st_size / 1e6:.1f} MB opened in {opened / 1e3:.2f} s")
        text = self.value("document.body.innerText")
        self.assertIn("too many for a page", text)
        self.assertIn("mean of 4 steps", text)
        self.value("[...document.querySelectorAll('button')].find(b => b.innerText === 'All').click()")
        painted = self.value("(c => new Set(new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height)"
                             ".data.buffer)).size)(document.querySelector('canvas'))")
        self.assertGreater(painted, 4)
        self.value("document.querySelector('canvas').scrollIntoView({block: 'center'})")
        box = self.value("(r => [r.left, r.top, r.width])(document.querySelector('canvas').getBoundingClientRect())")
        self.browser.move(box[0] + box[2] * 0.9, box[1] + 35)
        self.assertIn("%", self.value("document.querySelector('[data-figure^=timeline] .tip').innerText"))

    def test_damage_is_told_in_a_sentence(self):
        bad = self.root / "bad"
        bad.mkdir()
        for name, content in (("empty", None), ("garbage", b"\xff\x00\x01{"), ("cut", b'{"model": "a", "dev')):
            source = bad / name
            source.mkdir()
            if content is not None:
                (source / "summary.json").write_bytes(content)
            done = subprocess.run([PROGRAM, "report", source, "-o", self.root / "never"], capture_output=True, text=True)
            self.assertEqual(done.returncode, 2, name)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        write_run(bad / "half")
        (bad / "half" / "trace.json").write_text('{"traceEvents": [{"ph": "X"')
        self.look(self.report(bad / "half", "half"))
        self.assertIn("trace.json' is not JSON: mistake at byte", self.value("document.body.innerText"))

    def test_nothing_is_wider_than_a_narrow_window(self):
        for name, page in (("narrow", self.one), ("narrow-suite", self.many), ("narrow-published", self.table),
                           ("narrow-checked", self.checked), ("narrow-evaluation", self.tuned)):
            self.look(page, width=360)
            self.keep(name)
            self.assertLessEqual(self.value("document.documentElement.scrollWidth"), 360, name)
            self.assertLessEqual(self.value("document.body.scrollWidth"), 360, name)
            self.assertFalse(self.value("document.querySelector('.matrix tbody th')?.offsetWidth > 120"), name)
            self.assertEqual(self.value("[...document.querySelectorAll('svg, canvas, .card, .tools')].filter(n =>"
                                        "n.getBoundingClientRect().right > innerWidth + 1).length"), 0, name)

    def test_light_and_dark_are_readable(self):
        contrast = """(() => {
          const parse = c => c.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255)
            .map(v => v <= 0.03928 ? v / 12.92 : Math.pow((v + 0.055) / 1.055, 2.4));
          const light = c => { const [r, g, b] = parse(c); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
          const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
          const paper = light(getComputedStyle(document.body).backgroundColor);
          const style = getComputedStyle(document.documentElement), of = name => style.getPropertyValue('--' + name).trim();
          const hex = name => light('rgb(' + of(name).match(/[0-9a-f]{2}/g).map(h => parseInt(h, 16)).join(',') + ')');
          const card = hex('card');
          return [paper, ...['body', '.lead', '.small', 'thead th', 'figcaption', 'a', '.note', 'button'].map(s =>
            ratio(light(getComputedStyle(document.querySelector(s)).color), paper)),
            ...['ink', 'soft', 'link'].map(name => ratio(hex(name), card)),
            ...['forward', 'backward', 'weight-gradients', 'update'].map(name => ratio(hex(name), hex('on-bar'))),
            ratio(hex('ink'), hex('note'))];
        })()"""
        for dark in (False, True):
            self.look(self.one, dark=dark)
            paper, *ratios = self.value(contrast)
            self.assertEqual(paper < 0.2, dark)
            for ratio in ratios:
                self.assertGreaterEqual(ratio, 4.5)
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
