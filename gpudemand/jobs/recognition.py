"""What a log looks like: one of the known formats, or what a command or a cloud writes that cannot be read."""

from __future__ import annotations

import re
from pathlib import Path

from gpudemand._validation import InputError
from gpudemand.jobs.files import first_bytes

#: Format -> what the first lines of its files are like.
_LOOKS = {
    "pbs": r"\s*\d\d/\d\d/\d{4} \d\d:\d\d:\d\d;[A-Za-z];",
    "lsf": r'\s*(?:"[A-Z_]+" "[\d.]+" \d+ |Job <[^>]+>.*, User <)',
    "sge": r"(?:#.*\n)*[^:\n]+:[^:\n]*:[^:\n]*:[^:\n]*:[^:\n]*:\d+:[^:\n]*:-?\d+:\d+:\d+:\d+:",
    "htcondor": r'\s*[\[{][\s\S]*"ClusterId"|\w+ = [\s\S]*\n(?:ClusterId|Owner) = |[\w ,]*\bClusterId\b',
    "sacct": r'\s*\{[\s\S]*"(?:tres|tres_alloc_str|job_state|allocation_nodes)"|JobID(?:Raw)?\||JOBID\|(?!.*\bSTAT\b)',
    "swf": r"(?:;.*\n|[ \t\r]*\n)*(?:;\s*(?:Version|Computer|UnixStartTime):|[ \t]*(?:-?[\d.]+[ \t]+){17}-?[\d.]+\s)",
    "opencost": r'\s*[\[{][\s\S]*"(?:gpuHours|minutes)"',
    "pods": r'\s*\{[\s\S]*"(?:Pod|PodList)"',
    "prometheus": r'\s*\{[\s\S]*"resultType"',
    "runai": r"(?=.*Allocated GPUs)(?=.*Workload)",
    "slurmdbd": r"(?=.*\bid_job\b)(?=.*\btres_alloc\b)",
    "focus": r"(?=.*\bChargePeriodStart\b)(?=.*\bConsumedQuantity\b)",
}

_TABLE = "a table with user, submit, start, end and gpus"
#: Command -> what its output, which has no times or no GPUs or is for people, begins like; and what can be read.
_OUTPUTS = {
    "sreport": (r"(?:-{9,}\n)?\s*Cluster\b.*(?:\bTRES Name\b|Utilization)", "sacct -P"),
    "bjobs": (r'\s*(?:JOBID\s*[| ].*\b(?:STAT|EXEC_HOST)\b|\{\s*"COMMAND":\s*"bjobs")', "lsb.acct, or bhist -l"),
    "bhist": (r".*Summary of time in seconds spent in various states", "bhist -l"),
    "kubectl get pods": (r"(?:NAMESPACE +)?NAME +READY +STATUS\b", "kubectl get pods -A -o json"),
    "kubectl get of objects that are no pods": (
        r'\s*\{(?![\s\S]*"Pod(?:List)?")[\s\S]*"apiVersion":\s*"[\w.-]+/',
        f"kubectl get pods -A -o json while their pods are there, or {_TABLE}",
    ),
    "squeue": (r"\s*JOBID +(?:PARTITION|NAME)\b|(?:gpu|gres/gpu):\S+ {3,}\S", "sacct -P, or squeue --json"),
    "sacct": (r"\s*JobID +.*\n-{3,} ", "sacct -P"),
    "sacct --delimiter": (r"JobID(?:Raw)?([^\w |])(?:\w+\1)*(?:Alloc|Req)(?:TRES|GRES)\b", "sacct -P, with its |"),
    "scontrol show job": (r"JobId=\d+ ", "sacct -P, or squeue --json"),
    "qacct": (r"={10,}\nqname ", "the file accounting of Grid Engine"),
    "qstat": (
        r'(?:job-ID +prior|Job [iI]d(?: +Name|: )|<Data><Job>|\{\s*"timestamp":[\s\S]*"pbs_)',
        "server_priv/accounting of PBS, or accounting of Grid Engine",
    ),
    "condor_q": (r"-- Schedd|\s*ID +OWNER +SUBMITTED", "condor_history -json"),
    "condor_history -af": (
        r"\d+[ ,.]+\d+[ ,]+[A-Za-z]\S*[ ,].*\b1\d{9}\b",
        "condor_history -af:h, which has a header, -json or -long",
    ),
    "flux jobs": (r'\s*\{[\s\S]*"t_(?:submit|run|cleanup)"', _TABLE),
    "ray list jobs": (r'\s*[\[{][\s\S]*"submission_id"', _TABLE),
    "aws batch": (r'\s*\{[\s\S]*"(?:jobArn|jobSummaryList)"', _TABLE),
    "aws sagemaker": (r'\s*\{[\s\S]*"TrainingJob(?:Summaries|Name|Arn)"', _TABLE),
    "gcloud ai custom-jobs": (r'\s*[\[{][\s\S]*"(?:jobSpec|workerPoolSpecs)"', _TABLE),
    "Amazon's cost and usage report": (r".*\bline_?[iI]tem[/_]", "its export as FOCUS (Data Exports)"),
    "Azure's usage details": (r".*\b[Mm]eter_?(?:Sub)?[cC]ategory\b", "its export as FOCUS (Cost Management)"),
    "Google's billing export": (r".*\busage_start_time\b", "its view in FOCUS"),
}


def output_of(path: Path) -> str:
    """Hint at what can be read in place of what a command or a cloud writes; empty for other files."""
    head = first_bytes(path) if path.is_file() else ""
    hints = (
        f" It looks like the output of {command}; what can be read is {instead}."
        for command, (regex, instead) in _OUTPUTS.items()
        if re.match(regex, head)
    )
    return next(hints, "")


def recognise(path: Path) -> str | None:
    """Format of a file by what it begins with; none for any other, and for a folder."""
    if not path.is_file():
        return None
    try:
        head = first_bytes(path)
    except InputError:
        return None
    return next((name for name, regex in _LOOKS.items() if re.match(regex, head)), None)
