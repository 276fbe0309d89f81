"""Print all tables: ``python -m benchmarks.planning --data DIR [--only NAME]``."""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from benchmarks.planning import (
    demand,
    gpu_types,
    horizon,
    orders,
    programmes,
    purchases,
    queues,
    ratios,
    speed,
    synthetic,
    venus,
)

TRACKS = (
    "demand",
    "runtime",
    "nextday",
    "users",
    "queue",
    "orders",
    "horizon",
    "programmes",
    "purchases",
    "ratios",
    "speed",
)


def main() -> None:
    """Run the selected benchmarks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with traces/")
    parser.add_argument("--only", choices=TRACKS)
    parser.add_argument("--month", default="2020-08-01", help="month of Venus to test on")
    args = parser.parse_args()
    selected = {args.only} if args.only else set(TRACKS)
    month = pd.Timestamp(args.month)
    if "demand" in selected:
        print(f"GPUs held over the next 24 h, seconds of processor\n{demand.run(args.data).round(4).to_string()}\n")
    if selected & {"runtime", "nextday"}:
        jobs = venus.load(args.data)
    if "runtime" in selected:
        print(f"Run times of {month:%B}, Venus\n{venus.run_times(jobs, args.month).round(3).to_string()}\n")
    if "nextday" in selected:
        until = month + pd.offsets.MonthBegin()
        errors, plans = venus.next_day(jobs, str(until.date()), month.days_in_month)
        print(f"GPUs held over the next 24 h, every midnight of {month:%B}, Venus\n{errors.round(4).to_string()}\n")
        print(f"Plans for the next day\n{plans.round(3).to_string()}\n")
    if "users" in selected:
        flawed = {f"cluster {seed}": synthetic.FlawedStepTime(0.4, seed) for seed in range(3)}
        rows = {name: synthetic.gpu_hours_per_user(costs, seed=costs.seed) for name, costs in flawed.items()}
        rows["cluster 0, bundled cost model"] = synthetic.gpu_hours_per_user(synthetic.modelled_step_time())
        table = pd.DataFrame(rows).T.round(3).to_string()
        print(f"GPU-hours of users next month against those from true costs, WAPE\n{table}\n")
    if "queue" in selected:
        print(f"KTH-SP2 on 100 processors, simulated\n{queues.kth_sp2(args.data).round(1).to_string()}\n")
        windows = queues.coming_windows(args.data)
        print(f"Coming 28 days of KTH-SP2\n{windows}\n{windows.to_frame().set_index('window').round(1).to_string()}\n")
        changed = queues.changed_capacity()
        print("After a change of capacity, 100 simulated clusters: share of mean waits within a factor of 1.5")
        print(f"{queues.within_factor(changed).round(2).to_string()}\n")
        print(f"A million jobs, simulated, seconds\n{queues.million_jobs_seconds().round(1).to_string()}\n")
    if "orders" in selected:
        table = orders.compare(args.data).round(3).to_string()
        print(f"GPUs required at past origins against those needed after the arrival of an order\n{table}\n")
    _print_plans(selected, args.data)
    if "speed" in selected:
        print(f"A million jobs, seconds\n{speed.plan_seconds(speed.million_jobs()).round(2)}\n")
        print(f"Reports, seconds of processor\n{speed.study_seconds().round(2)}")


def _print_plans(selected: set[str], data: Path) -> None:
    """Forecasts a quarter ahead, and plans with programmes."""
    if "purchases" in selected:
        title = "Purchases chosen at past origins: cost in hindsight over that of the best option"
        print(f"{title}\n{purchases.run(data).round(3).to_string()}\n")
    if "ratios" in selected:
        table = ratios.new_settings().round(4).to_string()
        print(f"Run times of settings new to their user, 40 simulated clusters\n{table}\n")
    if "horizon" in selected:
        print(f"Days of demand, and days ahead that a log bears\n{horizon.bears(data).to_string()}\n")
        for half in horizon.HALVES:
            windows = horizon.run(data, half)
            print(f"Mean of the next days, WAPE, {half} half\n{horizon.errors(windows).round(3).to_string()}")
            print(f"all origins\n{horizon.coverage(windows).round(3).to_string()}\n")
        print(f"Days inside bands of 80, 90, 95 %, from 100 days\n{horizon.daily_bands(data).round(3).to_string()}\n")
        print(
            f"GPU types, each forecast alone, by day of the next 28\n{gpu_types.coverage(data).round(3).to_string()}\n"
        )
    if "programmes" in selected:
        table = programmes.compare_all().round(3).to_string()
        print(f"The coming month of 18 simulated clusters with a programme that no log shows\n{table}\n")


if __name__ == "__main__":
    main()
