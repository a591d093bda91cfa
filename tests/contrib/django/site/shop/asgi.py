"""The project for servers with a loop."""

from django.core.asgi import get_asgi_application

application = get_asgi_application()
