"""Every schedule of small worlds: a model checker for protocol cores."""
