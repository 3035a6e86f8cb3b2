"""Making a feature set: resume, write, publish, in this process or on workers."""
