"""Opens a peer's table and looks one key up: a cold process imports no more than it must.

python -m bench.anchors.inside.cold_peer SYSTEM FOLDER KEY
"""

from __future__ import annotations

import sys
from pathlib import Path

from bench.peers.systems import system_class

if __name__ == "__main__":
    system = system_class(sys.argv[1])(Path(sys.argv[2]))
    system.open()
    answer = system.one(sys.argv[3])
    assert (answer.num_rows if hasattr(answer, "num_rows") else len(answer)) == 1, answer
