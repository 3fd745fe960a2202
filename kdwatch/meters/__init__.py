"""Sources of power and energy readings; they know nothing of stages."""
