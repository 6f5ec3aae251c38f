"""What the extension is trained on between two builds (`MATURIN_PGO=1`, as released wheels are built).

Senders of which much is asked, alone and among ten, on a steady link and on two that vary. No benchmark has these.
"""

import subprocess
import sys

SENDERS = ["newreno", "cubic", "verus:ratio=2", "verus:ratio=4", "verus:mode=paper,ratio=2", "forward", "bbr", "copa"]
LINKS = {
    "rate:50": "droptail:bytes=250000",
    "city-driving-3g-up": "red:min=375000,max=1125000,p=0.1",
    "campus-pedestrian-lte-up": "infinite",
}

for trace, queue in LINKS.items():
    for flows in ("1", "10"):
        link = ["--trace", trace, "--queue", queue, "--flows", flows, "--duration", "60"]
        command = [sys.executable, "-m", "verus", "compare", *link, "--scheme", *SENDERS, "--json"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
