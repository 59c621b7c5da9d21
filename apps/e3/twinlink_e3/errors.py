"""Errors of the E3 side.

E3Error (TwinlinkError)
├── GrammarMissing (ImportError)   asn1tools is not installed; names the extra
├── SharedMemoryError (OSError)    shared memory of the gNB that is missing, or of another layout (`shared_memory`)
├── MalformedPdu (ValueError)      octets that match no grammar, or not the one at hand
└── InvalidPdu (ValueError)        a PDU that the grammar cannot express, for example a dApp identifier of 101
"""

from twinlink.errors import TwinlinkError


class E3Error(TwinlinkError):
    """Base of the errors that twinlink_e3 raises."""


class GrammarMissing(E3Error, ImportError):
    """asn1tools, which compiles the E3 grammar, is not installed."""


class MalformedPdu(E3Error, ValueError):
    """Received octets do not decode: truncated, foreign, another generation of E3AP, or a value out of range."""


class InvalidPdu(E3Error, ValueError):
    """A PDU or service model structure has a value that the grammar does not allow."""
