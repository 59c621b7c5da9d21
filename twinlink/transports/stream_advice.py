"""Why TLS does not reach a listener of plain sockets, and what to do, for a person."""

import ssl

from .stream_connection import FOREIGN_TLS

NO_TLS = (
    "what listens there does not speak TLS: give the listener tls_certificate, or leave tls, tls_trusted and "
    "tls_certificate out here"
)
NEEDS_TLS = (
    "the listener takes only TLS: give this side an identity if the listener has one (`twinlink key new`, then "
    "--identity), else the option tls_trusted with a file of the listener's certificate, or tls behind a public Route"
)
NO_ANSWER_IN_TLS = f"TCP connects, but TLS gets no answer; {NO_TLS}"


def tls_failure(error: ssl.SSLError) -> str:
    """TLS has refused the other side, or the other side us."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"the listener's certificate is not accepted ({error.verify_message}): give tls_trusted, a file with it or "
            "its authority's, and connect to a name that is in it"
        )
    reason = error.reason or str(error)
    if "ALERT" in reason and ("CERT" in reason or "UNKNOWN_CA" in reason):
        return (
            f"the listener does not accept our certificate ({reason}): give tls_certificate and tls_private_key here, "
            "and the certificate at the listener in tls_trusted"
        )
    if reason in FOREIGN_TLS or isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return NO_TLS
    return f"TLS fails ({reason}): check the certificates, and that both sides have TLS 1.2 or later"
