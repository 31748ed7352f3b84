"""Builds the program that `bench.anchors --upstream` compares with, from a clone of upstream.

    git clone https://github.com/gchq/sleeper ../upstream
    python -m bench.upstream ../upstream      # cargo, a C++ compiler, and some minutes
    python -m bench.anchors --upstream build/upstream/side_by_side --rows-only compaction

The clone is not changed: its Rust is copied, and `driver` becomes one more crate of its workspace.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path
from time import perf_counter

HERE = Path(__file__).resolve().parent
FOLDER = HERE.parent.parent / "build" / "upstream"
COMMIT = "5f722a58309780bb5bbe81dbb736dd38d6812d30"  # 2026-07-01, what the driver was written for
NAME = "side_by_side"


def main() -> int:
    """Build, and print where the program is and how long that took."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.upstream",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("clone", type=Path, help="of https://github.com/gchq/sleeper")
    parser.add_argument("--commit", default=COMMIT)
    asked = parser.parse_args()
    if shutil.which("cargo") is None:
        print("cargo is not installed: https://rustup.rs")
        return 1
    started = perf_counter()
    workspace = copied(asked.clone, asked.commit)
    subprocess.run(["cargo", "build", "--release", "--package", NAME], cwd=workspace, check=True)
    program = FOLDER / NAME
    shutil.copy2(workspace / "target" / "release" / NAME, program)
    print(f"{program}, after {(perf_counter() - started) / 60:.0f} minutes")
    return 0


def copied(clone: Path, commit: str) -> Path:
    """Return the Rust workspace of a commit, copied, with the driver in it."""
    archive = ["git", "-C", str(clone), "archive", commit, "rust", "vendored"]
    packed = subprocess.run(archive, check=True, stdout=subprocess.PIPE).stdout
    with tarfile.open(fileobj=BytesIO(packed)) as files:
        files.extractall(FOLDER, filter="data")
    workspace = FOLDER / "rust"
    shutil.copytree(HERE / "driver", workspace / NAME, dirs_exist_ok=True)
    manifest = workspace / "Cargo.toml"
    text = manifest.read_text()
    manifest.write_text(text.replace("members = [", f'members = [\n    "{NAME}",', 1))
    return workspace


if __name__ == "__main__":
    sys.exit(main())
