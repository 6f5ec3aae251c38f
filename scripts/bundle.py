"""Writes `python/verus/report/vega.js.gz`, the script that draws figures on pages, from the installed vl-convert.

Making the script takes longer than the rest of a page, and it only changes with vl-convert.
"""

import gzip
import re
from pathlib import Path

import vl_convert

SCRIPT = Path(__file__).parents[1] / "python" / "verus" / "report" / "vega.js.gz"


def bundle() -> str:
    """The bundle: licences, then Vega, Vega-Lite and Vega-Embed; the first two as `vega` and `vegaLite`.

    vl-convert exports Vega-Embed alone, which can only draw later. The names of the others inside
    it are found where Vega-Embed uses them.
    """
    versions = f"Vega {vl_convert.get_vega_version()}, Vega-Embed {vl_convert.get_vega_embed_version()} and Vega-Lite"
    notice = f"/* {versions}: (c) University of Washington Interactive Data Lab, BSD-3-Clause, see vega.LICENSE */\n"
    script: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    (vega,) = re.findall(r"\bvega:(\w+)\.version,", script)
    (vega_lite,) = re.findall(r'"vega-lite":\(e,t\)=>(\w+)\.compile\(', script)
    return f"{notice}{script}\nwindow.vega = {vega}; window.vegaLite = {vega_lite};\n"


if __name__ == "__main__":
    SCRIPT.write_bytes(gzip.compress(bundle().encode(), mtime=0))
