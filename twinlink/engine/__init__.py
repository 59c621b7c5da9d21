"""What joins protocol, clock and transport: senders and receivers, frames that arrive, acks and naks, peers."""
