"""Published results, each run again, drawn again and checked against its source: one module for each.

`sigcomm` has the figures and tables of the paper on Verus, and `model` those of the paper on models
of it. `later` has results of later papers on Verus and other schemes, `own` our studies. Figures
and tables of the papers have one form (`reproduction.py`): scenarios as data, a measured value for
each claim (`claims.csv`), drawings. Copy `sigcomm/fig09.py` to add one. Those in `own` build the
`Experiment` themselves: `prepare` (what to run), `checks` (measured against targets), `page`
(tables and figures) and `summary` (for a terminal).
"""

from __future__ import annotations

import importlib

from verus.errors import FieldError, near_or_all
from verus.papers.experiment import Experiment

#: Name and one line of each; the modules are imported when they are asked for.
NAMES = {
    "sigcomm-fig01": "Packets sent evenly over LTE arrive in bursts",
    "sigcomm-fig02": "Sizes of bursts and times between them: 3G and LTE, standing, driving, uplinks",
    "sigcomm-fig03": "What a second user does to the delay of the first",
    "sigcomm-fig04": "The rate that 3G delivers, and simple predictors that do not track it",
    "sigcomm-fig05": "A delay profile: recorded points and the curve through them",
    "sigcomm-fig07": "How the delay profile follows the channel",
    "sigcomm-sensitivity": "What the epoch, the update interval and the deltas do (section 5.3)",
    "sigcomm-fig08": "Verus beside Sprout, Cubic and Vegas on 3G and LTE, standing still",
    "sigcomm-fig09": "R trades throughput for delay: R = 2, 4, 6 beside Sprout on 3G and LTE",
    "sigcomm-fig10": "Ten flows under three patterns of movement: Verus beside Cubic and NewReno",
    "sigcomm-table1": "Fairness of 2 to 20 users: Verus beside Cubic and NewReno",
    "sigcomm-fig11": "A network whose rate, round trip and loss change every five seconds",
    "sigcomm-fig12": "Verus flows that come and go share a wired link",
    "sigcomm-fig13": "Verus flows with three round-trip times share a wired link",
    "sigcomm-fig14": "Verus and Cubic flows share a wired link",
    "sigcomm-fig15": "What updating the delay profile each second is worth",
    "sigcomm-short-flows": "How long short files take: Verus beside NewReno and Cubic",
    "model-table1": "How many samples a model is trained on, with one to four users",
    "model-table2": "How large a model's matrix is, as dimension and as a file, by quantization",
    "model-fig05": "The transition matrix of one user at 1 ms: mostly empty",
    "model-fig06": "The transition matrix of one user at 10 ms: denser, and the delay stays what it is",
    "model-fig07": "A model of one user beside Verus, with one to four users",
    "model-fig08": "Two users, a model of two users, beside Verus on five channels",
    "model-section64": "Three users, a model of three users, beside Verus on five channels",
    "model-fig09": "Four users, a model of four users, beside Verus on five channels",
    "model-fig10": "A model of one to four users together, with one to four users",
    "model-fig11": "One of four users that are switched on and off, Verus's and the model's over time",
    "model-fig12": "Four users that are switched on and off, Verus's and the model's",
    "cs244": "The 2017 reproduction: 24 cells beside both published columns, and the same-queue matrix it left open",
    "later-abc": "ABC's Fig. 2: Verus and six others over two LTE recordings",
    "later-cs244-linux": "The 2017 reproduction's Cubic: published, simulated, in Linux (by name only; guest kernel)",
    "later-copa": "Copa's figures on Pantheon: the order of schemes on cellular and on wired paths",
    "later-alcc": "ALCC's bound: what half the feedback changes of a controller",
    "calibration": "Built-in channels beside the recordings they stand for: rate, variation, outages",
    "arena": "Every sender over recordings, queues, flows and company: which dominates which (by name only; minutes)",
    "equilibrium": "What Verus and forward settle at on a constant rate: formulas beside the simulator (by name only)",
    "ablation": "What each part of Verus's default mode is worth, and how few are enough (by name only; minutes)",
    "forward": "What forward does over recordings, among many flows, in company, and what was wanted (by name only)",
    "agreement": "Emulated against simulated, sender by sender, in real time (by name only; takes root)",
    "linux": "Our Cubic, NewReno, Vegas and BBR beside Linux's (by name only; takes a guest kernel)",
    "peers": "Kernel senders and the prototype behind our emulator and behind Mahimahi's (by name only; takes root)",
}

#: Experiments that run only by their names: they check no published result, need privileges, or take a guest kernel.
_BY_NAME = ("arena", "ablation", "forward", "equilibrium", "agreement", "linux", "later-cs244-linux", "peers")
#: Experiments that run by default.
ALL = tuple(name for name in NAMES if name not in _BY_NAME)


def find(name: str) -> Experiment:
    """The experiment of that name.

    Raises:
        FieldError: There is none.
    """
    if name not in NAMES:
        hint = near_or_all(name, NAMES)
        raise FieldError("name", f"there is no experiment `{name}`{hint} (`verus reproduce list`)")
    experiment: Experiment = importlib.import_module(f"verus.{module_of(name)}").EXPERIMENT
    return experiment


def module_of(name: str) -> str:
    """Where the experiment of that name is, within the package.

    Example:
        >>> module_of("sigcomm-short-flows"), module_of("cs244"), module_of("arena")
        ('papers.sigcomm.short_flows', 'papers.later.cs244', 'papers.own.arena')
    """
    source, _, own = name.partition("-")
    if own:
        return f"papers.{source}.{own.replace('-', '_')}"
    return f"papers.later.{name}" if name == "cs244" else f"papers.own.{name}"
