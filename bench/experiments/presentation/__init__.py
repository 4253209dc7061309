"""Tables, figures and tests of significance."""
