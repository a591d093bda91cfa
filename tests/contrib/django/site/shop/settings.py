"""A project for tests: its tables and its jobs are where the environment says."""

import os

import django

from headrace import Retry

SECRET_KEY = "for tests"
USE_TZ = True
INSTALLED_APPS = ["headrace.contrib.django", "shop"]
ROOT_URLCONF = os.environ.get("SHOP_URLS", "shop.urls")
ALLOWED_HOSTS = ["*"]

_LITE = {"ENGINE": "django.db.backends.sqlite3", "NAME": "site.db"}
_POSTGRES = {
    "ENGINE": "django.db.backends.postgresql",
    "NAME": os.environ.get("SHOP_NAME"),
    "HOST": os.environ.get("SHOP_HOST"),
    "PORT": os.environ.get("SHOP_PORT"),
    "USER": os.environ.get("SHOP_USER"),
    "PASSWORD": os.environ.get("SHOP_PASSWORD"),
}
SHARED = "SHOP_NAME" in os.environ
DATABASES = {"default": _POSTGRES if SHARED else _LITE}
HEADRACE = {"DATABASE": "default"} if SHARED else {"URL": "sqlite:///jobs.db"}

if "SHOP_ADMIN" in os.environ:
    INSTALLED_APPS += [
        f"django.contrib.{name}" for name in ("admin", "auth", "contenttypes", "sessions", "messages", "staticfiles")
    ]
    MIDDLEWARE = [
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.middleware.csrf.CsrfViewMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
    ]
    _PROCESSORS = [
        "django.template.context_processors.request",
        "django.contrib.auth.context_processors.auth",
        "django.contrib.messages.context_processors.messages",
    ]
    TEMPLATES = [
        {
            "BACKEND": "django.template.backends.django.DjangoTemplates",
            "APP_DIRS": True,
            "OPTIONS": {"context_processors": _PROCESSORS},
        }
    ]
    STATIC_URL = "static/"
    DEBUG = True
    """So that ``runserver`` serves what the admin's pages are drawn with."""
    PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

if django.VERSION >= (6,):
    OPTIONS = {"retry": Retry(1, initial=0.01)}
    TASKS = {"default": {"BACKEND": "headrace.contrib.django.HeadraceBackend", "QUEUES": [], "OPTIONS": OPTIONS}}
