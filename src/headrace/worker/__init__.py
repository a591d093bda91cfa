"""Workers: fetch, run, finish, and a sign of life on a thread of its own."""
