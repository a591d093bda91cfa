"""From MODULE[:APP] to an App."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.cli.find import find_app
from headrace.errors import ConfigError
from tests.cli.conftest import Shell


@pytest.fixture(autouse=True)
def here(shell: Shell) -> None:
    Path("two_apps.py").write_text("from headrace import App\none = App()\ntwo = App()\n")
    Path("no_app.py").write_text("app = 3\n")
    Path("alias_app.py").write_text("from headrace import App\napp = App()\nsame = app\n")
    Path("broken_app.py").write_text("\nx = 1 / 0\n")
    Path("needy_app.py").write_text("import a_library_nobody_has\n")


def test_an_app_is_found_by_name_or_as_the_only_one() -> None:
    assert find_app("quick:app") is find_app("quick")
    assert find_app("alias_app") is find_app("alias_app:same")


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("two_apps", "several Apps: say two_apps:one, two_apps:two"),
        ("no_app", "holds no App"),
        ("no_app:app", "is no App"),
        ("quick:other", "does not exist; module quick holds quick:app"),
        ("nowhere", "no module named 'nowhere'"),
        ("quick.py", "name the module, not the file: quick"),
        ("./quick.py", "name the module, not the file: quick"),
        ("jobs/quick.py", "name the module, not the file: jobs.quick"),
        ("", "names no App"),
        ("broken_app", r"ZeroDivisionError: division by zero \(.*broken_app.py:2\)"),
        ("needy_app", "needs 'a_library_nobody_has', which is not installed"),
        (":app", "names no App"),
    ],
)
def test_what_cannot_be_found_is_told(where: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        find_app(where)
