"""A project for tests: its tables and its jobs are where the environment says."""

import os

import django

from headrace import Retry

SECRET_KEY = "for tests"
USE_TZ = True
INSTALLED_APPS = ["headrace.contrib.django", "shop"]
ROOT_URLCONF = "shop.urls"
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

if django.VERSION >= (6,):
    OPTIONS = {"retry": Retry(1, initial=0.01)}
    TASKS = {"default": {"BACKEND": "headrace.contrib.django.HeadraceBackend", "QUEUES": [], "OPTIONS": OPTIONS}}
