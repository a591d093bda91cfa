"""A Flask service whose route is a job: the request is stored, a worker runs it, the client asks for the result.

pip install "headrace[flask]"
flask --app service run
headrace worker service:jobs

curl -i -X POST localhost:5000/words -H "X-User: ann" --json '{"text": "to be or not to be"}'
curl -i -X POST localhost:5000/words -H "X-User: ann" -H "Prefer: wait=10" --json '{"text": "to be or not to be"}'
"""

from collections import Counter

import msgspec
from flask import Flask, abort, request

from headrace import App, Context, JobOptions
from headrace.endpoints.flask import JobBlueprint, status_blueprint


class Text(msgspec.Struct):
    text: str


class Words(msgspec.Struct):
    words: int
    most: list[tuple[str, int]]


def current_user() -> str:
    user = request.headers.get("X-User")
    if user not in ("ann", "bob"):
        abort(401)
    return str(user)


jobs = App("sqlite:///jobs.db")
words = JobBlueprint(jobs, "words", __name__, url_prefix="/words", identity=current_user)


@words.post("", job=JobOptions(timeout=60))
def count(ctx: Context, body: Text, most: int = 3) -> Words:
    """Count the words of a text; this runs in a thread of a worker."""
    if not body.text.strip():
        abort(422, "there are no words")
    found = Counter[str]()
    given = body.text.lower().split()
    for done, word in enumerate(given):
        found[word] += 1
        ctx.progress(100 * done / len(given))
    return Words(len(given), found.most_common(most))


app = Flask(__name__)
app.register_blueprint(words)
app.register_blueprint(status_blueprint(jobs, identity=current_user), url_prefix="/jobs")
