"""What a worker's own process is set to."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys

from headrace.worker.process.loops import fast_loop


def test_uvloop_is_used_where_it_is_installed() -> None:
    make = fast_loop()
    assert make is not None  # the test environment has it
    loop = make()
    assert type(loop).__module__.startswith("uvloop")
    loop.close()


def test_without_uvloop_it_is_the_loop_of_python() -> None:
    code = (
        "import sys; sys.modules['uvloop'] = None; "
        "from headrace.worker.process.loops import fast_loop; print(fast_loop())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "None"
    with asyncio.Runner(loop_factory=None) as runner:
        assert "uvloop" not in type(runner.get_loop()).__module__


def test_the_process_of_the_caller_is_left_alone_on_import() -> None:
    look = "gc.get_threshold(), sys.getswitchinterval()"
    code = f"import gc, sys; was = {look}; import headrace.worker.worker, headrace.app; print(was == ({look}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"
    assert gc.isenabled()
