"""Learning rate schedules by kind; torch.optim.lr_scheduler names them all."""
