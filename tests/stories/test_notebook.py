"""The example notebook runs from top to bottom, and each cell shows what its text says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

NOTEBOOK = Path(__file__).resolve().parents[2] / "docs" / "guide" / "notebook.ipynb"


EXECUTE = """
import sys, nbformat
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], as_version=4)
where = {"metadata": {"path": sys.argv[2]}}
NotebookClient(notebook, kernel_name="python3", timeout=120, resources=where).execute()
nbformat.write(notebook, sys.argv[3])
"""


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """What each cell of code showed, by its source: media type to content."""
    folder = tmp_path_factory.mktemp("notebook")
    executed = folder / "executed.ipynb"
    # A process of its own, with nothing but this environment's kernel.
    environment = {**os.environ, "JUPYTER_PATH": "", "JUPYTER_PREFER_ENV_PATH": "1"}
    command = [sys.executable, "-c", EXECUTE, str(NOTEBOOK), str(folder), str(executed)]
    subprocess.run(command, check=True, env=environment, capture_output=True, text=True)
    cells = nbformat.read(executed, as_version=4).cells
    return {
        cell.source: [output.data for output in cell.outputs if "data" in output]
        for cell in cells
        if cell.cell_type == "code"
    }


def shown(outputs, end: str) -> dict[str, str]:
    """What the cell showed last that ends with `end`."""
    (found,) = [data for source, data in outputs.items() if source.endswith(end)]
    return found[-1]


def test_every_value_is_shown_as_html_or_as_a_picture(outputs):
    """No cell shows a bare `repr`."""
    for source, data in outputs.items():
        media = set(data[-1])
        assert media & {"text/html", "image/svg+xml"}, source


def test_pictures_are_svg(outputs):
    """The tree, the leaves and the history."""
    for call, words in (
        ("tree", "4 leaves"),
        ("files", "Rows a leaf"),
        ("history", "transactions"),
    ):
        assert words in shown(outputs, f"table.plot_{call}()")["image/svg+xml"]


def test_rows_are_shown_and_read_afterwards(outputs):
    """The first rows in one cell, all of them in the next."""
    assert "The first 20" in shown(outputs, "\nrows")["text/html"]
    assert "count" in shown(outputs, "describe()")["text/html"]


def test_the_progress_of_an_ingest_is_a_bar_that_is_full(outputs):
    """Five days are five bars, each updated in place."""
    (data,) = [data for source, data in outputs.items() if "progress_bar" in source]

    bars = [each["text/html"] for each in data if "<progress" in each.get("text/html", "")]
    assert len(bars) == 5
    assert "100%" in bars[-1]


def test_the_notebook_is_kept_without_outputs():
    """They differ from run to run: ids, times. A reader runs it, and this test does."""
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]

    kept = [cell["outputs"] for cell in cells if cell["cell_type"] == "code"]
    assert kept == [[]] * len(kept)
