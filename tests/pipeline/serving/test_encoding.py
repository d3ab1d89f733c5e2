"""One thread embeds for all: who comes first, who is embedded together, and that the vectors are the same."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from threading import Event

import numpy as np
import pytest

from pipeline.ab.embedder import EncodedQuery
from pipeline.encoders import Calibration, Encoder, load_model
from pipeline.serving.encoding import (
    DeadlinePassedError,
    EncodingEndedError,
    EncodingThread,
    QueryBatcher,
    SharedEncoder,
    deadline,
)

ARMS = {"plain": None, "calibrated": Calibration(basket_size=4)}


@pytest.fixture
def thread() -> Iterator[EncodingThread]:
    started = EncodingThread()
    yield started
    started.close()


class Batches:
    """Embeds nothing, but remembers what it was asked; a question that says so fails."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def __call__(self, texts: Sequence[str]) -> list[EncodedQuery]:
        self.asked.append(list(texts))
        if "fail" in texts:
            raise ValueError("as asked")
        return [EncodedQuery(text, np.ones(1, np.float32), 1, False, 0.0, 0.0) for text in texts]


def batcher(
    thread: EncodingThread, encode: Batches, *, wait: float = 0.0, max_tokens: int = 100, expected: int = 0
) -> QueryBatcher:
    return QueryBatcher(
        thread,
        encode,
        wait_seconds=wait,
        max_tokens=max_tokens,
        expected=lambda: expected,
        on_batch=lambda _: None,
    )


def held(thread: EncodingThread) -> Event:
    """Keep the thread busy until the event is set."""
    event = Event()
    thread.run(event.wait, urgent=True)
    return event


def test_a_question_waits_for_one_slice_of_a_giant_explanation_not_for_all(thread: EncodingThread) -> None:
    done: list[str] = []
    started, go = Event(), Event()
    thread.run(lambda: (started.set(), go.wait(10), done.append("slice 0")))
    giant = [thread.run(lambda i=i: done.append(f"slice {i}")) for i in range(1, 50)]
    started.wait(10)
    question = thread.run(lambda: done.append("question"), urgent=True)
    go.set()
    question.result(10)
    for slice_ in giant:
        slice_.result(10)
    assert done[:3] == ["slice 0", "question", "slice 1"]
    assert len(done) == 51


def test_two_explanations_take_turns(thread: EncodingThread, tmp_path: Path, tiny_model: Path) -> None:
    """Each has one slice in the queue at a time, so that a giant one does not hold up a small one."""
    order: list[str] = []
    encoder = shared(tiny_model, thread, tokens=16)
    original = thread.run

    def noted(work: object, *, urgent: bool = False) -> Future[object]:
        import threading

        order.append(threading.current_thread().name)
        return original(work, urgent=urgent)  # type: ignore[arg-type]

    thread.run = noted  # type: ignore[method-assign,assignment]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(2, "client") as pool:
        event = held(thread)
        giant = pool.submit(encoder.encode_windows, [f"a cat sat {i}" for i in range(60)])
        while "client_0" not in order:
            time.sleep(0.01)
        small = pool.submit(encoder.encode_windows, ["a dog"])
        while "client_1" not in order:
            time.sleep(0.01)
        event.set()
        small.result(60)
        assert not giant.done()
        giant.result(60)


def test_questions_that_wait_are_embedded_together(thread: EncodingThread) -> None:
    encode = Batches()
    queue = batcher(thread, encode)
    event = held(thread)
    asked = [queue.submit(f"q{i}", 5) for i in range(6)]
    event.set()
    assert [future.result(10).text for future in asked] == [f"q{i}" for i in range(6)]
    assert encode.asked == [[f"q{i}" for i in range(6)]]


def test_a_batch_holds_so_many_tokens_with_padding(thread: EncodingThread) -> None:
    encode = Batches()
    queue = batcher(thread, encode, max_tokens=20)
    event = held(thread)
    asked = [queue.submit(name, tokens) for name, tokens in [("a", 5), ("b", 10), ("c", 9), ("giant", 99)]]
    event.set()
    for future in asked:
        future.result(10)
    assert encode.asked == [["a", "b"], ["c"], ["giant"]]


