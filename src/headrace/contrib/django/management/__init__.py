"""Commands of ``manage.py``, where Django finds them. ``commands`` has them."""
