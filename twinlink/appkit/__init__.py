"""The toolkit of the commands and applications: options, terminal, journal, link set-up, health checks over HTTP."""
