"""What all commands share: options, output, log lines, exit codes."""
