"""The training loop and what it needs: tasks, schedules, checkpoints."""
