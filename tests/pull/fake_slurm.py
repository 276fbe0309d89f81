"""sacct, squeue, sinfo, scontrol and sacctmgr of a cluster whose history is a file, as they would answer at some time.

    fake_slurm.py COMMAND HISTORY NOW [OPTION...]

What they list was seen on a real cluster (Slurm 22.05): windows leave out jobs that were never eligible, but for those
that were cancelled when -s names the states; -j finds all of them.
"""

import itertools
import sys

#: Answer of a real cluster: the GPUs of all nodes since some time, and when a node was down.
EVENTS = """\
lab||{registered}|Unknown||billing=256,cpu=256,energy=0,fs/disk=0,gres/gpu:1g.10gb=7,gres/gpu:a100=23,gres/gpu:h100=8,\
gres/gpu=38,gres/shard=32,mem=2000G,node=4,pages=0,vmem=0
lab|n2|{down}|Unknown|DOWN|billing=64,cpu=64,gres/gpu:a100=8,gres/gpu=8,mem=500G
"""
ENDED = {"Unknown", "None", ""}


def as_of(row, now):
    """The row as it stood at a time, or None if it was not there yet."""
    if int(row["Submit"]) > now:
        return None
    row = dict(row)
    start, end = row["Start"], row["End"]
    if start in ENDED and end not in ENDED and int(end) <= now:  # never started
        return row
    if start in ENDED or int(start) > now:
        row |= {"Start": "Unknown", "End": "Unknown", "State": "PENDING", "AllocTRES": "", "ElapsedRaw": "0"}
        # A job that was cancelled while it waited has a start, its end.
        return None if "." in row["JobID"] else row
    if end in ENDED or int(end) > now:
        row |= {"End": "Unknown", "State": "RUNNING", "ElapsedRaw": str(now - int(start))}
        row |= {"TRESUsageInAve": "", "TRESUsageInTot": ""}
    return row


def seconds(text):
    from datetime import datetime

    return int(datetime.fromisoformat(text + "+00:00").timestamp())


def listed(row, begin, end):
    over, eligible = row["End"], row["Eligible"]
    if over not in ENDED and begin <= int(over) <= end:
        return True
    return eligible not in ENDED and int(eligible) < end and (over in ENDED or int(over) >= begin)


def sacct(rows, options):
    if "-e" in options:
        return "   ".join(rows[0]) + "\n"
    option = dict(itertools.pairwise(options))
    fields = option["-o"].split(",")
    if "-j" in option:
        wanted = set(option["-j"].split(","))
        chosen = [row for row in rows if row["JobIDRaw"].split(".")[0] in wanted]
    else:
        begin, end = seconds(option["-S"]), seconds(option["-E"])
        chosen, job = [], False
        for row in rows:
            job = job if "." in row["JobID"] else listed(row, begin, end)
            chosen += [row] if job else []
    return "".join("|".join(line) + "\n" for line in [fields, *([row[name] for name in fields] for row in chosen)])


def answer(command, history, now, *options):
    """What the command prints."""
    with open(history, encoding="utf-8") as file:
        names, *lines = (line.rstrip("\n").split("|") for line in file)
    rows = [as_of(dict(zip(names, line, strict=True)), int(now)) for line in lines]
    rows = [row for row in rows if row is not None]
    if command == "sacct":
        return sacct(rows or [dict.fromkeys(names, "")], options)
    if command == "squeue":
        return "".join(row["JobIDRaw"] + "\n" for row in rows if row["State"] == "PENDING")
    if command == "scontrol":
        return f"Configuration data as of {now}\nAccountingStorageHost   = 127.0.0.1\n"
    if command == "sacctmgr" and "cluster" in options:
        return "lab\n"
    if command == "sacctmgr":
        first = min(int(line[names.index("Submit")]) for line in lines or [[0] * len(names)])
        return "Cluster|NodeName|TimeStart|TimeEnd|State|TRES\n" + EVENTS.format(registered=first, down=first + 60)
    return "n1|gpu:a100:8\nn3|gpu:a100:7,gpu:1g.10gb:7\nn4|gpu:h100:8,shard:h100:32\n"


if __name__ == "__main__":
    sys.stdout.write(answer(*sys.argv[1:]))
