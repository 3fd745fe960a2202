"""What a recipe will take, before it runs: tokens, disk, energy. Reads data, models' headers and finished runs only."""
