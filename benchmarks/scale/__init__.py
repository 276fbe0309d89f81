"""Speed and memory on logs larger than memory."""
