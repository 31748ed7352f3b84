"""`Svg`: a picture as text, readable on light and dark backgrounds."""

from __future__ import annotations

import os
from pathlib import Path
from textwrap import wrap
from typing import Final

from sleeper.html.markup import Markup, element, joined, shortened

WIDE: Final = 960
NARROW: Final = 328
"""The width of pictures for telephones."""
LEVELS: Final = 7
"""Shades of a scale: `fill0` is the least."""

_SHADES: Final = ("#eaf1f8", "#cfe1f1", "#abcbe8", "#7fb0db", "#5292c8", "#2f74ae", "#1b578c")
_DARK_SHADES: Final = ("#1c2733", "#21384e", "#285071", "#326b97", "#468abd", "#6cacdd", "#9fd0f7")


def _rules(
    paper: str, ink: str, soft: str, line: str, mark: str, shades: tuple[str, ...], other_ink: int
) -> str:
    """Return the rules of one colour scheme; from shade `other_ink` on, text has paper's colour."""
    fills = "".join(f".sl-pic .fill{n}{{fill:{shade}}}" for n, shade in enumerate(shades))
    over = ",".join(f".sl-pic .on{n}" for n in range(other_ink, LEVELS))
    return (
        f".sl-pic .paper{{fill:{paper}}}.sl-pic text{{fill:{ink}}}.sl-pic .soft{{fill:{soft}}}"
        f".sl-pic .line{{stroke:{line};fill:none}}.sl-pic .mark{{stroke:{mark};fill:none}}"
        f".sl-pic .bar{{fill:{shades[4]}}}.sl-pic .minus{{fill:{mark}}}"
        f".sl-pic .box{{stroke:{line}}}"
        f"{fills}{over}{{fill:{paper}}}"
    )


PICTURE_STYLE: Final = (
    ".sl-pic{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;"
    "font-size:12px}"
    ".sl-pic .title{font-size:14px;font-weight:600}.sl-pic .middle{text-anchor:middle}"
    ".sl-pic .end{text-anchor:end}"
    + _rules("#ffffff", "#1d2733", "#55616e", "#b9c4cf", "#b4380f", _SHADES, 5)
    + "@media (prefers-color-scheme: dark){"
    + _rules("#12181f", "#e6edf3", "#a3b0bd", "#44525f", "#ff9b70", _DARK_SHADES, 4)
    + "}"
)
"""The style sheet of all pictures. The web page has it once, each saved picture in itself."""

_LETTER: Final = 6.6
_TITLE_LETTER: Final = 9
"""Pixels that a letter needs."""


class Svg:
    """A picture. Notebooks show it; `save` writes it to a file.

    Args:
        body: Its shapes.
        width: In pixels.
        height: In pixels.
        title: Its name, for readers of screens.
        description: What it shows, in words, for readers of screens.
    """

    def __init__(
        self, body: Markup, *, width: int, height: int, title: str, description: str
    ) -> None:
        self.body = body
        self.width = width
        self.height = height
        self.title = title
        self.description = description

    def inline(self) -> Markup:
        """Return the picture for a page that has `PICTURE_STYLE`."""
        return self._element(self.body, width="100%")

    def _repr_html_(self) -> str:
        """Return the picture for a page that someone else makes, of whatever width it is."""
        return element("div", self._styled(width="100%", style=f"max-width:{self.width}px"))

    def _repr_svg_(self) -> str:
        return self._styled(width=self.width, height=self.height)

    def _styled(self, **size: object) -> Markup:
        paper = element("rect", class_="paper", width=self.width, height=self.height, rx=8)
        style = element("style", Markup(PICTURE_STYLE))
        return self._element(style, paper, self.body, **size)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture to an `.svg` file, which browsers and editors can open."""
        Path(path).write_text(f"{self._repr_svg_()}\n", encoding="utf-8")

    def _element(self, *children: Markup, **attributes: object) -> Markup:
        return element(
            "svg",
            element("title", self.title),
            element("desc", self.description),
            *children,
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"0 0 {self.width} {self.height}",
            class_="sl-pic",
            role="img",
            aria_label=f"{self.title}. {self.description}",
            **attributes,
        )

    def __repr__(self) -> str:
        return f"<Svg {self.title!r}, {self.width} x {self.height}: save(path) writes it>"


def shade_of(amount: float, most: float) -> int:
    """Return the shade for an amount: 0 for none, the last one for the largest."""
    if amount <= 0 or most <= 0:
        return 0
    return min(LEVELS - 1, 1 + int((LEVELS - 1) * amount / most * 0.999))


def heading(title: str, summary: str, *, left: float, width: int) -> tuple[Markup, int]:
    """Return a title with a summary below it, and where the next thing begins.

    Args:
        title: One line; what does not fit is left out.
        summary: As many lines as it needs.
        left: Where both begin.
        width: Of the picture.
    """
    room = width - left - 8
    lines = wrap(summary, int(room / _LETTER))
    parts = [label(shortened(title, int(room / _TITLE_LETTER)), left, 26, "title")]
    parts += [label(each, left, 46 + 16 * n, "soft") for n, each in enumerate(lines)]
    return joined(parts), 46 + 16 * len(lines)


def label(words: object, x: float, y: float, *classes: str, **attributes: object) -> Markup:
    """Return text at a place."""
    return element(
        "text",
        words,
        x=f"{x:.1f}",
        y=f"{y:.1f}",
        class_=" ".join(classes) or None,
        **attributes,
    )


def box(
    x: float, y: float, width: float, height: float, *classes: str, tip: object = None, rx: int = 3
) -> Markup:
    """Return a rectangle; `tip` is shown where a pointer rests on it."""
    return element(
        "rect",
        *([] if tip is None else [element("title", tip)]),
        x=f"{x:.1f}",
        y=f"{y:.1f}",
        width=f"{max(0.0, width):.1f}",
        height=f"{max(0.0, height):.1f}",
        rx=rx,
        class_=" ".join(classes) or None,
    )


def line(x1: float, y1: float, x2: float, y2: float, *classes: str, **attributes: object) -> Markup:
    """Return a straight line."""
    return element(
        "line",
        x1=f"{x1:.1f}",
        y1=f"{y1:.1f}",
        x2=f"{x2:.1f}",
        y2=f"{y2:.1f}",
        class_=" ".join(classes) or None,
        **attributes,
    )
