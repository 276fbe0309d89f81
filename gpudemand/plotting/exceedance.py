"""Figure of the exceedance curve of a capacity plan."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

from gpudemand.plotting._base import INSTALLED, PREDICTED, Display, annotate, kind_of
from gpudemand.plotting.forecast import choose_series

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(eq=False, repr=False)
class ExceedanceDisplay(Display):
    """Exceedance curve: expected share of time in which demand exceeds a number of GPUs.

    Parameters
    ----------
    gpus, share_over : ndarray of shape (n,)
    installed : float
        GPUs installed, marked on the curve.
    kind : str
        Kind of data, shown in the corner.

    Attributes
    ----------
    line_, installed_line_ : Line2D
        After `plot`.
    """

    _size = (6.0, 3.6)

    gpus: Any
    share_over: Any
    installed: float
    _: KW_ONLY
    kind: str

    @classmethod
    def from_plan(cls, plan: Any, *, unique_id: str | None = None) -> ExceedanceDisplay:
        """Show one series of a capacity plan.

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
        rows = curve[curve["unique_id"] == name]
        installed = float(plan.summary.loc[name, "installed"])
        return cls(rows["gpus"].to_numpy(), rows["share_over"].to_numpy(), installed, kind=kind_of(plan))

    def _draw(self, ax: Axes) -> None:
        self.line_ = ax.plot(self.gpus, self.share_over, color=PREDICTED)[0]
        self.installed_line_ = ax.axvline(self.installed, color=INSTALLED, linewidth=1.8)
        ax.yaxis.set_major_formatter("{x:.0%}")
        ax.xaxis.set_major_formatter("{x:,.6g}")
        ax.set_ylim(0, 1)
        ax.set_xlim(0, float(self.gpus[-1]))
        ax.set_xlabel("GPUs", loc="left")
        ax.set_ylabel("share of time with more demand")
        entries = [(self.line_, "expected share"), (self.installed_line_, "installed")]
        annotate(ax, "Exceedance curve of demand", self.kind, entries)
