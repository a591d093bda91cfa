"""The settings: tables in site.db, jobs in jobs.db."""

SECRET_KEY = "change me"
DEBUG = True
USE_TZ = True
INSTALLED_APPS = ["headrace.contrib.django", "words"]
ROOT_URLCONF = "words.urls"
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "site.db"}}
HEADRACE = {"URL": "sqlite:///jobs.db"}
