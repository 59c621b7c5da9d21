"""What the programs that run for long share, beside what they share with the command (`twinlink.cli`)."""
