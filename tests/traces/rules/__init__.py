"""The rules of docs/protocol.md, each as a trace that a function makes; a module for each part of that page."""
