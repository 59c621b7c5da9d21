"""Handlers may raise, send and wait, and delivery goes on."""

# ruff: noqa: D102  (a test's name is its sentence)

import threading

import twinlink

from .base import Conformance, Open, Pair, drain, free_endpoint, in_thread, patience, receive_all, wait_until


class Handlers(Conformance):
    """Exceptions, sending and waiting in handlers."""

    def test_a_handler_that_raises_is_reported_and_delivery_goes_on(self, opening: Open) -> None:
        first, second = self.ready_pair(opening)
        seen = []

        def handle(message: twinlink.Message) -> None:
            seen.append(message.sequence)
            if message.sequence % 2:
                raise ValueError(f"odd {message.sequence}")

        second.receiver("flow", handler=handle)
        for _ in range(100):
            first.sender("flow").send(b"")
        first.sender("flow").flush(patience())
        wait_until(lambda: len(seen) == 100)
        assert seen == list(range(100))
        wait_until(lambda: second.stats()["handler_errors"] == 50)
        errors = drain(second, twinlink.HandlerError)
        assert len(errors) == 50
        assert "odd 1" in errors[0].error

    def test_a_handler_that_sends_on_another_link_which_is_closed_is_reported(self, opening: Open) -> None:
        first, second = self.ready_pair(opening)
        with twinlink.open("memory", listen=free_endpoint()) as another:
            outbox = another.sender("on")

        def pass_on(message: twinlink.Message) -> None:
            outbox.send(message.payload)

        second.receiver("flow", handler=pass_on)
        first.sender("flow").send(b"")
        errors: list[twinlink.HandlerError] = []
        wait_until(lambda: errors.extend(drain(second, twinlink.HandlerError)) or errors)  # type: ignore[func-returns-value]
        assert "LinkClosed" in errors[0].error

    def test_a_handler_may_send_and_wait(self, pair: Pair) -> None:
        first, second = pair
        back = second.sender("back")

        def handle(message: twinlink.Message) -> None:
            back.send(message.payload)
            if message.sequence == 0:
                back.flush(patience())

        second.receiver("forth", handler=handle)
        inbox = first.receiver("back")
        for number in range(3000):  # more than Python's recursion limit
            first.sender("forth").send(number.to_bytes(2))
        assert [int.from_bytes(message.payload) for message in receive_all(inbox, 3000)] == list(range(3000))
        back.flush(patience())
        assert second.stats()["handler_errors"] == 0

    def test_a_handler_that_waits_does_not_stop_what_comes_meanwhile(self, opening: Open) -> None:
        first, second = self.ready_pair(opening)
        seen: list[int] = []
        release = second.receiver("release")

        def handle(message: twinlink.Message) -> None:
            if message.sequence == 0:
                assert release.receive(timeout=patience()) is not None
            seen.append(message.sequence)

        second.receiver("flow", handler=handle)
        for _ in range(3000):
            first.sender("flow").send(b"")
        first.sender("release").send(b"")
        wait_until(lambda: len(seen) == 3000)
        assert seen == list(range(3000))

    def test_a_handler_can_be_given_while_another_thread_waits(self, opening: Open) -> None:
        first, second = self.ready_pair(opening)
        waiting = in_thread(lambda: second.receiver("quiet").receive(timeout=patience()))
        seen = threading.Event()
        first.sender("flow").send(b"held from before the handler came")
        in_thread(lambda: second.receiver("flow", handler=lambda message: seen.set())).result()
        assert seen.wait(patience())
        first.sender("quiet").send(b"")
        assert waiting.result() is not None
