"""What a person writes: evaluations, their datasets, and how these become samples."""
