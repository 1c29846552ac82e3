"""Products and factors of matrices."""
