"""The rows of TPC-H as Parquet files, which `tpchgen-cli` of PyPI writes: each scale once.

make bench ARGS=tpch      installs it, beside the peers
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "tpch"


class NoGenerator(Exception):
    """`tpchgen-cli` is not installed."""


def tpch_data(scale: float = 1) -> Path:
    """Return the folder of the eight files, `lineitem.parquet` among them, at a scale factor.

    Raises:
        NoGenerator: Nothing on this machine can write them.
    """
    folder = FOLDER / f"{scale:g}"
    if folder.exists():
        return folder
    own = ROOT / ".venv-peers" / "bin" / "tpchgen-cli"
    generator = str(own) if own.exists() else shutil.which("tpchgen-cli")
    if generator is None:
        raise NoGenerator("tpchgen-cli is not installed: `make bench ARGS=tpch` installs it")
    begun = folder.with_name(f"{folder.name}.begun")
    shutil.rmtree(begun, ignore_errors=True)
    begun.mkdir(parents=True)
    scaled = ["--scale-factor", f"{scale:g}", "--output-dir", str(begun)]
    subprocess.run([generator, "parquet", *scaled], check=True, stdout=subprocess.DEVNULL)
    begun.rename(folder)
    return folder
