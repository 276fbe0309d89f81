"""Queues in plain Python, with everything worked out anew at every event: what the compiled code must equal."""

from __future__ import annotations

from dataclasses import dataclass, field

FOREVER = float("inf")


@dataclass(eq=False)
class Job:
    submit: int
    run: int
    requested: int
    gpus: int
    priority: int = 0
    started: int | None = None
    start: float = FOREVER
    nodes: dict = field(default_factory=dict)
    reserved: float = FOREVER

    @property
    def end(self):
        return self.start + self.run

    @property
    def expected(self):
        return self.start + max(self.requested, self.run)


class Reference:
    """One cluster; `capacity` is a list of (time, GPUs), `node_gpus` the size of a node, or None."""

    def __init__(self, jobs, capacity, policy, node_gpus=None):
        self.order = sorted(jobs, key=lambda job: (-job.priority, job.submit))
        self.capacity, self.policy, self.node_gpus = capacity, policy, node_gpus
        self.running, self.waiting = [], []

    def simulate(self):
        at_first = {job: -job.gpus for job in self.order if job.started is not None}
        arrivals = sorted(self.order, key=lambda job: (job.submit, at_first.get(job, 0)))
        changes = sorted(self.capacity)[1:]
        self.gpus = self.capacity[0][1]
        while True:
            ends = sorted(self.running, key=lambda job: job.end)[:1]
            wakes = [job.reserved for job in self.waiting if self.policy == "conservative"]
            times = [job.end for job in ends], [time for time, _ in changes], [job.submit for job in arrivals]
            now = min([FOREVER, *wakes, *times[0], *times[1], *times[2]])
            if now == FOREVER:
                return
            early = changed = False
            if ends and ends[0].end == now:
                self.running.remove(ends[0])
                early = ends[0].expected > now
            elif changes and changes[0][0] == now:
                self.gpus, changed = changes.pop(0)[1], True
            elif arrivals and arrivals[0].submit == now:
                self.arrive(arrivals.pop(0))
            self.schedule(now, early, changed)

    def arrive(self, job):
        if job.started is None:
            self.waiting.append(job)
            self.waiting.sort(key=self.order.index)
        else:
            self.run(job, job.started, self.placement(job, self.free()) or {0: job.gpus})

    def run(self, job, start, nodes):
        job.start, job.nodes = start, nodes
        if job in self.waiting:
            self.waiting.remove(job)
        self.running.append(job)

    def free(self, without=()):
        """Free GPUs by node, if some running jobs had ended."""
        size = self.node_gpus or max(self.gpus, 1)
        n_nodes = -(-max(gpus for _, gpus in self.capacity) // size) if self.node_gpus else 1
        free = [max(min(self.gpus - size * node, size), 0) for node in range(n_nodes)]
        for job in self.running:
            for node, gpus in job.nodes.items():
                free[node] -= gpus * (job not in without)
        return free

    def placement(self, job, free):
        """GPUs of the job by node, None if it does not fit."""
        whole, rest = divmod(job.gpus, self.node_gpus) if self.node_gpus else (0, job.gpus)
        empty = [node for node, gpus in enumerate(free) if gpus == self.node_gpus][:whole]
        nodes = dict.fromkeys(empty, self.node_gpus)
        others = [(gpus, node) for node, gpus in enumerate(free) if gpus >= rest and node not in nodes]
        if len(empty) < whole or (rest and not others):
            return None
        return nodes | ({min(others)[1]: rest} if rest else {})

    def schedule(self, now, early, changed):
        if self.policy == "conservative":
            self.start_by_reservation(now, early, changed)
            return
        while self.waiting and (nodes := self.placement(self.waiting[0], self.free())):
            self.run(self.waiting[0], now, nodes)
        if self.policy == "easy" and self.waiting:
            self.backfill(now)
        if self.policy == "eager":
            for job in list(self.waiting):
                if nodes := self.placement(job, self.free()):
                    self.run(job, now, nodes)

    def reservation(self, head):
        """Time from which the head fits by the requests, and what is free then beside it."""
        for time in sorted({job.expected for job in self.running}):
            free = self.free([job for job in self.running if job.expected <= time])
            if nodes := self.placement(head, free):
                return time, [gpus - nodes.get(node, 0) for node, gpus in enumerate(free)]
        return FOREVER, self.free(self.running)

    def backfill(self, now):
        head, *others = self.waiting
        time, ahead = self.reservation(head)
        for job in others:
            if now + max(job.requested, job.run) <= time:
                nodes = self.placement(job, self.free())
            elif nodes := self.placement(job, [min(pair) for pair in zip(self.free(), ahead, strict=True)]):
                ahead = [gpus - nodes.get(node, 0) for node, gpus in enumerate(ahead)]
            if nodes:
                self.run(job, now, nodes)

    def start_by_reservation(self, now, early, changed):
        if changed:
            for job in self.waiting:
                job.reserved = FOREVER
        for job in list(self.waiting):
            if early or job.reserved == FOREVER:
                job.reserved = self.earliest(job, now)
            if job.reserved <= now:
                self.run(job, now, {0: job.gpus})

    def earliest(self, job, now):
        held = [(other.start, other.expected, other.gpus) for other in self.running]
        planned = [other for other in self.waiting if other is not job and other.reserved < FOREVER]
        held += [(other.reserved, other.reserved + max(other.requested, other.run), other.gpus) for other in planned]
        for start in sorted({now, *(end for _, end, _ in held if end > now)}):
            end = start + max(job.requested, job.run)
            times = [start, *(begin for begin, _, _ in held if start < begin < end)]
            if all(sum(g for a, b, g in held if a <= t < b) + job.gpus <= self.gpus for t in times):
                return start
        return FOREVER
