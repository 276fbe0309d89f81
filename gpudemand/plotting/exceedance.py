"""Figure of risk: how often a number of GPUs is not enough, for every number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpudemand.plotting._base import INSTALLED, PREDICTED, Display, kind_of, put_kind, put_legend, put_title
from gpudemand.plotting.forecast import choose_series

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class ExceedanceDisplay(Display):
    """Share of the time in which demand exceeds a number of GPUs, for every number.

    Build it with `from_plan`.

    Parameters
    ----------
    gpus, share_over : ndarray of shape (n,)
    installed : float
        GPUs installed, marked on the curve.
    kind : str
        Kind of data, for the corner.

    Attributes
    ----------
    line_, installed_line_ : Line2D
        After `plot`.
    """

    _size = (6.0, 3.6)

    def __init__(self, gpus: Any, share_over: Any, installed: float, *, kind: str) -> None:
        self.gpus = gpus
        self.share_over = share_over
        self.installed = installed
        self.kind = kind

    @classmethod
    def from_plan(cls, plan: Any, *, unique_id: str | None = None) -> ExceedanceDisplay:
        """Take one series of a capacity plan.

        Parameters
        ----------
        plan : CapacityPlan
        unique_id : str, optional
            Needed when the plan has several series.

        Returns
        -------
        ExceedanceDisplay
        """
        curve = plan.exceedance()
        name = choose_series(curve, unique_id)
        mine = curve[curve["unique_id"] == name]
        installed = float(plan.summary.loc[name, "installed"])
        return cls(mine["gpus"].to_numpy(), mine["share_over"].to_numpy(), installed, kind=kind_of(plan))

    def _draw(self, ax: Axes) -> None:
        self.line_ = ax.plot(self.gpus, self.share_over, color=PREDICTED)[0]
        self.installed_line_ = ax.axvline(self.installed, color=INSTALLED, linewidth=1.8)
        ax.yaxis.set_major_formatter("{x:.0%}")
        ax.xaxis.set_major_formatter("{x:,.6g}")
        ax.set_ylim(0, 1)
        ax.set_xlim(0, float(self.gpus[-1]))
        ax.set_xlabel("GPUs", loc="left")
        ax.set_ylabel("share of the time with more demand")
        put_title(ax, "How often a number of GPUs is not enough")
        put_kind(ax, self.kind)
        put_legend(ax, [(self.line_, "expected share"), (self.installed_line_, "installed")])
