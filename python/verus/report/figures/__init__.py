"""Figures of saved results, as Vega-Lite: delay against throughput, time series, delay profiles, traces.

A figure is data: a Vega-Lite specification with its numbers inside, a title and a caption that
states the runs. `render` turns it into a file and `report` puts it on a page. Text and axes are
drawn in `currentColor`, so that one figure suits a light page and a dark one.
"""

from verus.report.figures.bursts import arrivals, distributions
from verus.report.figures.chart import Figure, Frame, Spec, grid, heading, short, slug
from verus.report.figures.echoes import echoes
from verus.report.figures.flows import flows
from verus.report.figures.live import live
from verus.report.figures.packets import packets
from verus.report.figures.plots import bars, heat, lines, points
from verus.report.figures.profile import profile_over_time, profiles
from verus.report.figures.recorded import recorded
from verus.report.figures.scatter import scatter
from verus.report.figures.series import series
from verus.report.figures.trace import trace_rate

__all__ = [
    "Figure",
    "Frame",
    "Spec",
    "arrivals",
    "bars",
    "distributions",
    "echoes",
    "flows",
    "grid",
    "heading",
    "heat",
    "lines",
    "live",
    "packets",
    "points",
    "profile_over_time",
    "profiles",
    "recorded",
    "scatter",
    "series",
    "short",
    "slug",
    "trace_rate",
]
