"""torch.backends.quantized: a flag that changes nothing; there are no quantised types."""

engine = "none"
supported_engines: list[str] = ["none"]
