"""A limit of one thread is for the whole process, and a child process must find it lifted."""

import os
import subprocess
import sys
import threading

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from falcon_gnn.threads import one_thread

FORK = """
import os, threading, time
from falcon_gnn.threads import COMPUTING, one_thread
inside = threading.Event()
def work():
    with one_thread():
        inside.set()
        time.sleep(0.3)
threading.Thread(target=work).start()
inside.wait()
child = os.fork()
if child == 0:
    os._exit(0 if COMPUTING.acquire(timeout=5) else 1)
assert os.waitpid(child, 0)[1] == 0
"""


def limits() -> list[int]:
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def test_inside_the_matrix_libraries_have_one_thread_and_afterwards_what_they_had() -> None:
    import numpy  # noqa: F401 - loads a matrix library

    with threadpool_limits(2):
        assert 2 in limits()
        with one_thread():
            assert set(limits()) == {1}
        assert 2 in limits()


def test_the_second_of_two_threads_waits_until_the_first_has_lifted_its_limit() -> None:
    entered = threading.Event()

    def enter() -> None:
        with one_thread():
            entered.set()

    with one_thread():
        thread = threading.Thread(target=enter)
        thread.start()
        assert not entered.wait(0.2)
    thread.join(30)
    assert entered.is_set()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_child_finds_the_lock_free_that_another_thread_held() -> None:
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORK], check=True)


TURNS = """
import os, threading
from falcon_gnn.threads import TRAINING
inside, done = threading.Event(), threading.Event()
def train():
    with TRAINING.taken():
        inside.set()
        done.wait()
thread = threading.Thread(target=train)
thread.start()
inside.wait()
child = os.fork()
if not child:
    with TRAINING.taken(), TRAINING.taken():
        os._exit(0)
status = os.waitpid(child, 0)[1]
done.set()
thread.join()
raise SystemExit(status)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_child_can_train_though_another_thread_of_its_parent_does() -> None:
    subprocess.run([sys.executable, "-W", "ignore", "-c", TURNS], check=True, timeout=60)
