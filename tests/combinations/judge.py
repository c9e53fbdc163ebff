"""Runs one draw and says what became of it."""

import json
import pathlib
import re
import shlex
import shutil

import axes
import job
import references
import results


class Verdict:
    """`kind` is ran, unchecked, refused or wrong; `why` the class of refusal or of fault."""

    def __init__(self, kind, why="", detail="", command=()):
        self.kind, self.why, self.detail, self.command = kind, why, detail, list(command)

    def __str__(self):
        return f"{self.kind}: {self.why}" if self.why else self.kind


def class_of(sentence):
    """A sentence without what is special to its job."""
    sentence = sentence.removeprefix("millrace: ")
    sentence = re.sub(r"'[^']*'", "'…'", sentence)
    return re.sub(r"\d+(\.\d+)?(e-?\d+)?", "#", sentence)


class Judge:
    def __init__(self, runner, data, known):
        self.runner, self.data, self.references = runner, data, known

    def commands(self, draw, folder):
        """The job as it is run, with its files."""
        flags = job.flags_of(draw, self.data)
        ranks = axes.ranks_of(draw)
        output = ["--metrics", str(folder / "metrics"), "--checkpoint", str(folder / "run")]
        if draw["resume"]:
            output += ["--checkpoint-every", str(job.MIDDLE), "--keep", "9"]
        return self.runner.command(ranks, ["train", *flags, *output, "--quiet"])

    def refusal(self, outcome, folder, command):
        """The verdict on a run that did not end well."""
        sentences = outcome.sentences()
        text = outcome.output.strip()[-1500:]
        if outcome.status == "hang":
            return Verdict("wrong", "hangs", text, command)
        steps = (folder / "metrics").exists() and (folder / "metrics").read_text().strip()
        if any("plug-in" in sentence for sentence in sentences):
            return Verdict("wrong", "processes cannot be joined", text, command)
        # A launcher that dies of a signal itself, as Open MPI's at times does when ranks refuse, passes no status on.
        launcher_died = command[0] != self.runner.program and outcome.status < 0
        refused = outcome.status == 2 or launcher_died
        if refused and len(set(sentences)) == 1 and not steps:
            return Verdict("refused", class_of(sentences[0]), sentences[0], command)
        if outcome.status == 2 and sentences and not steps:
            return Verdict("wrong", "refused with several sentences", text, command)
        if outcome.status == 2:
            return Verdict("wrong", "refused after a step, or without a sentence", text, command)
        return Verdict("wrong", f"status {outcome.status}: " + class_of(sentences[0] if sentences else "silent"),
                       text, command)

    def judge(self, draw, folder):
        command = self.commands(draw, pathlib.Path(folder))
        try:
            return self.judge_run(draw, pathlib.Path(folder), command)
        except references.Unknown as fault:
            return Verdict("wrong", "its reference is at fault", str(fault), command)

    def judge_run(self, draw, folder, command):
        outcome = self.runner.run(command, folder)
        if outcome.status != 0:
            return self.refusal(outcome, folder, command)
        result = results.Result(folder / "metrics", folder / "run" / f"step-{job.STEPS:08d}")
        expected = self.references.expected(draw)
        if expected is None:
            return Verdict("unchecked", "", "", command)
        faults = expected.differences(result)
        if draw["eval"] in ("end", "every") and not faults:
            faults = self.evaluation_faults(draw, result, folder)
        if draw["eval"] == "faces" and not faults:
            faults = self.verification_faults(draw, result, folder)
        if faults:
            return Verdict("wrong", "differs: " + class_of(faults[0]), "\n".join(faults[:6]), command)
        if draw["resume"]:
            return self.judge_resumed(draw, folder, expected)
        return Verdict("ran", "", "", command)

    def evaluation_faults(self, draw, result, folder):
        """The last evaluation of the job against one of its checkpoint, on one device."""
        model = axes.MODELS[draw["model"]]
        summary = folder / "summary"
        command = self.runner.command(1, [
            "eval", "--model", draw["model"], "--image", str(model["image"]), "--channels",
            str(model["channels"]), "--classes", str(model["classes"]), "--data",
            self.data.evaluation(draw["model"]), "--batch", "8", "--checkpoint", str(folder / "run"),
            "--threads-per-device", "1", "--conv-algo", "direct", "--summary", str(summary)])
        outcome = self.runner.run(command, folder)
        if outcome.status != 0:
            return [f"its checkpoint cannot be evaluated: {outcome.output.strip()[-300:]}"]
        found, told = json.loads(summary.read_text()), result.evaluations[job.STEPS]
        # The same weights in float32, which is also what stages send: only the order of sums differs.
        allowed = 1e-4 * max(1, abs(told["loss"]))
        if abs(found["loss"] - told["loss"]) > allowed:
            return [f"evaluation of the checkpoint: loss {found['loss']:.7g} instead of {told['loss']:.7g}"]
        if found["samples"] != told["samples"] or abs(found["top1"] - told["top1"]) > 1.5 / told["samples"]:
            return [f"evaluation of the checkpoint: top1 {found['top1']} instead of {told['top1']}"]
        return []

    def verification_faults(self, draw, result, folder):
        """The same for pairs of faces."""
        model = axes.MODELS[draw["model"]]
        summary = folder / "summary"
        outcome = self.runner.run(self.runner.command(1, [
            "eval", "--model", draw["model"], "--image", str(model["image"]), "--channels", str(model["channels"]),
            "--verification", self.data.pairs(draw["model"]), "--batch", "8", "--checkpoint", str(folder / "run"),
            "--threads-per-device", "1", "--conv-algo", "direct", "--summary", str(summary)]), folder)
        if outcome.status != 0:
            return [f"its checkpoint cannot be evaluated: {outcome.output.strip()[-300:]}"]
        found, told = json.loads(summary.read_text()), result.evaluations[job.STEPS]
        allowed = results.auc_bound(references.LAST_BIT[references.coarsest(draw)])
        if found["pairs"] != told["pairs"] or abs(found["auc"] - told["auc"]) > allowed:
            return [f"verification by the checkpoint: AUC {found['auc']} instead of {told['auc']}"]
        return []

    def judge_resumed(self, draw, folder, expected):
        """Goes on from the checkpoint in the middle, which must come to the same end."""
        other = job.other_placement(draw)
        begin = folder / "resumed"
        begin.mkdir(exist_ok=True)
        shutil.copytree(folder / "run" / f"step-{job.MIDDLE:08d}", begin / "run" / f"step-{job.MIDDLE:08d}")
        lines = (folder / "metrics").read_text().splitlines(True)
        (begin / "metrics").write_text("".join(lines))
        command = self.runner.command(axes.ranks_of(other),
                                      ["train", *job.flags_of(other, self.data), "--metrics",
                                       str(begin / "metrics"), "--checkpoint", str(begin / "run"),
                                       "--resume", "--quiet"])
        outcome = self.runner.run(command, begin)
        both = [*self.commands(draw, folder), "&&", *command]
        if outcome.status != 0:
            return Verdict("wrong", f"cannot be resumed: status {outcome.status}", outcome.output[-1500:], both)
        plain = all(axes.micro_batches(one) == 1 and references.whole_groups(one) for one in (draw, other))
        result = results.Result(begin / "metrics", begin / "run" / f"step-{job.STEPS:08d}")
        if draw["resume"] != "same" and (references.is_stale(draw)
                                         or axes.normalises(draw) and not plain):
            # From here on it is another job than the draw was.
            expected = self.references.resumed(other, folder / "run" / f"step-{job.MIDDLE:08d}",
                                               folder / "reference")
            if expected is None:
                return Verdict("unchecked", "resumed elsewhere", "", both)
            result.forget(job.MIDDLE)
        faults = expected.differences(result)
        if faults:
            return Verdict("wrong", "differs when resumed: " + class_of(faults[0]), "\n".join(faults[:6]), both)
        return Verdict("ran", "", "", both)


def simpler(draw):
    """The same draw with one word fewer, each in turn; then with fewer devices."""
    for axis in axes.AXES:
        if draw[axis] != axes.DEFAULT[axis]:
            yield {**draw, axis: axes.DEFAULT[axis]}
    for layout in ("1", "2", "1.1", "2.1", "1.2"):
        if layout != draw["layout"] and len(layout) <= len(draw["layout"]):
            yield {**draw, "layout": layout}


def pasted(command):
    """A line for a shell: the job in a folder of its own, as that of the draw is gone by then."""
    line = shlex.join(command).replace("'&&'", "&&")
    place = "/tmp/millrace-draw"
    return f"rm -rf {place}; mkdir {place}; " + re.sub(r"/\S*/draw-\d+", place, line) if line else ""
