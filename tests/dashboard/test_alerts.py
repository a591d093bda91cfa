"""Every kind of alert leads to a page."""

from __future__ import annotations

from headrace.core.stats.alerts.alert import Alert, Kind
from headrace.dashboard.alerts import problems_of
from headrace.dashboard.pages import VIEWS


def test_every_kind_has_a_check_a_sentence_and_a_page() -> None:
    paths = {view.path.partition("/{")[0] for view in VIEWS}
    for kind in Kind:
        [problem] = problems_of([Alert(kind, "warn", "x", "it is wrong", "headrace mends it")])
        assert (problem.text, problem.remedy) == ("It is wrong", "headrace mends it")
        assert "/" + problem.path.split("/")[1] in paths
        assert kind.check
