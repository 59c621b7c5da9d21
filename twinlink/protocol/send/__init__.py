"""One flow, sending side: queue, retransmission buffer, loss detection, flow and congestion control."""
