"""One flow, receiving side: sequence numbers, the reorder buffer, the queue for the application."""
