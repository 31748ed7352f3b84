"""Writes what the systems are loaded from, and what they are asked.

python -m bench.anchors.inside.inputs FOLDER ROWS FILES
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from bench.peers.questions import write_inputs

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    asked = write_inputs(folder / "inputs", int(sys.argv[2]), int(sys.argv[3]))
    (folder / "questions.json").write_text(json.dumps(asked.as_json()))
