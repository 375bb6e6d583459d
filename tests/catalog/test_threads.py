"""Worker threads for plain functions."""

import asyncio
import contextvars
import subprocess
import sys
import threading
from typing import NoReturn

import pytest

from toolpost.catalog.threads import run_in_thread


async def test_a_function_runs_in_another_thread_and_its_result_comes_back() -> None:
    thread = await run_in_thread(threading.current_thread)

    assert thread is not threading.current_thread()
    assert thread.daemon


def fail() -> NoReturn:
    raise ValueError("from the thread")


async def test_an_exception_comes_back_as_it_was_raised() -> None:
    with pytest.raises(ValueError, match="from the thread") as raised:
        await run_in_thread(fail)

    assert [entry.name for entry in raised.traceback][-1] == "fail"


async def test_even_an_exit_comes_back_and_the_thread_lives_on() -> None:
    with pytest.raises(SystemExit):
        await run_in_thread(sys.exit)

    assert await run_in_thread(lambda: "still here") == "still here"


async def test_the_end_of_an_iteration_is_reported_as_an_error() -> None:
    with pytest.raises(RuntimeError, match="the tool raised StopIteration"):
        await run_in_thread(lambda: next(iter(())))


@pytest.mark.parametrize("kind", [KeyboardInterrupt, GeneratorExit])
async def test_an_exception_that_would_end_the_loop_is_reported_as_an_error(kind: type[BaseException]) -> None:
    def give_up() -> None:
        raise kind

    with pytest.raises(RuntimeError, match=f"the tool raised {kind.__name__}"):
        await run_in_thread(give_up)


async def test_a_thread_is_used_again() -> None:
    threads = {await run_in_thread(threading.get_ident) for _ in range(20)}

    assert len(threads) == 1


async def test_functions_at_the_same_time_have_threads_of_their_own() -> None:
    meeting = threading.Barrier(3, timeout=30)

    def meet() -> int:
        meeting.wait()
        return threading.get_ident()

    assert len(set(await asyncio.gather(*(run_in_thread(meet) for _ in range(3))))) == 3


async def test_a_cancelled_wait_leaves_the_function_to_itself_and_the_loop_usable() -> None:
    began, end, finished = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        end.wait(30)
        finished.set()

    task = asyncio.create_task(run_in_thread(work))
    await run_in_thread(lambda: began.wait(30))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    end.set()

    assert await run_in_thread(lambda: finished.wait(30))
    assert await run_in_thread(lambda: "usable") == "usable"


async def test_context_variables_go_along() -> None:
    variable = contextvars.ContextVar("variable", default="unset")
    variable.set("of the caller")

    assert await run_in_thread(variable.get) == "of the caller"


def test_a_loop_that_is_gone_when_the_function_ends_does_no_harm() -> None:
    began, end, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        end.wait(30)
        ended.set()

    async def leave() -> None:
        task = asyncio.create_task(run_in_thread(work))
        await run_in_thread(lambda: began.wait(30))
        task.cancel()

    asyncio.run(leave())
    end.set()
    assert ended.wait(30)

    assert asyncio.run(run_in_thread(lambda: "another loop")) == "another loop"


def run_program(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.strip()


@pytest.mark.programs
def test_a_function_that_never_returns_does_not_hold_up_the_end_of_the_program() -> None:
    program = """
import asyncio, threading
from toolpost.catalog.threads import run_in_thread

async def main():
    began = threading.Event()
    task = asyncio.create_task(run_in_thread(lambda: (began.set(), threading.Event().wait())))
    await run_in_thread(began.wait)
    print("leaving")

asyncio.run(main())
"""
    assert run_program(program) == "leaving"


@pytest.mark.programs
@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
def test_a_forked_process_starts_threads_of_its_own() -> None:
    program = """
import asyncio, os
from toolpost.catalog.threads import run_in_thread

asyncio.run(run_in_thread(lambda: None))
child = os.fork()
if child == 0:
    print(asyncio.run(asyncio.wait_for(run_in_thread(lambda: "child runs"), 30)), flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""
    assert run_program(program) == "child runs"
