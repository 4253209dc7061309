"""An engine: every worker in this thread."""

from __future__ import annotations

from collections import deque
from time import sleep

from fdro_core.engines.wall_clock import Answer, WallEngine, WorkersLost, WorkersReady, make_worker


class QueueEngine(WallEngine):
    """Run every worker in this thread, in the order of the messages."""

    name = "queue"

    def _open(self, factories):
        self.factories, self.waiting, self.news = list(factories), deque(), []
        self.workers = [self.build(factory, None) for factory in factories]

    def build(self, factory, record):
        try:
            return make_worker(factory, record)
        except Exception as error:  # the worker answers every message with it
            return error

    def _post(self, worker, number, message):
        self.waiting.append((worker, number, message))

    def _collect(self, seconds):
        if self.news:
            news, self.news = self.news, []
            return news
        if not self.waiting:
            sleep(seconds)
            return []
        worker, number, message = self.waiting.popleft()
        machine = self.workers[worker]
        if isinstance(machine, Exception):
            return [Answer(number, machine)]
        try:
            return [Answer(number, machine.handle(message))]
        except Exception as error:
            return [Answer(number, error)]

    def _remake(self, records, *, afresh):
        for worker, record in records.items():
            machine = self.workers[worker] = self.build(self.factories[worker], record)
            failed = isinstance(machine, Exception)
            lost = WorkersLost([worker], str(machine), machine) if failed else None
            self.news.append(lost or WorkersReady([worker]))

    def _close(self):
        self.workers = []
