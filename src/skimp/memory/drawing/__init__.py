"""Pictures of tensors over their storages: what is drawn as plain data, as SVG, as text."""
