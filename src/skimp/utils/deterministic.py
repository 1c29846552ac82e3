"""torch.utils.deterministic: a flag that is kept and changes nothing."""

fill_uninitialized_memory = True
