"""What a host name stands for, without waiting for long: without an answer a resolver takes tens of seconds."""

import socket
import threading


def addresses(host: str, within_s: float) -> list[str]:
    """The addresses of a host, in the resolver's order.  Raises TimeoutError, or OSError where there are none."""
    found: list[str] = []
    failed: list[OSError] = []

    def ask() -> None:
        try:
            answers = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
            found.extend(str(address[0]) for *_, address in answers)
        except OSError as error:
            failed.append(error)
        except UnicodeError:
            failed.append(OSError("no host can have this name"))

    asking = threading.Thread(target=ask, name="twinlink-resolver", daemon=True)
    try:
        asking.start()
        asking.join(within_s)
    except RuntimeError:  # there may be no more threads: better late than never
        ask()
    if failed:
        raise failed[0]
    if not found:
        raise TimeoutError("DNS does not answer")
    return found
