"""Log lines reach their stream in order, and a stream that takes none stops nobody."""

import io
import os
import threading

from gateway.observe.log_writer import LineWriter, QueuedWriter


def test_lines_arrive_in_order() -> None:
    stream = io.StringIO()
    writer = QueuedWriter(stream)
    for number in range(100):
        writer.write(str(number))
    writer.close()
    assert stream.getvalue().split() == [str(number) for number in range(100)]


def test_a_full_pipe_makes_nobody_wait_and_what_was_dropped_is_told() -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream, os.fdopen(reading) as reader:
        writer = QueuedWriter(stream, lines=10)
        done = threading.Event()

        def write_much() -> None:
            for _ in range(5000):
                writer.write("x" * 100)
            done.set()

        threading.Thread(target=write_much, daemon=True).start()
        assert done.wait(10), "writing waited for the reader"
        while "log_lines_dropped" not in reader.readline():
            pass
        # The rest is taken so that the writer's thread can end.
        threading.Thread(target=reader.read, daemon=True).start()
        writer.close()
        stream.close()


def test_a_reader_that_has_gone_away_breaks_nothing() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    stream = os.fdopen(writing, "w", closefd=False)
    LineWriter(stream).write("nobody reads this")
    os.close(writing)
