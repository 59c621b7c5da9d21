"""What users of other libraries look for at a link, and what it is called here."""

from typing import TYPE_CHECKING, NoReturn

_SEND = "link.sender('flow').send(...)"
_RECEIVE = "link.receiver('flow').receive(), or link.receiver('flow', handler=...)"
_CALLED_HERE = {
    "send": _SEND,
    "publish": _SEND,
    "put": _SEND,
    "receive": _RECEIVE,
    "recv": _RECEIVE,
    "subscribe": _RECEIVE,
    "get": _RECEIVE,
    "connect": "twinlink.open(..., connect=...)",
    "disconnect": "link.close()",
}


class Misnamed:
    """Base of a link.  It would slow down senders and receivers: Python specialises no access to the attributes of a
    class with `__getattr__`."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            advice = f"; write {_CALLED_HERE[name]}" if name in _CALLED_HERE else ""
            raise AttributeError(f"a link has no attribute {name!r}{advice}", name=name, obj=self)

        async def __aenter__(self) -> NoReturn:
            self.close()  # it was opened for this block
            raise TypeError("this link is for `with`; write `async with twinlink.open_async(...) as link:`")

        async def __aexit__(self, *_: object) -> None:
            """Never called."""
