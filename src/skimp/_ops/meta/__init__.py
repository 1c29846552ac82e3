"""What ops answer for tensors without bytes, where their bodies would ask for some: functions with
the body's arguments, named by the rows (`meta=`)."""
