"""What the built-in stages run; torch and transformers live here and nowhere else."""
