"""The application: corpus, chunks, embeddings, indexes and the A/B report."""
