"""The commands: options and params.yaml in, one call into the library, a log line out."""
