"""What every codec offers: one for each grammar of E3AP and each encoding."""

from typing import Protocol, TypeVar

from .indication import Octets
from .pdu import Pdu
from .service_model import Structure

AnyStructure = TypeVar("AnyStructure", bound=Structure)


class Codec(Protocol):
    """PDUs and structures of the spectrum service model, to and from octets.

    Attributes:
        name: in logs and on the command line.
        encoding: ``asn1`` or ``json``.
        generation: ``G0``, ``G1``, ``G2a`` or ``G2b``; in JSON ``G0`` or ``G2b``.
    """

    name: str
    encoding: str
    generation: str

    def encode(self, pdu: Pdu) -> bytes:
        """The octets of one PDU.

        Raises:
            InvalidPdu: a value, or a field, that this generation does not allow.
            GrammarMissing: asn1tools is not installed.
        """
        ...

    def decode(self, octets: Octets) -> Pdu:
        """Read one PDU.  Raises MalformedPdu, GrammarMissing."""
        ...

    def encode_structure(self, structure: Structure) -> bytes:
        """The octets of a structure.  Raises InvalidPdu, GrammarMissing."""
        ...

    def decode_structure(self, kind: type[AnyStructure], octets: Octets) -> AnyStructure:
        """Read a structure, of the kind that the enclosing PDU implies.  Raises MalformedPdu, GrammarMissing."""
        ...
