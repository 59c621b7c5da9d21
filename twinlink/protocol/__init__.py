"""The protocol without I/O: octets and time come in, octets and events go out."""
