"""The master of a private run: it sees noised numbers only, and ends when a worker's budget is spent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fdro_core.aspire.models.master import ModelMaster
from fdro_core.aspire.models.private_messages import Accounted, AskAccount, Release, Released
from fdro_core.master.base import Outgoing, Standing
from fdro_core.privacy.report import report
from fdro_core.protocol.messages import Reply, Request
from fdro_core.result import BUDGET_SPENT
from uncertainty_sets.arrays import Array


class PrivateMaster(ModelMaster):
    """The master for `AspireModels(privacy=...)`.

    What it knows at the end are running means of noised losses, so nothing is proved about the model. It does
    not go on without a worker whose budget is spent: its last gradient would push the model for ever.
    """

    def _accept(self, j: int, reply: Any) -> Outgoing:
        if isinstance(reply, Released) and reply.spent:
            if not self.finished:
                self.notice("budget-spent", worker=j)
            self.finished = BUDGET_SPENT
            return []
        return super()._accept(j, reply)

    def _repeat(self, j: int) -> Release:
        z = self.sent_points[j]
        self.sent += z.size + 1
        return Release(self.roster.tickets[j], z)

    def probes(self) -> dict[int, Request]:
        """Ask every worker for its account; a loss on all its data would be one release more."""
        return dict.fromkeys(self.roster.kept(), AskAccount())

    def _standing(self, replies: Mapping[int, Reply | Exception], losses: Array, answer: Any) -> Standing:
        """The weights, the planes and what was released; how far from optimal the model is, is not known."""
        accounts = {j: reply.kinds() for j, reply in replies.items() if isinstance(reply, Accounted)}
        privacy = self.plan.config.privacy
        assert privacy is not None
        known = report(privacy, self.plan.workers, accounts)
        return Standing(self.planes.weights(), self.planes.matrix(), np.inf, model="average", privacy=known)
