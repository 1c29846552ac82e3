"""The functions of torch.nn.functional."""
