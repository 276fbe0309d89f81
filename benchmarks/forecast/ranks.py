"""Mean ranks with their critical difference (Nemenyi), from the table of the panels track.

python -m benchmarks.forecast --track panels --out panels.csv
python -m benchmarks.forecast.ranks panels.csv ranks.svg [--half scoring] [--rank "mean rank beside classical"]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure


def rank_figure(ranks: pd.Series, difference: float) -> Figure:
    """Methods from the best mean rank down; those whose bars do not touch differ at 5 %."""
    ranks = ranks.sort_values(ascending=False)
    figure = Figure(figsize=(6.4, 0.7 + 0.24 * len(ranks)), layout="constrained")
    axes = figure.subplots()
    alike = ranks <= ranks.min() + difference
    axes.hlines(
        ranks.index, ranks - difference / 2, ranks + difference / 2, color=alike.map({True: "0.2", False: "0.7"})
    )
    axes.plot(ranks, ranks.index, "o", color="tab:blue")
    axes.axvspan(ranks.min() - difference / 2, ranks.min() + difference / 2, color="0.93", zorder=0)
    axes.set_xlabel(f"mean rank (critical difference {difference:.1f})")
    axes.spines[["top", "right", "left"]].set_visible(False)
    return figure


def main() -> None:
    """Draw the ranks of one half of the panels."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", type=Path)
    parser.add_argument("figure", type=Path)
    parser.add_argument("--half", default="scoring", choices=["development", "scoring"])
    parser.add_argument("--rank", default="mean rank beside classical")
    options = parser.parse_args()
    table = pd.read_csv(options.table, index_col=[0, 1]).loc[options.half]
    ranks = table.loc[options.rank].dropna()
    rank_figure(ranks, float(table.loc[f"critical difference of {options.rank}"].dropna().iloc[0])).savefig(
        options.figure
    )


if __name__ == "__main__":
    main()
