"""Millrace: trains image classifiers and face models on many CPU devices.

    import millrace as mr
    pets = mr.data("folder:pets", image=224, valid=0.2, seed=1)
    net = mr.model("resnet50", classes=pets.classes, weights="resnet50.pth")
    job = mr.Job(net, pets.train, valid=pets.valid, batch=32, epochs=5, optimizer="adamw", lr=1e-3)
    print(job.plan())
    run = job.train(on_step=lambda report: report.loss < 20)
    run.best.export("pets.onnx")

Mistakes raise InputError (a ValueError) before the first step, a job that fails raises JobError
(a RuntimeError), each with one sentence.
"""
from __future__ import annotations

from ._display import install as _install
from ._millrace import (Data, DataPart, EvaluationReport, InputError, Job, JobError, Model, Plan, Report,
                        Run, StepReport, Timeline, __version__, data, model, models)

TYPE_CHECKING = False  # modules that are for annotations alone are not loaded
if TYPE_CHECKING:
    from collections.abc import Mapping as _Mapping
    from os import PathLike as _PathLike
    from typing import Any as _Any

__all__ = ["Data", "DataPart", "EvaluationReport", "InputError", "Job", "JobError", "Model", "Plan",
           "Report", "Run", "StepReport", "Timeline", "data", "from_torch", "model", "models", "report"]


def from_torch(state_dict: _Mapping[str, _Any], name: str = "", **options: _Any) -> Model:
    """A model with the tensors of a PyTorch state dictionary (or of numpy arrays) as weights.

    Without a name it is the model that has tensors of these names and shapes; options are those of
    model().
    """
    from ._state import model_of_state
    return model_of_state(state_dict, name, options)


def report(*paths: str | _PathLike[str]) -> Report:
    """What runs wrote: directories of runs, or files of summaries, metrics, traces and plans."""
    return Report(list(paths))


_install()
