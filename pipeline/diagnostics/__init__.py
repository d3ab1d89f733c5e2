"""How fairly a model represents the parts of a long document, without queries and labels."""
