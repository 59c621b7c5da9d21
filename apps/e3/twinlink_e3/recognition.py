"""Tells from an agent's reply to a setupRequest which generation of E3AP it speaks, and in which encoding.

Every generation states version 1.0.0, and no octet names it.  That a reply decodes proves nothing: one of G0 decodes as
something in G1.  A reply counts if it encodes to the same octets again, is a setupResponse with printable names and, if
positive, has our request id.  (Of 1000 replies of G2a, one is a reply of G2b, too, with a length octet in its name.)  A
negative reply to a request that the agent could not decode has any request id, or none.
"""

from dataclasses import dataclass

from .codec import Codec
from .codecs import ASN1_CODECS, JSON_CODECS
from .errors import MalformedPdu
from .indication import Octets
from .json_codec import NS_SINCE, decode_setup_reply
from .pdu import SetupResponse

# The greatest message id with which the octets of a G0 setupRequest are those of a G2a setupRequest as well.
MAX_SHARED_ID = 256


@dataclass(frozen=True, slots=True)
class Recognised:
    """A reply, and the codec that reads it."""

    codec: Codec
    response: SetupResponse


def recognise(octets: Octets, request_id: int) -> Recognised:
    """Find the codec of a reply on the setup channel.

    Raises:
        MalformedPdu: it is none of any codec, or of more than one; the text says what it looks like.
        GrammarMissing: asn1tools is not installed.
    """
    if bytes(octets[:1]) == b"{":
        return _recognise_json(octets, request_id)
    found = []
    for codec in ASN1_CODECS.values():
        pdu = codec.decode(octets) if codec.is_canonical(octets) else None
        if isinstance(pdu, SetupResponse) and _is_plausible(pdu, request_id):
            found.append(Recognised(codec, pdu))
    if len(found) == 1:
        return found[0]
    if found:
        names = " and of ".join(each.codec.name for each in found)
        raise MalformedPdu(f"a reply of {len(octets)} octets could be of {names}")
    hint = "; it may be protobuf, which twinlink does not speak" if bytes(octets[:1]) in (b"\x08", b"\x0a") else ""
    raise MalformedPdu(
        f"a reply of {len(octets)} octets is no setupResponse to request {request_id} in any generation{hint}"
    )


def _is_plausible(response: SetupResponse, request_id: int) -> bool:
    printable = f"{response.ran_identifier}{response.e3ap_protocol_version or ''}".isprintable()
    return printable and (response.response_code == "negative" or response.request_id == request_id)


def _recognise_json(octets: Octets, request_id: int) -> Recognised:
    """The form of the payloads tells, else the unit of the time: old agents state it in ms, new ones in ns."""
    response, nested = decode_setup_reply(octets)
    if not _is_plausible(response, request_id):
        raise MalformedPdu(f"the reply in JSON is no setupResponse to request {request_id}")
    is_new = response.timestamp is not None and response.timestamp >= NS_SINCE
    return Recognised(JSON_CODECS["nested" if nested else "G2b" if is_new else "G0"], response)
