"""The figure of cumulative distributions (ECDF), a line for each case."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from numpy.typing import ArrayLike
from twinlink_results import plot_style

_MARKS = 0.15  # distance of the markers along a line, as a share of the axes' diagonal


def draw(path: Path, values: Mapping[str, ArrayLike], labels: tuple[str, str], scale: Mapping[str, Any]) -> None:
    """Draw them, as ``path`` (a PNG) and as SVG beside it.  Raises OSError.

    A case without values has no line; ``scale`` is one of matplotlib's ``set_xscale``.
    """
    with mpl.rc_context(plot_style.STYLE):
        figure, (axis,) = plot_style.panels(1, 3.2)
        for number, (name, found) in enumerate(values.items()):
            if len(ordered := np.sort(np.asarray(found, np.float64))):
                share = np.arange(1, len(ordered) + 1) / len(ordered)
                style = plot_style.line_style(number) | {"ms": 4, "lw": 1.2}
                place = (number / len(values) * _MARKS, _MARKS)  # alike lines have their markers apart
                axis.step(ordered, share, where="post", label=name, markevery=place, **style)
        axis.set_xscale(**scale)
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.set(xlabel=labels[0], ylabel=labels[1])
        plot_style.legend(figure, [axis])
        plot_style.write(figure, path)
