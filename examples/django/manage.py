"""A Django project whose view is a job: the request is stored, a worker runs it, the client asks for the result.

pip install "headrace[django]"
python manage.py runserver
python manage.py headrace worker

curl -i localhost:8000/words -H "X-User: ann" --json '{"text": "to be or not to be"}'
curl -i localhost:8000/words -H "X-User: ann" -H "Prefer: wait=10" --json '{"text": "to be or not to be"}'
"""

import os
import sys

from django.core.management import execute_from_command_line

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "words.settings")

if __name__ == "__main__":
    execute_from_command_line(sys.argv)
