"""The codecs, by name."""

from .asn1_codec import Asn1Codec
from .codec import AnyStructure, Codec
from .grammar import GENERATIONS
from .indication import Octets
from .json_codec import JsonCodec
from .pdu import Pdu
from .service_model import Structure

ASN1_CODECS = {generation: Asn1Codec(generation) for generation in GENERATIONS}
JSON_CODECS = {"G0": JsonCodec("G0"), "G2b": JsonCodec("G2b"), "nested": JsonCodec("G2b", nested=True)}
G0 = ASN1_CODECS["G0"]


def codec_of(generation: str, encoding: str) -> Codec:
    """The codec of a generation in an encoding: ``asn1``, ``json``, or ``json-nested``, which is that of G2."""
    if encoding == "asn1":
        return ASN1_CODECS[generation]
    if encoding == "json-nested":
        return JSON_CODECS["nested"]
    return JSON_CODECS["G2b" if generation.startswith("G2") else "G0"]


# Generation G0 in ASN.1, that of dapps 0.0.6.


def encode(pdu: Pdu) -> bytes:
    """The octets of one PDU in G0.  Raises InvalidPdu, GrammarMissing."""
    return G0.encode(pdu)


def decode(octets: Octets) -> Pdu:
    """Read one PDU of G0; octets after its end are ignored.  Raises MalformedPdu, GrammarMissing."""
    return G0.decode(octets)


def encode_structure(structure: Structure) -> bytes:
    """The octets of a structure in G0.  Raises InvalidPdu, GrammarMissing."""
    return G0.encode_structure(structure)


def decode_structure(kind: type[AnyStructure], octets: Octets) -> AnyStructure:
    """Read a structure of G0.  Raises MalformedPdu, GrammarMissing."""
    return G0.decode_structure(kind, octets)
