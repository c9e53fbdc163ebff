"""How plans and runs show themselves in notebooks. What only notebooks need is loaded when they ask."""
from . import _millrace


def _plan_html(plan):
    import html
    import json
    described = json.loads(plan.json())
    names = list(described["devices"][0]["breakdown"])
    head = "".join(f"<th>{html.escape(name)}</th>" for name in ["device", *names, "peak"])
    rows = ""
    for device in described["devices"]:
        cells = [device["id"]] + [f"{device['breakdown'][name] / 2**20:.1f} MiB" for name in names]
        cells.append(f"{device['peak_bytes'] / 2**20:.1f} MiB")
        rows += "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>"
    fits = "fits" if plan.fits else "does not fit: " + described.get("reason", "")
    return (f"<p><b>{html.escape(described['model'])}</b>, batch {described['global_batch']}: about "
            f"{plan.seconds_per_step:.2f} s per step, {plan.samples_per_second:.1f} samples/s; "
            f"{html.escape(fits)}</p><table><tr>{head}</tr>{rows}</table>")


def _run_html(run):
    losses = [loss for loss in run.losses if loss == loss]
    text = f"<p>{run.steps} steps"
    if losses:
        text += f", loss {losses[0]:.4f} to {losses[-1]:.4f}"
    if run.evaluation is not None:
        text += f", top-1 {100 * run.evaluation.top1:.2f} %"
    text += "</p>"
    if len(losses) < 2:
        return text
    low, high = min(losses), max(losses)
    points = " ".join(f"{300 * i / (len(losses) - 1):.1f},{100 - 100 * (x - low) / (high - low or 1):.1f}"
                      for i, x in enumerate(losses))
    return (text + '<svg viewBox="-4 -4 308 108" width="308" height="108"><polyline fill="none" '
            f'stroke="currentColor" points="{points}"/></svg>')


def _evaluation_html(report):
    import html
    cells = "".join(f"<td>{value:.4f}</td>" for value in report.figures.values())
    head = "".join(f"<th>{html.escape(name)}</th>" for name in report.figures)
    return f"<p>{report.samples} samples</p><table><tr>{head}</tr><tr>{cells}</tr></table>"


def _report_html(report):
    import html
    return (f'<iframe srcdoc="{html.escape(report.page)}" style="width: 100%; height: 640px; border: 0">'
            "</iframe>")


def install():
    _millrace.Plan._repr_html_ = _plan_html
    _millrace.Run._repr_html_ = _run_html
    _millrace.EvaluationReport._repr_html_ = _evaluation_html
    _millrace.Report._repr_html_ = _report_html
