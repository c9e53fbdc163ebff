"""Draws curves as SVG: a panel for each, both axes logarithmic, points measured and a line modelled."""
import math
from xml.sax.saxutils import escape

WIDTH, HEIGHT, COLUMNS = 380, 250, 2
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 40, 40
STYLE = """text { font: 11px sans-serif; fill: #24292f }
.title { font-size: 12px; font-weight: bold }
.paper { fill: #ffffff }
.grid { stroke: #d0d7de; stroke-width: 1 }
.model { fill: none; stroke: #b85214; stroke-width: 1.5 }
.point { fill: #2f6fb3 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .paper { fill: #0d1117 }
  .grid { stroke: #30363d }
  .model { stroke: #d9722f }
  .point { fill: #4a8fd8 }
}"""


class Axis:
    """From numbers to places, by their logarithms."""

    def __init__(self, values, start, end):
        self.low, self.high = math.log10(min(values) * 0.9), math.log10(max(values) * 1.1)
        self.start, self.end = start, end

    def at(self, value):
        return self.start + (math.log10(value) - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self):
        """Powers of ten, or 1, 2 and 5 of each where there are few."""
        range_ = range(math.floor(self.low), math.ceil(self.high) + 1)
        for steps in ((1,), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 7)):
            found = [step * 10.0**power for power in range_ for step in steps
                     if self.low <= math.log10(step * 10.0**power) <= self.high]
            if len(found) >= 3:
                break
        return found


def number(value):
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def panel(title, unit, points, left, top):
    across = Axis([point for point, _, _ in points], left + LEFT, left + WIDTH - RIGHT)
    values = [value for _, measured, model in points for value in (measured, model)]
    up = Axis(values, top + HEIGHT - BOTTOM, top + TOP)
    short, _, rest = title.partition(" (")
    lines = [f'<text class="title" x="{left + LEFT}" y="{top + 16}">{escape(short)}</text>']
    lines.append(f'<text x="{left + LEFT}" y="{top + 31}">{escape(rest.rstrip(")"))}</text>')
    for tick in up.ticks():
        y = up.at(tick)
        lines.append(f'<line class="grid" x1="{left + LEFT}" x2="{left + WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        lines.append(f'<text x="{left + LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{number(tick)} ms</text>')
    for tick in across.ticks():
        x = across.at(tick)
        lines.append(f'<text x="{x:.1f}" y="{top + HEIGHT - BOTTOM + 16}" text-anchor="middle">{number(tick)}</text>')
    lines.append(f'<text x="{left + WIDTH - RIGHT}" y="{top + HEIGHT - 8}" text-anchor="end">{escape(unit)}</text>')
    way = " ".join(f"{across.at(point):.1f},{up.at(model):.1f}" for point, _, model in points)
    lines.append(f'<polyline class="model" points="{way}"/>')
    for point, measured, _ in points:
        lines.append(f'<circle class="point" cx="{across.at(point):.1f}" cy="{up.at(measured):.1f}" r="3"/>')
    return lines


def picture(panels):
    """Each panel is a title, the unit of its points, and (point, measured ms, modelled ms) in order."""
    width, height = WIDTH * COLUMNS, HEIGHT * math.ceil(len(panels) / COLUMNS)
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
             f'height="{height}" role="img">', "<title>Milliseconds of a step, measured (points) and modelled</title>",
             f"<style>\n{STYLE}\n</style>", f'<rect class="paper" width="{width}" height="{height}"/>']
    for place, (title, unit, points) in enumerate(panels):
        lines += panel(title, unit, points, place % COLUMNS * WIDTH, place // COLUMNS * HEIGHT)
    return "\n".join(lines + ["</svg>", ""])
