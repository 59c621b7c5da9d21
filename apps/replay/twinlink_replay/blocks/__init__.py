"""GNU Radio blocks for flowgraphs."""

from .analyser import Analyser
from .pdu import PduSink, PduSource
from .retransmit import Retransmit
from .source import Source
from .stream_sink import StreamSink

__all__ = ["Analyser", "PduSink", "PduSource", "Retransmit", "Source", "StreamSink"]
