"""Search and evaluation at scale: sweeps over designs, metrics over data sets, any executor."""
