"""What to do where one of Slurm's commands fails."""

from __future__ import annotations

import re

from gpudemand._validation import InputError, shorten

#: What Slurm 22.05 and newer print, and what to do; the first that is found counts, so causes stand before effects.
_ADVICE = (
    (r"Invalid field requested", "this Slurm is older than 20.11, or the field was renamed; update Slurm or gpudemand"),
    (
        r"cannot stat file|configuration source|DNS SRV lookup",
        "name the file slurm.conf of the cluster in SLURM_CONF, or run this where sinfo answers",
    ),
    (
        r"getaddrinfo\(\) failed|Name or service not known|Unable to resolve",
        "correct AccountingStorageHost in slurm.conf, or this machine's DNS",
    ),
    (r"Did you start munged|Munge encode failed", "start munge on this machine"),
    (
        r"authentication error|Invalid credential|Munge decode failed|(?:Rewound|Expired) credential",
        "give this machine the munge key of the cluster, and set its clock",
    ),
    (
        r"Access/permission denied|Access denied|Insufficient priv|not authorized",
        "run this as an operator of Slurm, or give one the commands that --command-only prints",
    ),
    (
        r"Connection refused|timed out|Connection reset|Unable to contact|Problem talking to the database",
        "slurmdbd does not answer: start it, or try again later, and the pull goes on from here",
    ),
)


def failure(command: str, said: str, status: int) -> InputError:
    r"""Return the error of a command: the line that names the cause, and what to do.

    Parameters
    ----------
    command : str
        Its name.
    said : str
        What it printed as errors.
    status : int
        Its exit status.

    Examples
    --------
    >>> print(failure("sacct", "sacct: error: Munge encode failed\nsacct: error: Problem talking to the database", 1))
    sacct failed (Munge encode failed): start munge on this machine.
    """
    lines = [re.sub(rf"^{command}: (?:error|fatal): ", "", line.strip()) for line in said.splitlines() if line.strip()]
    found = ((line, advice) for cause, advice in _ADVICE for line in lines if re.search(cause, line, re.IGNORECASE))
    otherwise = (lines[-1] if lines else f"exit status {status}", f"run {command} by hand, and mend what it names")
    line, advice = next(found, otherwise)
    return InputError(f"{command} failed ({shorten(line.rstrip('.'), 200)}): {advice}.")
