"""``doctor``: it makes nothing, and says which store is meant and who says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Shell
from tests.support.servers import schemas
from tests.support.servers.postgres import shared


def findings(shell: Shell, *words: str, code: int = 0) -> dict[str, dict[str, str]]:
    """What was found, by name."""
    return {check["name"]: check for check in shell.json("doctor", *words, code=code)}


def test_a_missing_file_is_a_finding_and_stays_missing(shell: Shell) -> None:
    found = findings(shell, "--url", "sqlite:///typo.db", code=1)
    assert found["store"]["level"] == "fail"
    assert "there is no store at sqlite:///typo.db yet" in found["store"]["message"]
    assert "headrace migrate" in found["store"]["remedy"]
    assert not (shell.folder / "typo.db").exists()
    text = shell("doctor", "--url", "sqlite:///typo.db", code=1).stdout
    assert "✗ store" in text
    assert "→ check the url; headrace migrate makes the store at once" in text


def test_an_empty_file_is_no_store_and_stays_empty(shell: Shell) -> None:
    (shell.folder / "empty.db").touch()
    assert findings(shell, "--url", "sqlite:///empty.db", code=1)["store"]["level"] == "fail"
    assert (shell.folder / "empty.db").stat().st_size == 0


def test_a_missing_schema_is_a_finding_and_stays_missing(shell: Shell, tmp_path: Path) -> None:
    url = shared().url(schema=schemas.schema_of(tmp_path))
    for _ in range(2):  # the first look did not make it
        found = findings(shell, "--url", url, code=1)
        assert "there is no store at" in found["store"]["message"]
    shell("migrate", "--url", url)
    assert "store" not in {name for name, check in findings(shell, "--url", url).items() if check["level"] == "fail"}


def test_a_server_that_is_away_is_a_finding(shell: Shell) -> None:
    found = findings(shell, "--url", "postgresql://nobody@127.0.0.1:1/x", code=1)
    assert found["store"]["level"] == "fail"


# Who names the store


def test_code_wins_over_the_environment_and_doctor_says_so(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_URL", "postgresql://anna:secret@db/x")
    found = findings(shell, "--app", "quick")["settings"]
    lost = "the environment variable HEADRACE_URL (postgresql://anna:***@db/x)"
    assert f"url sqlite:///jobs.db from App(...), which wins over {lost}" in found["message"]
    assert found["level"] == "warn"
    assert "leave the url out of App(...)" in found["remedy"]


def test_where_the_url_comes_from(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    assert findings(shell, "--app", "quick")["settings"]["message"] == (
        "url sqlite:///jobs.db from App(...); settings are read from --app quick"
    )
    assert findings(shell, code=1)["settings"]["message"] == "url sqlite:///headrace.db from the default"
    monkeypatch.setenv("HEADRACE_URL", shell.url)
    monkeypatch.setenv("HEADRACE_LEASE", "20s")
    assert findings(shell)["settings"]["message"] == (
        f"url {shell.url} from the environment variable HEADRACE_URL; settings are read from HEADRACE_LEASE"
    )
    given = findings(shell, "--app", "quick", "--url", shell.url)["settings"]
    assert given["level"] == "ok"
    assert f"url {shell.url} from --url, which wins over App(...) (sqlite:///jobs.db)" in given["message"]
    (shell.folder / "headrace.toml").write_text('url = "sqlite:///file.db"\n')
    found = findings(shell)["settings"]["message"]
    assert "which wins over" in found
    assert "headrace.toml (sqlite:///" in found


def test_errors_say_which_setting_won(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    (shell.folder / "far.py").write_text('from headrace import App\napp = App("postgresql://nobody@127.0.0.1:1/x")\n')
    monkeypatch.setenv("HEADRACE_URL", shell.url)
    said = shell("jobs", "--app", "far", code=5).stderr
    lost = f"the environment variable HEADRACE_URL ({shell.url})"
    assert f"(the url comes from App(...), which wins over {lost})" in said
    monkeypatch.setenv("HEADRACE_URL", "sqlite:///typo.db")
    said = shell("jobs", code=5).stderr
    assert "no store at sqlite:///typo.db yet (from the environment variable HEADRACE_URL): the first" in said
    monkeypatch.setenv("HEADRACE_URL", "mysql://x")
    assert "(the url comes from the environment variable HEADRACE_URL)" in shell("jobs", code=2).stderr
    # Who has just typed it knows.
    assert "comes from" not in shell("jobs", "--url", "sqlite:////no/such/folder/x.db", code=5).stderr


def test_it_counts_the_tasks_of_imported_modules(shell: Shell) -> None:
    (shell.folder / "shop.py").write_text(
        'from headrace import App\n\napp = App("sqlite:///jobs.db", imports=["shop_mail"])\n\n\n'
        "@app.task\ndef pay() -> None: ...\n"
    )
    mail = "from shop import app\n\n\n@app.task\ndef send() -> None: ...\n"
    (shell.folder / "shop_mail.py").write_text(mail)
    shell("migrate", "--app", "shop")
    assert findings(shell, "--app", "shop")["app"]["message"].startswith("2 tasks: ")
    (shell.folder / "empty.py").write_text('from headrace import App\n\napp = App(imports=["empty_mail"])\n')
    found = findings(shell, "--app", "empty", code=1)["app"]
    assert (found["level"], "there is no module 'empty_mail'" in found["message"]) == ("fail", True)
