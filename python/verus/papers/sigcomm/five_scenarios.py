"""The paper's "five different collected traces" (SIGCOMM 2015, Table 1 and Fig. 15)."""

from __future__ import annotations

from verus.papers.reproduction import Place

#: The first five of the seven scenarios that section 5.3 lists. Three recordings are the authors'.
#: They did not publish the stationary ones; we use an LTE phone at home and one in a taxi that
#: often stands.
CHANNELS = {
    "campus-stationary": Place("campus-stationary-lte-down", "nyc-2019/trace-3093662-home3"),
    "campus-pedestrian": Place("campus-pedestrian-lte-down", "verus-2015/campus-pedestrian.down"),
    "city-stationary": Place("city-stationary-lte-down", "nyc-2019/trace-2767958-taxi1"),
    "city-driving": Place("city-driving-lte-down", "verus-2015/city-driving.down"),
    "highway-driving": Place("highway-driving-lte-down", "verus-2015/highway-driving.down"),
}

#: Description of the scenarios, for a set-up.
WORDS = (
    "The paper does not name its five traces; here they are the first five of the seven scenarios that section 5.3 "
    "lists, downlink, at the rates of LTE. Of the recordings three are the authors' own; they published no stationary "
    "ones, for which an LTE phone at home and one in a taxi stand."
)
