"""How notebooks show values: as HTML, which `pictures` makes."""

from __future__ import annotations


class NotebookHtml:
    """A value that notebooks show as HTML: IPython calls `_repr_html_`."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        from sleeper.pictures.views import notebook_html

        return notebook_html(self)
