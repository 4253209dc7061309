"""What the audit and conformal sets promise, measured."""
