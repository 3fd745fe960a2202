"""What the model stages share: devices, models, batches, losses. Everything here imports torch."""
