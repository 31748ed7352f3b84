"""Line charts as SVG text, in tones that can be read on a light page and on a dark one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT = 760, 340
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 24, 64, 48
_INK = "#808a94"  # of about the same contrast on white and on black


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a chart: its name, points in the order of x, and how it looks."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: str
    dashed: bool = False


def line_chart(
    *, title: str, x_label: str, y_label: str, y_max: float, lines: Sequence[Line]
) -> str:
    """Return an SVG file. What lies above `y_max` is cut off; x and y begin at 0."""
    x_max = max(x for line in lines for x, _ in line.points)

    def place(x: float, y: float) -> str:
        across = _LEFT + x / x_max * (_WIDTH - _LEFT - _RIGHT)
        down = _HEIGHT - _BOTTOM - y / y_max * (_HEIGHT - _TOP - _BOTTOM)
        return f"{across:.1f},{down:.1f}"

    inside = f'width="{_WIDTH - _LEFT - _RIGHT}" height="{_HEIGHT - _TOP - _BOTTOM}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}"',
        f'  font-family="sans-serif" font-size="13" fill="{_INK}" role="img">',
        f"<title>{escape(title)}</title>",
        f'<clipPath id="inside"><rect x="{_LEFT}" y="{_TOP}" {inside}/></clipPath>',
        f'<text x="{_LEFT}" y="20" font-size="15" font-weight="bold">{escape(title)}</text>',
        *_grid(x_max, y_max),
        f'<text x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 10}" text-anchor="end">{x_label}</text>',
        f'<text x="{_LEFT - 8}" y="{_TOP - 10}" text-anchor="end">{y_label}</text>',
    ]
    for number, line in enumerate(lines):
        dashes = ' stroke-dasharray="6 4"' if line.dashed else ""
        stroke = f'fill="none" stroke="{line.colour}" stroke-width="1.5"{dashes}'
        points = " ".join(place(x, y) for x, y in line.points)
        parts.append(f'<polyline clip-path="url(#inside)" {stroke} points="{points}"/>')
        left = _LEFT + 12 + number * 200
        parts.append(f'<path d="M{left} {_TOP - 22}h24" {stroke}/>')
        parts.append(f'<text x="{left + 30}" y="{_TOP - 18}">{escape(line.name)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _grid(x_max: float, y_max: float) -> list[str]:
    """Thin lines across, and numbers at both axes."""
    parts = []
    bottom, height = _HEIGHT - _BOTTOM, _HEIGHT - _TOP - _BOTTOM
    for y in _ticks(y_max):
        down = bottom - y / y_max * height
        parts.append(
            f'<path d="M{_LEFT} {down:.1f}H{_WIDTH - _RIGHT}" stroke="{_INK}" '
            'stroke-opacity="0.35" stroke-width="1"/>'
        )
        parts.append(f'<text x="{_LEFT - 8}" y="{down + 4:.1f}" text-anchor="end">{y:,}</text>')
    for x in _ticks(x_max):
        across = _LEFT + x / x_max * (_WIDTH - _LEFT - _RIGHT)
        parts.append(f'<text x="{across:.1f}" y="{bottom + 18}" text-anchor="middle">{x:,}</text>')
    return parts


def _ticks(most: float) -> list[int]:
    """Round numbers from 0 on, at most seven."""
    step = next(
        step
        for power in range(12)
        for step in (10**power, 2 * 10**power, 5 * 10**power)
        if most / step <= 6
    )
    return [*range(0, int(most) + 1, step)]