def test_a_question_that_is_alone_does_not_wait(thread: EncodingThread) -> None:
    started = time.monotonic()
    batcher(thread, Batches(), wait=30, expected=1).submit("q", 5).result(10)
    assert time.monotonic() - started < 5


def test_a_question_waits_a_bounded_time_for_others(thread: EncodingThread) -> None:
    encode = Batches()
    queue = batcher(thread, encode, wait=30, expected=2)
    first = queue.submit("first", 5)
    assert not first.done()
    second = queue.submit("second", 5)
    assert (first.result(10).text, second.result(10).text) == ("first", "second")
    assert encode.asked == [["first", "second"]]
    assert (
        batcher(thread, encode, wait=0.05, expected=9).submit("no others", 5).result(10).text == "no others"
    )


def test_a_question_fails_alone(thread: EncodingThread) -> None:
    encode = Batches()
    queue = batcher(thread, encode)
    event = held(thread)
    good, bad, other = queue.submit("good", 1), queue.submit("fail", 1), queue.submit("other", 1)
    event.set()
    assert (good.result(10).text, other.result(10).text) == ("good", "other")
    with pytest.raises(ValueError, match="as asked"):
        bad.result(10)


def test_a_question_given_up_is_not_embedded(thread: EncodingThread) -> None:
    encode = Batches()
    queue = batcher(thread, encode)
    event = held(thread)
    given_up, kept = queue.submit("given up", 1), queue.submit("kept", 1)
    assert given_up.cancel()
    event.set()
    kept.result(10)
    assert encode.asked == [["kept"]]


def shared(model: Path, thread: EncodingThread, *, tokens: int = 40) -> SharedEncoder:
    return SharedEncoder(load_model(model, max_length=64), ARMS, thread=thread, tokens_per_slice=tokens)


def test_slices_change_no_vector(thread: EncodingThread, tiny_model: Path) -> None:
    texts = ["a cat sat on a mat", "the answer is blue " * 8, "river", *(f"a dog {i}" for i in range(20))]
    expected = Encoder(load_model(tiny_model, max_length=64), ARMS).encode(texts, ARMS)
    got = shared(tiny_model, thread).encode(texts, ARMS)
    for arm in ARMS:
        np.testing.assert_allclose(got[arm], expected[arm], atol=2e-6)


def test_progress_tells_of_all_slices(thread: EncodingThread, tiny_model: Path) -> None:
    told: list[tuple[int, int]] = []
    encoder = shared(tiny_model, thread)
    texts = ["a cat sat", *["the dog"] * 30]
    encoder.encode_documents(texts, progress=lambda *done: told.append(done))
    assert len(told) > 3
    n_tokens = sum(len(encoding) for encoding in encoder.tokenizer.encode_batch(texts))
    assert tuple(map(sum, zip(*told, strict=True))) == (31, n_tokens)


def test_nobody_waits_for_a_thread_that_was_closed(tiny_model: Path) -> None:
    closed = EncodingThread()
    encoder = shared(tiny_model, closed)
    last = held(closed)
    queued = closed.run(lambda: closed.run(lambda: "queued by a job").result)
    closed.close()
    closed.close()
    with pytest.raises(EncodingEndedError):
        encoder.encode_windows(["a cat"])
    with pytest.raises(EncodingEndedError):
        batcher(closed, Batches()).submit("q", 1)
    last.set()
    assert queued.result(10)(10) == "queued by a job"
    closed._thread.join(10)
    assert not closed._thread.is_alive()


def test_work_for_a_request_that_was_given_up_ends(thread: EncodingThread, tiny_model: Path) -> None:
    encoder = shared(tiny_model, thread)
    token = deadline.set(time.monotonic() - 1)
    try:
        with pytest.raises(DeadlinePassedError):
            encoder.encode_windows(["a cat"])
    finally:
        deadline.reset(token)
    assert encoder.encode_windows(["a cat"]).shape == (1, 32)
