"""Which generation of E3AP to ask an agent in, and which answers count.

Agents are asked in G0 first, which harms only JSON agents of libe3 up to 0.0.7: those then answer no dApp any more.
An agent of another generation answers negatively in its own, and is asked again in that. A G2a agent reads a G0
request as one of its own, and accepts. A JSON agent reads the request of every JSON codec: only the answer tells how it
writes payloads. An unknown agent is never asked in G1: a G0 agent may read that as another request, and give an
identifier away.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from twinlink_e3 import ASN1_CODECS, G0, JSON_CODECS, Codec, codec_of

ANY = "auto"
ENCODINGS = ("asn1", "json")

_CODECS: tuple[Codec, ...] = (*ASN1_CODECS.values(), *JSON_CODECS.values())


@dataclass(frozen=True, slots=True)
class GenerationSearch:
    """What ``--e3-generation`` and ``--e3-encoding`` leave open.

    Attributes:
        first: codec of the first request.
        accepted: names of the codecs that may be used.
        options: the options given, for messages; empty if everything is open.
    """

    first: Codec = G0
    accepted: frozenset[str] = frozenset(codec.name for codec in _CODECS)
    options: str = ""

    @classmethod
    def of(cls, generation: str = ANY, encoding: str = ANY) -> "GenerationSearch":
        """The search for a generation and an encoding, or for any.  A generation without an encoding is of ASN.1."""
        given = (("--e3-generation", generation), ("--e3-encoding", encoding))
        options = " ".join(f"{option} {value}" for option, value in given if value != ANY)
        if generation != ANY:
            codec = codec_of(generation, "asn1" if encoding == ANY else encoding)
            names = {codec.name, JSON_CODECS["nested"].name} if codec is JSON_CODECS["G2b"] else {codec.name}
            return cls(codec, frozenset(names), options)
        if encoding == ANY:
            return cls()
        codecs: Mapping[str, Codec] = ASN1_CODECS if encoding == "asn1" else JSON_CODECS
        return cls(codecs["G0"], frozenset(codec.name for codec in codecs.values()), options)


def reads(asked: Codec, answered: Codec) -> bool:
    """Whether an agent that answers in the second codec reads a request in the first as it is meant."""
    if asked is G0:
        return answered in (G0, ASN1_CODECS["G2a"])
    return answered is asked or asked.encoding == answered.encoding == "json"
